"""`save`: a model as a Quoth folder, whole or as a delta; `save_hugging_face`: as transformers has it."""

from __future__ import annotations

import shutil
from collections.abc import Collection
from pathlib import Path
from typing import Any

from torch import Tensor

from quoth._version import __version__
from quoth.errors import QuothError
from quoth.files import write_json
from quoth.folders import atomic_folder
from quoth.hub import DELTA
from quoth.model.checkpoint import FORMAT
from quoth.model.model import Model
from quoth.model.tuned import delta_names
from quoth.model.weights import write_weights
from quoth.tune import can_merge, inserted


def save(model: Model, folder: str | Path) -> None:
    """Save as a Quoth model folder: quoth.json, the weights, the tokenizer's files. Any shape.

    The weights are model.safetensors; or, if the model was tuned on a base that can be loaded again, only what was
    trained, as delta.safetensors.
    """
    head = model.head.to_json() if model.head is not None else None
    description = {
        "format": FORMAT,
        "quoth": __version__,
        "family": model.family.name,
        "shape": model.encoder.shape.to_json(),
        "style": model.encoder.style.to_json(),
        "tuning": model.tuning.to_json() if model.tuning is not None else None,
        "head": head,
        "windows": model.windows,
        "provenance": {"source": model.origin.source},
        "config": model.origin.config,
    }
    if model.base is None:
        _write(folder, "quoth.json", description, "model.safetensors", _weights(model), model)
        return
    if Path(folder).resolve() == Path(model.base.source).resolve():
        raise QuothError(f"{folder}: the base of this model lies there, and it needs its base; save elsewhere")
    description["base"] = {"source": model.base.source, "sha256": model.base.sha256}
    description["pooler"] = model.pooler is not None
    _write(folder, "quoth.json", description, DELTA, _weights(model, delta_names(model)), model)


def save_hugging_face(model: Model, folder: str | Path) -> None:
    """Save as a Hugging Face folder, or say why no class of transformers can hold this shape."""
    found = inserted(model.encoder)
    if found:
        how = "merge it first (quoth.model.merge)" if can_merge(model.encoder) else "save as a Quoth folder"
        raise QuothError(f"transformers has no class for an encoder with {found}; {how}")
    family, kind = model.family, hugging_face_kind(model)
    suffix = model.head.transformers_class if kind else "Model"
    sizes = family.config(model.encoder.shape, model.encoder.style)
    kept = {k: v for k, v in (model.origin.config or {}).items() if k not in ("dtype", "torch_dtype")}
    config = {**kept, **sizes, "architectures": [family.classes + suffix]}
    weights = {family.to_hugging_face(name, kind): value for name, value in _weights(model).items()}
    _write(folder, "config.json", config, "model.safetensors", weights, model)


def hugging_face_kind(model: Model) -> str | None:
    """The kind of head, as far as transformers has a class for it in this family; None where there is no head."""
    if model.head is None:
        return None
    kind: str = model.head.kind
    if not hasattr(model.head, "transformers_class") or kind not in model.family.heads:
        raise QuothError(f"transformers has no class for a head of kind {kind!r}; save as a Quoth folder")
    return kind


def _weights(model: Model, names: Collection[str] | None = None) -> dict[str, Tensor]:
    """The tensors of a model, or those of these names, where safetensors can take them."""
    kept = {name: value for name, value in model.state_dict().items() if names is None or name in names}
    return {name: value.detach().cpu().contiguous() for name, value in kept.items()}


def _write(
    folder: str | Path, name: str, description: dict[str, Any], file: str, weights: dict[str, Tensor], model: Model
) -> None:
    for path in model.origin.tokenizer:
        if not path.is_file():
            raise QuothError(f"{path}: the tokenizer that this model was loaded with is gone; nothing was saved")
    with atomic_folder(folder) as part:
        write_weights(part / file, weights, Path(folder) / file)
        for path in model.origin.tokenizer:
            shutil.copyfile(path, part / path.name)
        write_json(part / name, description)
