"""`Chain`: a head of steps, described by one line.

The heads of Jiang, Benge & King 2022, "BERTVision", and the layer attention of Silva 2020 are chains of a few steps:

    pool(learned) > linear                                   which states  →  steps  →  an end
    compress(386) > skip > linear
    last(4) > pool(average) > cnn(1xN, dropout=0) > linear
    (compress(386) + pool(learned) > compress(386)) > linear
    attend(dot)

`quoth.heads.line` has the grammar; each other step stands in a file that opens with its formula. Where the line does
not say which states it reads, `linear` alone reads the last layer, a line that ends in attend reads h₁ … h_L, and all
others read h₀ … h_L, h₀ being the embeddings.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from quoth.encoder.graph import Graph
from quoth.errors import QuothError
from quoth.heads import convolution, inception, layer_attention, pooling, xception  # noqa: F401  # they register steps
from quoth.heads.compress import Skip
from quoth.heads.graph import GraphHere, GraphValue, concat_values, stack_values, write_steps
from quoth.heads.head import SpanOutput, States, Task, register_head
from quoth.heads.line import SOURCES, Branches, Line, Word, parse, spell
from quoth.heads.step import STEPS, Compressed, Form, Here, Value, draw, now, pieces, register_step, side_by_side, stack
from quoth.windows import Packed

ENDS = ("linear", "attend")


class Linear(nn.Module):
    """`linear`, the end: a dense layer from all features to the logits."""

    def __init__(self, form: Form) -> None:
        super().__init__()
        self.form = replace(form, layers=None, width=form.outputs)
        self.weight = draw(torch.empty(form.outputs, form.flat))
        self.bias = nn.Parameter(torch.zeros(form.outputs))

    def forward(self, x: Value, here: Here) -> Tensor:
        """(layers, T, f) or (T, f), or pieces of that → (T, outputs)."""
        parts = pieces(x)
        widths = [part.features if isinstance(part, Compressed) else part[..., 0, :].numel() for part in parts]
        logits: Tensor = self.bias
        for part, weight in zip(parts, self.weight.split(widths, 1)):
            if isinstance(part, Compressed):
                logits = logits + part.linear(weight)
            else:
                logits = logits + F.linear(side_by_side(part), weight)
        return logits

    def to_onnx(self, g: Graph, x: GraphValue, here: GraphHere) -> GraphValue:
        """(layers, T, f) or (T, f) → (T, outputs)."""
        return GraphValue(g.linear(concat_values(g, x).name, self.weight, self.bias), None, len(self.bias))


class Parallel(nn.Module):
    """Branches in parentheses: what each makes of the same input, concatenated."""

    def __init__(self, form: Form, branches: Branches) -> None:
        super().__init__()
        self.branches = nn.ModuleList()
        width = 0
        for line in branches.lines:
            steps, made = build(line, form)
            self.branches.append(steps)
            width += made.flat
        self.form = replace(form, layers=None, width=width)

    def forward(self, x: Tensor, here: Here) -> Value:
        """Any form → (T, features), in pieces."""
        made = (run(branch, x, here) for branch in self.branches)  # type: ignore[arg-type]
        return tuple(piece for value in made for piece in pieces(value))

    def to_onnx(self, g: Graph, x: GraphValue, here: GraphHere) -> GraphValue:
        """Any form → (T, features)."""
        return concat_values(g, *(write_steps(g, branch, x, here) for branch in self.branches))  # type: ignore[arg-type]


register_step("linear", {}, Linear)


@register_head
class Chain(nn.Module):
    """A head that a line describes, for spans, or with `labels` for classes.

    With `pooled` the pooler's output is one more layer, the last.
    """

    kind: ClassVar[str] = "chain"

    def __init__(self, hidden: int, layers: int, line: str, labels: int | None = None, *, pooled: bool = False) -> None:
        super().__init__()
        if labels is not None and labels < 1:
            raise QuothError(f"head: labels must be a whole number from 1, not {labels!r}")
        if pooled and labels is None:
            raise QuothError("head: pooled is for classes only; give labels with it")
        self.task: Task = "span" if labels is None else "class"
        self.pooled = pooled
        self.labels = labels
        source, steps = _split(parse(line))
        default = _default(steps, layers)
        wanted = _layers(source, layers) if source else default
        # The last state is read if the line wants it, and if it does not, for skip and for the pooler.
        extra = (layers,) if layers not in wanted and (pooled or _has_skip(steps)) else ()
        self.reads = (*wanted, *extra)
        self.line = spell(steps if wanted == default or source is None else (source, *steps))
        self._picked = (*range(len(wanted)), *((len(self.reads),) if pooled else ()))
        count = len(self._picked)
        self._hidden = hidden
        form = Form(self.task, hidden, labels or 2, count if count > 1 else None, hidden)
        self.steps, _ = build(steps, form)

    @property
    def first_steps(self) -> tuple[tuple[int, ...], list[Any]]:
        """The layers that they get, and the steps that get them: one, or the first of each branch."""
        return self.reads[: len(self._picked) - self.pooled], list(_first(self.steps))

    def forward(
        self, states: States, packed: Packed[Tensor] | None = None, given: Mapping[Any, Tensor] | None = None
    ) -> SpanOutput | Tensor:
        """Spans: (T, h) for each layer in `reads` → start (T,), end (T,). Classes: (n, h) for each → (n, labels).

        states may be one tensor of (layers, T, h) as well, which spares those who run many heads a copy for each.
        given: what the first steps want to know of the states, where that is computed already (`quoth.heads.shared`)
        """
        wanted = len(self.reads) + self.pooled
        if len(states) != wanted:
            raise QuothError(f"head: {self.line} reads {wanted} states, not {len(states)}")
        logits = now(run(self.steps, _pick(states, self._picked), Here(states[-1], packed, given or {})))
        return logits if self.task == "class" else SpanOutput(*logits.unbind(-1))

    def to_json(self) -> dict[str, Any]:
        """What a model folder says of this head; see `build_head`."""
        classes = {} if self.labels is None else {"labels": self.labels, "pooled": self.pooled}
        return {"kind": "chain", "line": self.line, **classes}

    def to_onnx(self, g: Graph, states: Sequence[str], size: str) -> str:
        """(T, h) for each layer in `reads`, for classes then the pooler's → (T, outputs)."""
        picked = stack_values(g, [states[number] for number in self._picked], self._hidden)
        return write_steps(g, self.steps, picked, GraphHere(GraphValue(states[-1], None, self._hidden), size)).name


