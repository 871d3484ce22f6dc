"""From the files of a model to what runs it."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

from quoth.encoder import FAMILIES
from quoth.errors import QuothError
from quoth.files import read_json
from quoth.hub import ONNX, ModelFiles
from quoth.runtime.onnx_runner import OnnxRunner
from quoth.runtime.runner import Runner
from quoth.runtime.transformers_runner import TransformersRunner


def load_runner(files: ModelFiles, device: str | None, precision: str | None) -> Runner:
    """The runner of a model: onnxruntime if it was exported, else torch, or transformers for other families."""
    source = files.source
    exported = files.description.parent / ONNX
    if files.weights[0].name == ONNX or (exported.is_file() and find_spec("torch") is None):
        return _onnx_runner(source, exported, device, precision)
    description = read_json(files.description)
    known = isinstance(description, dict) and description.get("model_type") in list(FAMILIES)  # it may have no hash
    if files.description.name == "config.json" and not known:
        return TransformersRunner(source, device, precision)
    try:
        # torch is optional: a plain install answers without it
        from quoth.model.loading import load
        from quoth.runtime.ensemble import load_ensemble
        from quoth.runtime.torch_runner import TorchRunner
    except ImportError:
        raise QuothError(f"{source}: to run it Quoth needs torch; pip install 'quoth[train]'") from None
    if files.members:
        return load_ensemble(source, device, precision)
    return TorchRunner(load(source), device, precision)


def _onnx_runner(source: str, path: Path, device: str | None, precision: str | None) -> Runner:
    if device not in (None, "cpu") or precision not in (None, "fp32"):
        raise QuothError(
            f"{source}: is run by onnxruntime on the CPU as it was exported; leave out device and precision"
        )
    runner = OnnxRunner(path)
    if runner.task != "span":
        raise QuothError(f"{source}: has no span head, so it cannot answer questions; export one that has")
    return runner
