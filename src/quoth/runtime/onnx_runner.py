"""`OnnxRunner`: an exported model behind plain numpy. It needs onnxruntime and no torch.

    runner = OnnxRunner("folder/model.onnx")
    start, end = runner(packed)                # (T,) each; Reader.load("folder") is the way to answers

Short windows of equal length are run together, as a rectangle, longer ones alone: there is no padding. Rectangles run
side by side, each on one core, if that keeps all cores busy, else one after another on all cores.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, fields
from functools import partial
from pathlib import Path
from typing import Any, Literal

import numpy as np

from quoth.config import fill, shown
from quoth.data.source import parse_json
from quoth.encoder import Shape
from quoth.encoder.shape import check_whole
from quoth.errors import QuothError
from quoth.runtime.combine import How, combine
from quoth.runtime.logits import SpanLogits
from quoth.windows import Packed

TOKENS = 8192  # of a call: enough rectangles to keep the cores busy to the end
RECTANGLE = 128  # tokens; on one core larger ones were no faster or slower


@dataclass(frozen=True)
class Facts:
    """What `quoth export` writes into a file, beside the graph. how: of an ensemble, None of a single model."""

    task: Literal["span", "class"]
    how: How | None
    longest: int
    parameters: int
    vocab: int
    types: int
    shapes: list[dict[str, Any]]


class OnnxRunner:
    """The logits of packed batches, from a file that `quoth export` wrote.

    threads: by default as many as there are cores that this process may use, or OMP_NUM_THREADS
    """

    def __init__(self, path: str | Path, threads: int | None = None) -> None:
        self.path, self.threads = Path(path), threads or usable_threads()
        self.session = open_session(self.path, self.threads)
        self._single: Any = None  # a session of one thread, opened when it is first wanted
        facts = _facts(self.session, path)
        self.task = facts.task
        self.how: Any = facts.how
        self.longest = facts.longest
        self.parameters = facts.parameters
        self.budget = TOKENS
        self.rectangle = RECTANGLE
        self.vocab, self.types = facts.vocab, facts.types
        self._shapes = [Shape.from_json(shape, str(path)) for shape in facts.shapes]

    def flops(self, length: int) -> int:
        """Forward floating-point operations of a window of `length` tokens, encoders alone."""
        return length * sum(shape.flops(length) for shape in self._shapes)

    def __call__(self, packed: Packed[np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
        """Start and end logits, (T,) float32 each; of an ensemble those of all members together."""
        members = self.member_logits(packed)
        if len(members) == 1:
            return members[0, 0], members[0, 1]
        both = combine([SpanLogits(start, end) for start, end in members], packed.starts, self.how)
        return both.start, both.end

    def member_logits(self, packed: Packed[np.ndarray]) -> np.ndarray:
        """The start and end logits of each of M members: (M, 2, T) float32."""
        self._need("span")
        results = list(self._results(packed))
        logits = np.empty((len(results[0][1][0]), 2, packed.tokens), np.float32)
        for windows, found in results:
            logits[:, :, _places(packed, windows)] = np.stack(found, 1)  # (M, 2, n, L)
        return logits

    def classes(self, packed: Packed[np.ndarray]) -> np.ndarray:
        """The logits of each window: (n, labels) float32."""
        self._need("class")
        results = list(self._results(packed))
        order = np.concatenate([windows for windows, _ in results])
        return np.concatenate([found[0] for _, found in results])[np.argsort(order)]

    def _need(self, task: str) -> None:
        if self.task != task:
            raise QuothError(f"this model was exported with a {self.task} head, and a {task} head is wanted here")

    def _results(self, packed: Packed[np.ndarray]) -> Iterator[tuple[np.ndarray, list[np.ndarray]]]:
        """The windows of each rectangle, and what the model gives.

        Cores that each have a window of their own do not wait for each other after every product.
        """
        self.check(packed)
        lengths = np.asarray(packed.lengths)
        groups = group_by_length(lengths, self.rectangle)
        tokens = [int(lengths[windows].sum()) for windows in groups]
        if self.threads == 1 or max(tokens) * self.threads > sum(tokens):  # some cores would be idle for long
            for windows in groups:
                yield windows, self._run(self.session, packed, windows)
            return
        self._single = self._single or open_session(self.path, 1)
        run = partial(self._run, self._single, packed)
        with ThreadPoolExecutor(self.threads) as pool:  # onnxruntime lets go of Python's lock
            yield from zip(groups, pool.map(run, groups))

    def _run(self, session: Any, packed: Packed[np.ndarray], windows: np.ndarray) -> list[np.ndarray]:
        places = _places(packed, windows)
        given = {"input_ids": packed.ids[places].astype(np.int64)}
        if self.types:
            given["token_type_ids"] = packed.types[places].astype(np.int64)
        return session.run(None, given)  # type: ignore[no-any-return]

    def check(self, packed: Packed[np.ndarray]) -> None:
        """Refuse windows that the tables cannot embed, before any work is done."""
        if not packed.lengths:
            raise QuothError("the batch has no windows")
        if min(packed.lengths) < 1:
            raise QuothError(f"window {packed.lengths.index(0)} is empty; a window has at least one token")
        if packed.longest > self.longest:
            raise QuothError(
                f"window {packed.lengths.index(packed.longest)} has {packed.longest} tokens, but this model reads at "
                f"most {self.longest}"
            )
        for what, limit, values in (("token id", self.vocab, packed.ids), ("token type", self.types, packed.types)):
            worst = int(values.min()) if values.min() < 0 else int(values.max())
            if limit and not 0 <= worst < limit:
                raise QuothError(f"{what} {worst} is outside its table, which has {limit} entries")


def group_by_length(lengths: np.ndarray, budget: int) -> list[np.ndarray]:
    """Windows in groups of equal length, longest first, each group of at most `budget` tokens or of one window."""
    order = np.argsort(-lengths, kind="stable")
    groups: list[np.ndarray] = []
    for equal in np.split(order, np.flatnonzero(np.diff(lengths[order])) + 1):
        most = max(1, budget // int(lengths[equal[0]]))
        groups += [equal[low : low + most] for low in range(0, len(equal), most)]
    return groups


def usable_threads() -> int:
    """OMP_NUM_THREADS if it is set, else how many cores this process may use."""
    said = os.environ.get("OMP_NUM_THREADS", "")
    if said.isascii() and said.isdigit() and int(said[:4]) > 0:
        return min(int(said[:4]), 64)  # more than a machine has would only cost memory
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _places(packed: Packed[np.ndarray], windows: np.ndarray) -> np.ndarray:
    """Where the tokens of windows of equal length are in the packed batch: (windows, length)."""
    places: np.ndarray = packed.starts[windows].astype(np.int64)[:, None] + np.arange(packed.lengths[windows[0]])
    return places


def open_session(path: Path, threads: int) -> Any:
    """A session of onnxruntime on the CPU."""
    os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")  # it writes a device id to the user's cache folder else
    try:
        import onnxruntime  # here, since it takes long to import
    except ImportError:
        raise QuothError(f"{path}: to run it Quoth needs onnxruntime; pip install onnxruntime") from None
    if not path.is_file():
        raise QuothError(f"{path}: no such file; make it with `quoth export`")
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    options.inter_op_num_threads = 1
    # Threads that wait in a loop between two products take a sixth more CPU time and are no faster.
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    options.log_severity_level = 3  # errors; they are raised as well
    try:
        # its operator for Add and LayerNorm together is not vectorised: 350 µs where the two take 55
        slow = ["SkipLayerNormFusion"]
        return onnxruntime.InferenceSession(path, options, ["CPUExecutionProvider"], disabled_optimizers=slow)
    except Exception as error:  # onnxruntime raises a dozen kinds for a damaged file
        raise QuothError(f"{path}: not an ONNX file that can be run ({_first_line(error)})") from None


def _facts(session: Any, path: str | Path) -> Facts:
    """What the export wrote beside the graph."""
    stored = session.get_modelmeta().custom_metadata_map.get("quoth")
    if stored is None:
        raise QuothError(f"{path}: was not written by Quoth, so its inputs and outputs are unknown; use `quoth export`")
    table = parse_json(stored, f"{path}: metadata")
    if not isinstance(table, dict):
        raise QuothError(f"{path}: its metadata is {shown(table)}, a table is wanted; export the model again")
    known = {field.name for field in fields(Facts)}
    if missing := [key for key in known if key not in table]:
        raise QuothError(f"{path}: {min(missing)} is missing from its metadata; export the model again")
    facts = fill(Facts, {key: table[key] for key in known}, f"{path}: metadata")
    if "attention_mask" in {node.name for node in session.get_inputs()}:  # it was for padding
        raise QuothError(f"{path}: was exported by an older Quoth; export the model again")
    for name in ("longest", "vocab"):
        check_whole(f"{path}: {name} of its metadata", getattr(facts, name), least=1)
    return facts


def _first_line(error: Exception) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0]
