"""`laconic inspect`: the sizes of an encoder, its parameters, operations and bytes."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from laconic.encoder import LayerShape, Shape, open_checkpoint, read_shape
from laconic.encoder.families import family_of

BYTES = {"F64": 8, "I64": 8, "F32": 4, "F16": 2, "BF16": 2, "I8": 1, "U8": 1}


def inspect(
    model: Annotated[str, typer.Argument(metavar="MODEL|SHAPE.json", help="A folder, a hub id, or a shape file.")],
    length: Annotated[int, typer.Option(help="Window length for the operations count.", min=1)] = 384,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Show an encoder's sizes per layer, its parameters by part, FLOPs and bytes. No weight is read.

    A shape file counts embeddings and layers only; a model counts its pooler and head too.
    """
    path = Path(model)
    facts = _of_shape_file(path) if path.is_file() else _of_model(model)
    shape: Shape = facts.pop("shape")
    facts["flops"] = {"length": length, "per_token": shape.flops(length), "per_window": length * shape.flops(length)}
    facts["layers"] = [asdict(layer) for layer in shape.layers]
    if as_json:
        print(json.dumps(facts, indent=2))
    else:
        _show(model, facts, shape.layers)


def _of_shape_file(path: Path) -> dict[str, Any]:
    file = read_shape(path)
    family_of(file.family, str(path))
    return _facts(file.family, file.shape, file.shape.parameters(), stored=None)


def _of_model(model: str) -> dict[str, Any]:
    checkpoint = open_checkpoint(model)
    parts = checkpoint.shape.parameters()
    for part in ("pooler", "head"):
        size = sum(tensor.size for name, tensor in checkpoint.tensors.items() if name.startswith(f"{part}."))
        if size:
            parts[part] = size
    stored = sum(tensor.size * BYTES.get(tensor.dtype, 4) for tensor in checkpoint.tensors.values())
    facts = _facts(checkpoint.family.name, checkpoint.shape, parts, stored)
    return {**facts, "head": checkpoint.head, "unused": list(checkpoint.unused)}


def _facts(family: str, shape: Shape, parts: dict[str, int], stored: int | None) -> dict[str, Any]:
    total = sum(parts.values())
    return {
        "family": family,
        "parameters": total,
        "parts": parts,
        "vocab": shape.vocab,
        "positions": shape.positions,
        "types": shape.types,
        "embedding": shape.embedding,
        "hidden": shape.hidden,
        "tied": shape.tied,
        "bytes": {"stored": stored, "fp32": 4 * total, "fp16": 2 * total, "int8": total},
        "shape": shape,
    }


def _show(model: str, facts: dict[str, Any], layers: tuple[LayerShape, ...]) -> None:
    console = Console()
    tied = ", tied: one layer's weights for all" if facts["tied"] else ""
    console.print(
        f"[bold]{escape(model)}[/bold]: {facts['family']}, hidden {facts['hidden']}, embedding {facts['embedding']}, "
        f"vocabulary {facts['vocab']:,}, {facts['positions']} positions, {facts['types']} types{tied}",
        highlight=False,
    )
    table = Table("layer", "heads", "key", "value", "ffn", "parameters", "FLOPs a token")
    for column in table.columns:
        column.justify = "right"
    hidden, length = facts["hidden"], facts["flops"]["length"]
    for name, layer in _runs(layers):
        size = layer.attention_parameters(hidden) + layer.ffn_parameters(hidden) + 4 * hidden
        numbers = (layer.heads, layer.key, layer.value, layer.ffn, size, layer.flops(hidden, length))
        table.add_row(name, *(f"{number:,}" for number in numbers))
    console.print(table)
    for part, size in facts["parts"].items():
        if size:
            console.print(f"  {part:12s} {size:>13,}", highlight=False)
    console.print(f"  [bold]{'parameters':12s} {facts['parameters']:>13,}[/bold]", highlight=False)
    amounts = ", ".join(f"{kind} {size / 1e6:,.1f} MB" for kind, size in facts["bytes"].items() if size)
    console.print(f"  bytes: {amounts}", highlight=False)
    console.print(f"  {facts['flops']['per_window'] / 1e9:,.2f} GFLOPs a window of {length} tokens", highlight=False)
    if facts.get("unused"):
        console.print(f"  not used by Laconic: {', '.join(facts['unused'][:4])}" + (" …" * (len(facts["unused"]) > 4)))


def _runs(layers: tuple[LayerShape, ...]) -> list[tuple[str, LayerShape]]:
    """Neighbouring layers of the same sizes as one row: ("1–12", shape)."""
    rows: list[tuple[int, int, LayerShape]] = []
    for number, layer in enumerate(layers, start=1):
        if rows and rows[-1][2] == layer:
            rows[-1] = (rows[-1][0], number, layer)
        else:
            rows.append((number, number, layer))
    return [(f"{first}–{last}" if last > first else str(first), layer) for first, last, layer in rows]
