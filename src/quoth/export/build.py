"""From a model folder to a graph: what is exported is loaded by torch, and its encoders and heads are written down."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx

from quoth.encoder.graph import Foldable, Graph, write
from quoth.errors import QuothError
from quoth.export.encoder import IDS, TYPES, encode
from quoth.export.graph import onnx_model
from quoth.export.verify import Compute
from quoth.hub import ModelFiles, find_model
from quoth.model import Model, load
from quoth.runtime.ensemble import Body, EnsembleRunner, load_ensemble


@dataclass(frozen=True, eq=False)
class Subject:
    """What is exported: encoders with the heads on them, and what torch makes of a batch.

    how: an ensemble's logits are combined; model: the one, None for an ensemble
    """

    files: ModelFiles
    bodies: Sequence[Body]
    how: str | None
    model: Model | None
    parameters: int
    expected: Compute

    @property
    def task(self) -> str:
        """Of all heads."""
        return "span" if self.model is None else str(self.model.head.task)


def build(subject: Subject, outliers: Sequence[Sequence[np.ndarray]] = ()) -> onnx.ModelProto:
    """The graph of a subject, in float32. outliers: units of each encoder's layers, if it is to be quantised."""
    g = Graph()
    types = any(body.encoder.shape.types for body in subject.bodies)
    size = g("Shape", IDS)
    logits: dict[int, str] = {}
    for place, body in enumerate(subject.bodies):
        states = encode(g, body.encoder, size, body.layers, outliers[place] if outliers else ())
        logits |= _heads(g, subject, body, states, size)
    if subject.task == "class":
        g.output("logits", logits[0])
        shapes: dict[str, list[str | int]] = {"logits": ["batch", "labels"]}
    else:
        _spans(g, [logits[number] for number in range(len(logits))], size)
        shapes = {name: [len(logits), "batch", "length"] for name in ("start", "end")}
    model = onnx_model(g, (IDS, TYPES) if types else (IDS,), shapes, _facts(subject))
    onnx.checker.check_model(model)
    return model


def _heads(g: Graph, subject: Subject, body: Body, states: dict[int, str], size: str) -> dict[int, str]:
    """The logits of each head on one encoder, by its number: (T, 2) or (B, labels). size: (2,), B and L."""
    if subject.task == "span":
        rows = {layer: g.reshape(state, -1, body.encoder.shape.hidden) for layer, state in states.items()}
        return {
            number: _logits(g, head, [rows[layer] for layer in head.reads], size) for number, head in body.heads.items()
        }
    assert subject.model is not None
    head, first = subject.model.head, g.constant(0)
    found = [g("Gather", states[layer], first, axis=1) for layer in head.reads]
    if head.pooled and subject.model.pooler is not None:
        found.append(g("Tanh", g.dense(found[-1], subject.model.pooler)))
    batch = g("Slice", size, g.integers(0), g.integers(1))
    return {0: _logits(g, head, found, g("Concat", batch, g.integers(1), axis=0))}


def _logits(g: Graph, head: Any, states: Sequence[str], size: str) -> str:
    """From the states that a head reads, (T, h) each, for classes the pooler's output last, to (T, outputs)."""
    return str(write(f"head of kind {head.kind!r}", head, g, states, size))


def _spans(g: Graph, logits: Sequence[str], size: str) -> None:
    """The outputs: (T, 2) of each member → start and end, (members, B, L) each."""
    members = g("Concat", *(g("Unsqueeze", name, g.integers(0)) for name in logits), axis=0)
    both = g("Transpose", g.reshape(members, len(logits), size, 2), perm=[3, 0, 1, 2])
    for number, name in enumerate(("start", "end")):
        g.output(name, g("Gather", both, g.constant(number), axis=0))


def _facts(subject: Subject) -> dict[str, Any]:
    """What the runner has to know."""
    encoders = [body.encoder for body in subject.bodies]
    return {
        "task": subject.task,
        "how": subject.how,
        "longest": min(encoder.longest_window for encoder in encoders),
        "vocab": min(encoder.shape.vocab for encoder in encoders),
        "types": min((encoder.shape.types for encoder in encoders if encoder.shape.types), default=0),
        "parameters": subject.parameters,
        "shapes": [encoder.shape.to_json() for encoder in encoders],
    }


def open_subject(source: str | Path) -> Subject:
    """Load what is to be exported, on the host and in float32."""
    files = find_model(source)
    if files.members:
        runner = load_ensemble(source, "cpu", "fp32")
        modules = [module for body in runner.bodies for module in (body.encoder, *body.heads.values())]
        return Subject(files, runner.bodies, runner.how, None, _count(*modules), runner.member_logits)
    model = load(source)
    if model.head is None:
        raise QuothError(f"{source}: has no head, so there is nothing to export; train one first")
    if model.head.task not in ("span", "class"):
        raise QuothError(f"{source}: has a head for {model.head.task!r}; heads for spans and classes can be exported")
    if model.head.task == "class":
        body = Body(model.encoder, {0: model.head}, model.head.reads)
        return Subject(files, [body], None, model, _count(model), lambda packed: model(packed.to("cpu")).numpy())
    runner = EnsembleRunner([model], "sum", "cpu", "fp32")
    return Subject(files, runner.bodies, None, model, _count(model.encoder, model.head), runner.member_logits)


def _count(*modules: Any) -> int:
    """Parameters, without those that are folded into others."""
    parts = [part for module in modules for part in module.modules()]
    plain = [part.plain() if isinstance(part, Foldable) else part for part in parts]
    return sum(value.numel() for part in plain for value in part.parameters(recurse=False))