def build(line: Line, form: Form) -> tuple[nn.ModuleList, Form]:
    """The steps of a line, and the form of what they make."""
    steps = nn.ModuleList()
    for step in line:
        made: Any = Parallel(form, step) if isinstance(step, Branches) else STEPS[step.name](form, **step.values)
        steps.append(made)
        form = made.form
    return steps, form


def run(steps: nn.ModuleList, x: Value, here: Here) -> Value:
    """One step after the other; these two take what comes as it is, others one tensor."""
    for step in steps:
        x = step(x if isinstance(step, Linear | Skip) else now(x), here)
    return x


def _first(steps: nn.ModuleList) -> Iterator[nn.Module]:
    """The steps that get the states."""
    if isinstance(steps[0], Parallel):
        for branch in steps[0].branches:
            yield from _first(branch)  # type: ignore[arg-type]
    else:
        yield steps[0]


def _pick(states: States, picked: tuple[int, ...]) -> Tensor:
    """The states of these numbers: (T, h) of one, (layers, T, h) of several."""
    if len(picked) == 1:
        return states[picked[0]]
    if isinstance(states, Tensor) and picked[-1] - picked[0] == len(picked) - 1:
        return states[picked[0] : picked[-1] + 1]
    return stack([states[number] for number in picked])


def _split(line: Line) -> tuple[Word | None, Line]:
    """Which states, if the line says so, and the steps; every word where it may stand."""
    first = line[0]
    source = first if isinstance(first, Word) and first.name in SOURCES else None
    steps = line[1:] if source else line
    end = steps[-1] if steps else first
    if isinstance(end, Branches) or end.name not in ENDS:
        raise QuothError(f"head: a line ends in linear or attend(…), not in {spell((end,))}")
    _check_inner(steps[:-1])
    return source, steps


def _check_inner(line: Line) -> None:
    for step in line:
        if isinstance(step, Branches):
            for branch in step.lines:
                _check_inner(branch)
        elif step.name in SOURCES:
            raise QuothError(f"head: {spell((step,))} says which states are read and must stand first in the line")
        elif step.name in ENDS:
            raise QuothError(f"head: {spell((step,))} makes the logits and must stand last in the line")


def _default(steps: Line, layers: int) -> tuple[int, ...]:
    """The states that are read where the line does not say so."""
    end = steps[-1]
    assert isinstance(end, Word)
    if end.name == "attend":
        return tuple(range(1, layers + 1))
    return (layers,) if len(steps) == 1 else tuple(range(layers + 1))


def _layers(source: Word, layers: int) -> tuple[int, ...]:
    """The numbers of the states that a line names."""
    if source.name == "layers":
        return tuple(range(layers + 1))
    number: int = source.values["number" if source.name == "layer" else "count"]
    if number > layers + (source.name == "last"):
        raise QuothError(f"head: {spell((source,))}: this encoder has the states 0 (embeddings) to {layers}")
    return (number,) if source.name == "layer" else tuple(range(layers + 1 - number, layers + 1))


def _has_skip(line: Line) -> bool:
    return any(any(map(_has_skip, step.lines)) if isinstance(step, Branches) else step.name == "skip" for step in line)
