"""`Checkpoint`: what a model's files hold, read from their headers alone, without torch and without the weights.

A Hugging Face checkpoint, a Quoth model folder and a delta folder look the same from here on: a family, a shape, a
style, and tensors under Quoth's names. A delta folder holds what was trained and names the base that has the rest.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from math import prod
from pathlib import Path
from typing import Any

from safetensors import SafetensorError, safe_open

from quoth.config import fill
from quoth.embedded import ONLY_ANSWERS, is_embedded
from quoth.encoder import Family, Shape, Style
from quoth.encoder.families import family_of, is_known
from quoth.encoder.families.family import translate
from quoth.errors import QuothError
from quoth.files import read_json
from quoth.hub import DELTA, ONNX, ModelFiles, find_model

FORMAT = 1
DIMENSIONS = 8
DTYPES = {"float32": "F32", "float16": "F16", "bfloat16": "BF16", "float64": "F64", "int64": "I64"}  # of a .bin file


@dataclass(frozen=True)
class Tensor:
    """Where a tensor lies and what it is like. `dtype` as safetensors writes it: F32, F16, BF16 …"""

    file: Path
    name: str
    shape: tuple[int, ...]
    dtype: str

    @property
    def size(self) -> int:
        """How many numbers it holds."""
        return prod(self.shape)


@dataclass(frozen=True)
class Base:
    """The model that a tuned one stands on.

    source: its hub id or folder; sha256: of its weights, by `quoth.model.weights_hash`
    pooler: whether the tuned model's pooler is the base's own
    """

    source: str
    sha256: str
    pooler: bool = False


@dataclass(frozen=True)
class Description:
    """What quoth.json says of a model; it may have other keys beside these, such as the calibration."""

    format: int
    family: str
    shape: dict[str, Any]
    style: dict[str, Any]
    tuning: dict[str, Any] | None = None
    head: dict[str, Any] | None = None
    windows: dict[str, int] | None = None
    config: dict[str, Any] | None = None
    base: Base | None = None
    pooler: bool = False


@dataclass(frozen=True)
class Checkpoint:
    """A model on disk, described.

    tensors: by Quoth's names, for a delta those of its base too; unused: names in the files that no part takes
    head: what `quoth.heads.build_head` needs, or None; config: the Hugging Face config it came with, if any
    tuning: what `quoth.tune.build_tuning` needs, or None; windows: the settings that it was trained with, if known
    base: what a delta says of its base; below: the base itself, or None with `trouble`, a line that says why
    """

    files: ModelFiles
    family: Family
    shape: Shape
    style: Style
    tensors: Mapping[str, Tensor]
    unused: tuple[str, ...]
    head: dict[str, Any] | None
    config: dict[str, Any] | None
    tuning: dict[str, Any] | None = None
    windows: dict[str, int] | None = None
    base: Base | None = None
    below: Checkpoint | None = None
    trouble: str = ""

    @property
    def own(self) -> dict[str, Tensor]:
        """The tensors that lie in this model's own files, and not in its base's."""
        return {name: tensor for name, tensor in self.tensors.items() if tensor.file in self.files.weights}

    def inserted(self) -> dict[str, list[Tensor]]:
        """The tensors that tuning inserted, by its kind: those of the encoder that no family knows."""
        found = [t for name, t in self.tensors.items() if name.startswith("encoder.") and not is_known(name)]
        return {str((self.tuning or {}).get("kind", "inserted")): found} if found else {}

    @property
    def pooler(self) -> bool:
        """Whether there is a pooler, here or in the base."""
        return "pooler.weight" in self.tensors or (self.base is not None and self.base.pooler)


def open_checkpoint(source: str | Path, *, base: str | Path | None = None) -> Checkpoint:
    """Describe the model in a folder or under a hub id. base: where the base of a delta lies now, if it was moved."""
    return _open(source, base, above=())


def _open(source: str | Path, base: str | Path | None, above: tuple[Path, ...]) -> Checkpoint:
    files = find_model(source)
    if files.members:
        raise QuothError(
            f"{source}: is an ensemble, and one model is wanted here; "
            f"take one of its members, such as {files.members[0].source}"
        )
    if is_embedded(source):
        raise QuothError(ONLY_ANSWERS)
    if files.weights[0].name == ONNX:
        raise QuothError(f"{source}: is exported and can only answer; give the model that it was made of")
    here = files.description.resolve()
    if here in above:
        raise QuothError(f"{source}: it would be its own base")
    value = read_json(files.description)
    if not isinstance(value, dict):
        raise QuothError(f"{files.description}: not a JSON object")
    tensors = {tensor.name: tensor for path in files.weights for tensor in _header(path)}
    if files.description.name != "quoth.json":
        return _hugging_face(files, value, tensors)
    description = _describe(files, value)
    checkpoint = _quoth(files, description, tensors)
    if files.weights[0].name != DELTA:
        return checkpoint
    return _on_its_base(checkpoint, description, base, (*above, here))


def _describe(files: ModelFiles, value: Mapping[str, Any]) -> Description:
    path = str(files.description)
    if value.get("format") != FORMAT:
        raise QuothError(
            f"{path}: format {value.get('format')!r} is not {FORMAT}, which this version reads; upgrade Quoth"
        )
    known = {field.name for field in fields(Description)}
    return fill(Description, {key: v for key, v in value.items() if key in known and v is not None}, path)


def _quoth(files: ModelFiles, description: Description, tensors: dict[str, Tensor]) -> Checkpoint:
    path = str(files.description)
    return Checkpoint(
        files,
        family_of(description.family, path),
        Shape.from_json(description.shape, f"{path}: shape"),
        Style.from_json(description.style, path),
        tensors,
        unused=(),
        head=description.head,
        config=description.config,
        tuning=description.tuning,
        windows=description.windows,
    )


def _on_its_base(
    delta: Checkpoint, description: Description, moved: str | Path | None, above: tuple[Path, ...]
) -> Checkpoint:
    """A delta with the tensors of its base below its own, as far as the base can be opened."""
    path, named = delta.files.description, description.base
    if named is None:
        raise QuothError(f"{path}: base is missing; a delta needs an object with source and sha256")
    if delta.tuning is None:
        raise QuothError(f"{path}: tuning is missing, which a delta needs")
    source = place(moved or named.source)
    pooler = description.pooler and "pooler.weight" not in delta.tensors
    delta = replace(delta, base=Base(source, named.sha256, pooler))
    try:
        below = _open(source, None, above)
        if below.trouble:
            raise QuothError(f"its own base: {below.trouble}")
    except QuothError as error:
        return replace(delta, trouble=str(error))
    return replace(on_base(delta, below.tensors), below=below)


def place(source: str | Path) -> str:
    """How a base is named: a folder by its absolute path, a hub id as it is."""
    try:
        return str(Path(source).resolve()) if Path(source).is_dir() else str(source)
    except OSError:  # a name that no folder can have; opening it says so
        return str(source)


def on_base(delta: Checkpoint, tensors: Mapping[str, Tensor]) -> Checkpoint:
    """A delta with the tensors of its base below its own: all but a head, and a pooler only if the delta takes it."""
    left_out = ("head.",) if delta.base is not None and delta.base.pooler else ("head.", "pooler.")
    kept = {name: tensor for name, tensor in tensors.items() if not name.startswith(left_out)}
    return replace(delta, tensors={**kept, **delta.tensors})


def _hugging_face(files: ModelFiles, config: dict[str, Any], tensors: dict[str, Tensor]) -> Checkpoint:
    family = family_of(config.get("model_type"), str(files.description))
    _refuse(config, files)
    named, unused = {}, []
    for name, tensor in tensors.items():
        ours = family.to_quoth(name)
        if ours is not None:
            named[ours] = tensor
        elif not name.endswith("embeddings.position_ids"):  # 0, 1, 2 …, which old versions saved
            unused.append(name)
    try:
        shape, style = family.shape(config), family.style(config)
    except QuothError as error:
        raise QuothError(f"{files.description}: {error}") from None
    head = _head(family, config, named, shape, style)
    for name in [name for name in named if name.startswith("head.") and not _has_place(name, head, family)]:
        unused.append(named.pop(name).name)
    return Checkpoint(files, family, shape, style, named, tuple(unused), head, config)


def _head(
    family: Family, config: dict[str, Any], tensors: Mapping[str, Tensor], shape: Shape, style: Style
) -> dict[str, Any] | None:
    """Which head a checkpoint carries: by its class, and only if its weights are there."""
    named = config.get("architectures") or []
    classes = " ".join(map(str, named)) if isinstance(named, list) else ""
    if "ForPreTraining" in classes or "ForMaskedLM" in classes:
        return _mlm_head(config, tensors, shape, style)
    linear = tensors.get("head.linear.weight")
    if linear is None:
        return None
    if "QuestionAnswering" in classes or (not classes and linear.name == "qa_outputs.weight"):
        return {"kind": "span"}
    if "SequenceClassification" in classes:
        activation = family.class_activation
        return {"kind": "class", "labels": linear.shape[0], "activation": activation, "pooled": activation is None}
    return None


def _mlm_head(
    config: dict[str, Any], tensors: Mapping[str, Tensor], shape: Shape, style: Style
) -> dict[str, Any] | None:
    """The head of pre-training, if all of its MLM part is there and its decoder is the word embeddings."""
    parts = ("down", "down_norm") if shape.projection else ("dense", "norm")
    wanted = ["head.bias", *(f"head.{part}.{name}" for part in parts for name in ("weight", "bias"))]
    if not config.get("tie_word_embeddings", True) or any(name not in tensors for name in wanted):
        return None
    nsp = "head.nsp.weight" in tensors and "pooler.weight" in tensors
    embedding = shape.embedding if shape.projection else None
    own = {"activation": style.activation, "eps": style.eps}
    return {"kind": "mlm", "vocab": shape.vocab, "embedding": embedding, **own, "nsp": nsp}


def _has_place(name: str, head: dict[str, Any] | None, family: Family) -> bool:
    """Whether a tensor belongs to this head, and not to another that the file has too."""
    if head is None or (name.startswith("head.nsp.") and not head.get("nsp")):
        return False
    return any(translate(name, ours, theirs) for ours, theirs in family.heads.get(head["kind"], ()))


def _refuse(config: Mapping[str, Any], files: ModelFiles) -> None:
    """Refuse what would load and compute something else."""
    wanted = {
        "position_embedding_type": "absolute",
        "is_decoder": False,
        "add_cross_attention": False,
        "num_hidden_groups": 1,
        "inner_group_num": 1,
    }
    for key, value in wanted.items():
        if config.get(key, value) != value:
            raise QuothError(f"{files.description}: {key} = {config[key]!r} is not supported, only {value!r}")


def _header(path: Path) -> list[Tensor]:
    if path.suffix == ".bin":
        found = [(name, tuple(value.shape), str(value.dtype)) for name, value in read_bin(path).items()]
        return [Tensor(path, name, shape, DTYPES.get(dtype[6:], dtype)) for name, shape, dtype in found]  # "torch.…"
    try:
        with safe_open(path, framework="np") as opened:
            parts = {name: opened.get_slice(name) for name in opened.keys()}  # noqa: SIM118
            found = [(name, tuple(part.get_shape()), part.get_dtype()) for name, part in parts.items()]
    except SafetensorError as error:
        raise QuothError(f"{path}: not a safetensors file, or truncated or damaged ({error}); fetch it again") from None
    for name, shape, _ in found:
        if len(shape) > DIMENSIONS:
            raise QuothError(f"{path}: tensor {name} has {len(shape)} dimensions; at most {DIMENSIONS} are read")
    return [Tensor(path, name, shape, dtype) for name, shape, dtype in found]


def read_bin(path: Path) -> dict[str, Any]:
    """The tensors of a `.bin` file, through torch's weights-only loader: no code in the file is run."""
    try:
        import torch
    except ImportError:
        raise QuothError(f"{path}: a .bin file needs torch; pip install 'quoth[train]'") from None
    try:
        value = torch.load(path, map_location="cpu", weights_only=True, mmap=True)
    except Exception as error:  # torch raises half a dozen kinds for a damaged file
        reason = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
        raise QuothError(f"{path}: not a weights-only .bin file, or damaged ({reason})") from None
    if not isinstance(value, dict) or not all(isinstance(v, torch.Tensor) for v in value.values()):
        raise QuothError(f"{path}: holds something else than named tensors")
    return value
