"""`Latency`: what a shape costs in seconds on the machine at hand.

The two halves of a layer are timed at a grid of sizes up to those of the model, and a sum of terms that grow with the
sizes is fitted to the table, all coefficients ≥ 0, so that the cost never falls when a size grows:

    attention(h, a, k, v) = c₀ + c₁·h + c₂·a + c₃·h·a·k + c₄·h·a·v + c₅·a·k + c₆·a·v
    ffn(h, f)             = d₀ + d₁·h + d₂·f + d₃·h·f

The length of the windows is fixed, so attention's own products are in c₅ and c₆. Embeddings are left out: a look-up.
"""

from __future__ import annotations

import itertools
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np
import torch

from quoth.config import fill
from quoth.encoder import Device, LayerShape, Shape, Style
from quoth.encoder.attention import make_plan
from quoth.encoder.encoder import Layer
from quoth.encoder.steps import linear_activate, linear_add_norm
from quoth.errors import QuothError
from quoth.windows import pack

PARTS = (1.0, 0.75, 0.5, 0.25)  # of the sizes of the model, at which blocks are timed
ATTENTION, FFN = 7, 4  # coefficients
PASSES = 5  # over the whole table, so that a moment of other load does not fall on one block alone


@dataclass(frozen=True)
class Latency:
    """Seconds of a forward pass over `tokens` tokens in windows of `length`.

    error: of the fit, the median relative one; table: what was timed, (block, sizes, seconds)
    """

    device: str
    tokens: int
    length: int
    attention: tuple[float, ...]
    ffn: tuple[float, ...]
    error: float
    table: tuple[tuple[str, tuple[int, ...], float], ...] = ()

    def __call__(self, shape: Shape) -> float:
        """The seconds of all layers."""
        h, seconds = shape.hidden, 0.0
        for layer in shape.layers:
            attention = _attention_terms(h, layer.heads, layer.key, layer.value)
            seconds += _dot(self.attention, attention) + _dot(self.ffn, _ffn_terms(h, layer.ffn))
        return seconds

    def to_json(self) -> dict[str, Any]:
        """As plain JSON, the table of timings too."""
        return asdict(self)

    @classmethod
    def from_json(cls, value: Any, source: str = "latency") -> Latency:
        """What `to_json` gave. The table is for people: the cost is made of the coefficients."""
        kept = {key: inner for key, inner in value.items() if key != "table"} if isinstance(value, Mapping) else value
        found = fill(cls, kept, source)
        for name, count in (("attention", ATTENTION), ("ffn", FFN)):
            if len(getattr(found, name)) != count or min(getattr(found, name)) < 0:
                raise QuothError(f"{source}: {name} must be {count} numbers, none negative; remove it to measure anew")
        try:
            rows = tuple((str(kind), tuple(sizes), float(seconds)) for kind, sizes, seconds in value.get("table", []))
        except (TypeError, ValueError, OverflowError):
            raise QuothError(
                f"{source}: table must be rows of block, sizes, seconds; remove it to measure anew"
            ) from None
        return replace(found, table=rows)


def measure_latency(
    shape: Shape, device: str | None = None, *, tokens: int | None = None, length: int = 384, style: Style | None = None
) -> Latency:
    """Time blocks of these sizes and smaller ones on a device: some seconds on a CPU.

    tokens: of a batch; by default 8 windows on a CPU, 128 on a GPU
    """
    try:
        chosen = Device.choose(device)
    except QuothError as error:
        raise QuothError(f"latency cannot be measured: {error}") from None
    windows = max(1, round(tokens / length)) if tokens else (128 if chosen.is_cuda else 8)
    timer = _Timer(chosen, windows, length, style or Style())
    largest = _largest(shape)
    points: list[tuple[str, tuple[int, ...]]] = [("attention", point) for point in _grid(largest[:4])]
    points += [("ffn", point) for point in _grid((largest[0], largest[4]))]
    seconds = median_seconds([timer.block(kind, point) for kind, point in points], chosen)
    rows = [(kind, point, value) for (kind, point), value in zip(points, seconds)]
    attention = [(point, value) for kind, point, value in rows if kind == "attention"]
    ffn = [(point, value) for kind, point, value in rows if kind == "ffn"]
    c, c_errors = _fit([_attention_terms(*point) for point, _ in attention], [value for _, value in attention])
    d, d_errors = _fit([_ffn_terms(*point) for point, _ in ffn], [value for _, value in ffn])
    return Latency(
        str(chosen.place), windows * length, length, c, d, statistics.median(c_errors + d_errors), tuple(rows)
    )


