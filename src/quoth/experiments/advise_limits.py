"""The limits of `quoth advise`, and what candidates come to before they are trained.

- size: the bytes of an exported folder, which answers by itself: float32, or int8, or pruned and int8. The number of
  parameters says it, without training
- latency: one question with a window of median length, on untrained weights: medians of calls that take turns
- training: a few steps of each candidate, times the windows that its whole training has
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from statistics import median

import numpy as np
from accelerate import Accelerator

from quoth.encoder import Device
from quoth.errors import QuothError
from quoth.experiments.advise_candidates import Candidate
from quoth.hub import find_model
from quoth.prune.latency import median_seconds
from quoth.runtime.torch_runner import TorchRunner
from quoth.tasks import SpanTask
from quoth.train import build_model
from quoth.train.fine_tuning import FineTuning
from quoth.train.loop import Loop
from quoth.windows import Packed

AMOUNT = re.compile(r"\s*(\d+(?:\.\d+)?|\.\d+)\s*([A-Za-z]*)\s*")
SECONDS = {"ms": 1e-3, "s": 1.0, "sec": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0}
BYTES = {"b": 1.0, "kb": 1e3, "mb": 1e6, "gb": 1e9, "kib": 1024.0, "mib": 1024.0**2, "gib": 1024.0**3}
FLOAT32, INT8 = 4.0, 1.02  # bytes a parameter of an exported folder; of int8 measured on MiniLM-L12, whole and half
KEEP = 0.3  # the least part of a model that pruning is advised for
TIMED = 3  # steps that are timed, after those that warm up
FEW = 4  # windows of a timed step on a CPU


@dataclass(frozen=True)
class Limits:
    """What the user can afford: seconds of an answer, bytes, seconds of training. None: as much as there is."""

    latency: float | None = None
    size: float | None = None
    train: float | None = None


@dataclass(frozen=True)
class Costs:
    """What a candidate costs, by the names of `Limits`; form: how it fits the size: "float32", "int8" or "pruned".

    size: bytes in that form; keep: the part of the parameters that pruning leaves, else 1
    seconds_a_window: of training; None where it was not measured
    """

    size: float
    form: str
    keep: float = 1.0
    latency: float | None = None
    seconds_a_window: float | None = None
    train: float | None = None


def parse_seconds(text: str, option: str) -> float:
    """`20ms`, `1.5 s`, `10min`, `2h`."""
    return _amount(text, SECONDS, option, "a time such as 20ms, 1.5s, 10min or 2h")


def parse_bytes(text: str, option: str) -> float:
    """`30MB`, `500kB`, `1.5GB`, `32MiB`."""
    return _amount(text, BYTES, option, "a size such as 30MB or 1.5GB")


def _amount(text: str, units: Mapping[str, float], option: str, wanted: str) -> float:
    found = AMOUNT.fullmatch(text)
    unit = found[2].lower() if found else ""
    value = float(found[1]) * units[unit] if found and unit in units else 0.0
    if not 0 < value < float("inf"):
        raise QuothError(f"{option} {text}: {wanted} is wanted")
    return value


def sized(candidate: Candidate, limit: float | None) -> Costs:
    """In which form a candidate fits the size limit, the first that does; else the smallest."""
    rest = float(sum(path.stat().st_size for path in find_model(candidate.recipe.model).tokenizer))
    whole, small = (a * candidate.parameters + rest for a in (FLOAT32, INT8))
    if limit is None or whole <= limit:
        return Costs(whole, "float32")
    if small <= limit:
        return Costs(small, "int8")
    keep = max(KEEP, int(100 * (limit - rest) / (INT8 * candidate.parameters)) / 100)
    return Costs(INT8 * keep * candidate.parameters + rest, "pruned", keep)


def measure_latency(candidates: Sequence[Candidate], task: SpanTask, device: str | None) -> list[float]:
    """The seconds of one question for each candidate. Candidates with the same head and tuning share a measurement."""
    chosen = Device.choose(device)
    windows = task.examples.windows
    middle = int(np.argsort(windows.lengths, kind="stable")[len(windows) // 2])
    packed = windows.packed(np.array([middle]))
    keys = [repr((one.recipe.tuning, one.recipe.head)) for one in candidates]
    calls: dict[str, Callable[[], object]] = {}
    for key, candidate in zip(keys, candidates):
        if key not in calls:
            runner = TorchRunner(build_model(candidate.recipe), str(chosen.place))
            calls[key] = partial(_answer, runner, packed)
    seconds = dict(zip(calls, median_seconds(list(calls.values()), chosen)))
    return [seconds[key] for key in keys]


def _answer(runner: TorchRunner, packed: Packed[np.ndarray]) -> object:
    return runner(packed)


def measure_training(candidate: Candidate, task: SpanTask, accelerator: Accelerator) -> float:
    """The seconds of training a window: the median of a few steps. On a CPU of few windows, as time goes by tokens."""
    recipe = candidate.recipe
    on_cpu = accelerator.device.type == "cpu"
    settings = replace(recipe.optimisation, batch_size=FEW) if on_cpu else recipe.optimisation
    feed = task.feed(task.examples, accelerator.device, 0)
    objective = FineTuning(build_model(recipe), task, feed, settings, recipe.seed, accelerator)
    loop = Loop(objective, feed.lengths, settings, recipe.seed, accelerator, 10_000)
    for _ in range(1 if on_cpu else 12):  # by then the graphs of most sizes are captured
        loop.advance()
    loop.take_losses()
    times, before = [], loop.windows
    for _ in range(TIMED if on_cpu else 5 * TIMED):
        begin = time.perf_counter()
        loop.advance()
        loop.take_losses()  # waits for the device
        times.append(time.perf_counter() - begin)
    accelerator.free_memory()  # it keeps every model that it has prepared
    return median(times) * len(times) / (loop.windows - before)


def trained(costs: Costs, seconds_a_window: float, windows: float) -> Costs:
    """With the time of a whole training."""
    return replace(costs, seconds_a_window=seconds_a_window, train=seconds_a_window * windows)


def too_much(costs: Costs, limits: Limits) -> str | None:
    """Which limit a candidate breaks, in words; None if it keeps all that are known so far."""
    for option, value, limit, text in (
        ("--max-size", costs.size, limits.size, show_bytes),
        ("--max-latency", costs.latency, limits.latency, show_seconds),
        ("--max-train", costs.train, limits.train, show_seconds),
    ):
        if value is not None and limit is not None and value > limit:
            return f"{option} {text(limit)}: {text(value)}"
    return None


def if_pruned(costs: Costs, limits: Limits) -> str:
    """Why a candidate is left out that would have to be pruned, where another one fits as it is.

    What pruning costs is not known before it is done, so the scores of the two cannot be compared.
    """
    return f"--max-size {show_bytes(limits.size or 0.0)}: only if it is pruned to {100 * costs.keep:.0f} %"


def excess(costs: Costs, limits: Limits) -> float:
    """By what factor a candidate is above the limit that it breaks most."""
    pairs = ((costs.size, limits.size), (costs.latency, limits.latency), (costs.train, limits.train))
    return max((value / limit for value, limit in pairs if value is not None and limit is not None), default=0.0)


def show_seconds(seconds: float) -> str:
    """For people: ms, s, min or h."""
    for unit, size in (("h", 3600.0), ("min", 60.0), ("s", 1.0)):
        if seconds >= 2 * size or (unit == "s" and seconds >= size):
            return f"{seconds / size:.3g} {unit}"
    return f"{1e3 * seconds:.3g} ms"


def show_bytes(count: float) -> str:
    """For people: MB."""
    return f"{count / 1e6:.3g} MB"