def _largest(shape: Shape) -> tuple[int, int, int, int, int]:
    """The largest h, a, k, v, f."""
    layers = shape.layers
    a, k, v, f = (max(getattr(layer, name) for layer in layers) for name in ("heads", "key", "value", "ffn"))
    return shape.hidden, a, k, v, f


def _grid(sizes: tuple[int, ...]) -> list[tuple[int, ...]]:
    """Each size reduced alone, and all of them together."""
    found = {sizes}
    for part in PARTS[1:]:
        small = tuple(max(1, round(part * size)) for size in sizes)
        found.add(small)
        found |= {(*sizes[:i], small[i], *sizes[i + 1 :]) for i in range(len(sizes))}
    return sorted(found)


class _Timer:
    def __init__(self, device: Device, windows: int, length: int, style: Style) -> None:
        self.device, self.style = device, style
        self.packed = pack([np.zeros(length, np.int32)] * windows).to(device.place)
        self.dtype = torch.bfloat16 if device.half else torch.float32

    def block(self, kind: str, point: tuple[int, ...]) -> Callable[[], object]:
        """A half of a layer of these sizes, ready to run."""
        hidden = point[0]
        a, k, v, f = (*point[1:], 1) if kind == "attention" else (1, 1, 1, point[1])
        shape = LayerShape(a, k, v, f)
        layer = Layer(hidden, shape, self.style).to(self.device.place).eval()
        plan = make_plan(self.packed, self.dtype, max(shape.key, shape.value))
        x = torch.randn(self.packed.tokens, hidden, device=self.device.place, dtype=self.dtype)
        if kind == "attention":
            output, norm = layer.attention.output, layer.attention_norm
            return lambda: linear_add_norm(output, layer.attention(x, plan), x, norm, 0.0)
        activation = self.style.activation
        return lambda: linear_add_norm(layer.down, linear_activate(layer.up, x, activation), x, layer.ffn_norm, 0.0)


@torch.inference_mode()
def median_seconds(calls: Sequence[Callable[[], object]], device: Device) -> list[float]:
    """The median seconds of each call, in passes over all of them; the first pass warms up."""
    runs: list[list[float]] = [[] for _ in calls]
    for number in range(PASSES + 1):
        for call, kept in zip(calls, runs):
            with device.autocast():
                seconds = _once(call, device)
            if number:
                kept.append(seconds)
    return [statistics.median(kept) for kept in runs]


def _once(call: Callable[[], object], device: Device) -> float:
    repeat = 10 if device.is_cuda else 1  # so that launching is a part of the time, as in a model
    _wait(device)
    begin = time.perf_counter()
    for _ in range(repeat):
        call()
    _wait(device)
    return (time.perf_counter() - begin) / repeat


def _wait(device: Device) -> None:
    if device.is_cuda:
        torch.cuda.synchronize(device.place)


def _attention_terms(h: int, a: int, k: int, v: int) -> tuple[float, ...]:
    return (1.0, h, a, h * a * k, h * a * v, a * k, a * v)


def _ffn_terms(h: int, f: int) -> tuple[float, ...]:
    return (1.0, h, f, h * f)


def _dot(coefficients: Sequence[float], terms: Sequence[float]) -> float:
    return sum(c * term for c, term in zip(coefficients, terms))


def _fit(terms: Sequence[Sequence[float]], seconds: Sequence[float]) -> tuple[tuple[float, ...], list[float]]:
    """Coefficients ≥ 0 with the least squared relative error, and the relative error of each row.

    The best of all subsets of terms whose plain least squares is not negative: with few terms, as sure as it is simple.
    """
    x, y = np.asarray(terms, float), np.asarray(seconds, float)
    scaled = x / y[:, None]  # relative errors: |x·c/y − 1|
    size = np.abs(scaled).max(0)
    best, found = np.inf, np.zeros(x.shape[1])
    for count in range(1, x.shape[1] + 1):
        for chosen in itertools.combinations(range(x.shape[1]), count):
            part = scaled[:, chosen] / size[list(chosen)]
            solution = np.linalg.lstsq(part, np.ones(len(y)), rcond=None)[0]
            rest = float(((part @ solution - 1) ** 2).sum())
            if (solution >= 0).all() and rest < best:
                best, found = rest, np.zeros(x.shape[1])
                found[list(chosen)] = solution / size[list(chosen)]
    return tuple(found.tolist()), np.abs(scaled @ found - 1).tolist()
