"""`quoth inspect`: the sizes of an encoder, an exported model or an ensemble, parameters, operations, bytes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from itertools import groupby
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from quoth.answer.abstention import KEY, stored_abstention
from quoth.answer.confidence import KEY as CONFIDENCE
from quoth.answer.confidence import stored_confidence
from quoth.cli.common import AsJson, figures_table, output
from quoth.cli.screen import console
from quoth.embedded import NAME, is_embedded
from quoth.encoder import LayerShape, Shape, read_shape
from quoth.encoder.families import family_of
from quoth.errors import QuothError
from quoth.files import read_object
from quoth.hub import ONNX, ModelFiles, find_model
from quoth.model import Checkpoint, open_checkpoint
from quoth.model.checkpoint import Tensor
from quoth.report.plots import plot_shape
from quoth.runtime.members import Ensemble, open_ensemble
from quoth.runtime.onnx_runner import OnnxRunner

BYTES = {"F64": 8, "I64": 8, "F32": 4, "F16": 2, "BF16": 2, "I8": 1, "U8": 1}


def inspect(
    model: Annotated[
        str,
        typer.Argument(
            metavar="[MODEL|SHAPE.json]", help="The model folder, hub id or shape file; by default the embedded reader."
        ),
    ] = NAME,
    length: Annotated[int, typer.Option(help="Count operations for windows of this many tokens.", min=1)] = 384,
    plot: Annotated[Path | None, typer.Option(help="Plot the sizes of each layer into this .svg file.")] = None,
    as_json: AsJson = False,
) -> None:
    """Show the sizes of each layer, parameters, operations, bytes and no-answer threshold, without torch.

    For a shape file this counts embeddings and layers only; for a model also pooler, head, adapters and LoRA. For an
    ensemble it lists the members and counts an encoder that several members share once.
    """
    files = None if Path(model).is_file() and not is_embedded(model) else find_model(model)
    if files and files.members:
        if plot is not None:
            raise QuothError(f"{model}: is an ensemble; --plot draws one model")
        ensemble = open_ensemble(model)
        found = _of_ensemble(ensemble, length)
        output(found, as_json, lambda: _show_ensemble(ensemble.files.source, found))
        return
    facts = _of_model(model, files) if files else _of_shape_file(Path(model))
    shape: Shape = facts.pop("shape")
    if plot is not None:
        plot_shape(model, shape, plot)
    flops = shape.flops(length) + facts.pop("inserted_flops", 0)
    facts["flops"] = {"length": length, "per_token": flops, "per_window": length * flops}
    facts["layers"] = [asdict(layer) for layer in shape.layers]
    output(facts, as_json, lambda: _show(model, facts, shape.layers))


def _of_shape_file(path: Path) -> dict[str, Any]:
    file = read_shape(path)
    family_of(file.family, str(path))
    return _facts(file.family, file.shape, file.shape.parameters(), stored=None)


def _of_model(model: str, files: ModelFiles) -> dict[str, Any]:
    facts = _of_exported(files) if files.weights[0].name == ONNX else _of_checkpoint(open_checkpoint(model))
    kept = stored_abstention(files)
    confidence = stored_confidence(files)
    return {
        **facts,
        KEY: kept.to_json() if kept else None,
        CONFIDENCE: confidence.to_json() if confidence else None,
    }


def _of_exported(files: ModelFiles) -> dict[str, Any]:
    """Of an ONNX file; `others` are the parameters that its shape does not count: of head, pooler, adapters."""
    total = OnnxRunner(files.weights[0]).parameters
    value = read_object(files.description)
    if "heads" in value:
        raise QuothError(f"{files.source}: is an exported ensemble; inspect the ensemble that it was made of")
    for key in ("family", "shape"):
        if key not in value:
            raise QuothError(f"{files.description}: {key} is missing")
    shape = Shape.from_json(value["shape"], f"{files.description}: shape")
    parts = {**shape.parameters(), "others": total - shape.total()}
    facts = _facts(value["family"], shape, parts, sum(path.stat().st_size for path in files.weights))
    return {**facts, "head": value.get("head"), "exported": value.get("exported")}


def _of_checkpoint(checkpoint: Checkpoint) -> dict[str, Any]:
    parts = checkpoint.shape.parameters()
    if checkpoint.pooler:
        parts["pooler"] = (checkpoint.shape.hidden + 1) * checkpoint.shape.hidden
    if checkpoint.head:
        parts["head"] = sum(tensor.size for name, tensor in checkpoint.tensors.items() if name.startswith("head."))
    inserted = checkpoint.inserted()
    parts.update({kind: sum(tensor.size for tensor in tensors) for kind, tensors in inserted.items()})
    return {
        **_facts(checkpoint.family.name, checkpoint.shape, parts, _stored([checkpoint])),
        "head": checkpoint.head,
        "tuning": checkpoint.tuning,
        "base": _base(checkpoint),
        "unused": list(checkpoint.unused),
        "inserted_flops": _inserted_flops(checkpoint.shape, inserted),
    }


def _stored(checkpoints: Sequence[Checkpoint]) -> int:
    """Bytes of all tensors, those of a base too; one that several checkpoints stand on counts once."""
    tensors = {tensor for checkpoint in checkpoints for tensor in checkpoint.tensors.values()}
    return sum(tensor.size * BYTES.get(tensor.dtype, 4) for tensor in tensors)


def _of_ensemble(ensemble: Ensemble, length: int) -> dict[str, Any]:
    members, encoders, heads, flops = [], {}, 0, {}
    for number, member in zip(ensemble.encoders, ensemble.members):
        facts = _of_checkpoint(member)
        parts = facts["parts"]
        heads += parts.get("head", 0)
        encoders[number] = sum(size for part, size in parts.items() if part not in ("head", "pooler"))
        flops[number] = member.shape.flops(length) + facts["inserted_flops"]
        kept = {key: facts[key] for key in ("family", "parameters", "head", "tuning", "base")}
        members.append({"source": member.files.source, "encoder": number, **kept})
    total, per_token = sum(encoders.values()) + heads, sum(flops.values())
    return {
        "ensemble": {"how": ensemble.how, "encoders": len(encoders)},
        "members": members,
        "parameters": total,
        "parts": {"encoders": sum(encoders.values()), "heads": heads},
        "bytes": _bytes(_stored(ensemble.members), total),
        "flops": {"length": length, "per_token": per_token, "per_window": length * per_token},
    }


def _base(checkpoint: Checkpoint) -> dict[str, Any] | None:
    """Of a delta: its base, whether that is there, and how many parameters and bytes the delta itself holds."""
    if checkpoint.base is None:
        return None
    own = checkpoint.own.values()
    return {
        "source": checkpoint.base.source,
        "sha256": checkpoint.base.sha256,
        "found": checkpoint.below is not None,
        "delta": {
            "parameters": sum(tensor.size for tensor in own),
            "bytes": sum(path.stat().st_size for path in checkpoint.files.weights),
        },
    }


def _inserted_flops(shape: Shape, inserted: dict[str, list[Tensor]]) -> int:
    """Operations a token of adapters and LoRA: 2 a weight of each matrix, each time that its layer is run."""
    weights = sum(tensor.size for tensors in inserted.values() for tensor in tensors if len(tensor.shape) == 2)
    return 2 * weights * len(shape.layers) // len(shape.stored_layers)


def _facts(family: str, shape: Shape, parts: dict[str, int], stored: int | None) -> dict[str, Any]:
    total = sum(parts.values())
    return {
        "family": family,
        "parameters": total,
        "parts": parts,
        **{key: getattr(shape, key) for key in ("vocab", "positions", "types", "embedding", "hidden", "tied")},
        **({"relative_buckets": shape.relative_buckets} if shape.relative_buckets else {}),
        "bytes": _bytes(stored, total),
        "shape": shape,
    }


def _bytes(stored: int | None, parameters: int) -> dict[str, int | None]:
    return {"stored": stored, "fp32": 4 * parameters, "fp16": 2 * parameters, "int8": parameters}


def _show(model: str, facts: dict[str, Any], layers: tuple[LayerShape, ...]) -> None:
    screen = console(markup=True)
    tied = ", tied: one layer's weights for all" if facts["tied"] else ""
    relative = f", relative positions in {facts['relative_buckets']} buckets" if "relative_buckets" in facts else ""
    screen.print(
        f"[bold]{escape(model)}[/bold]: {facts['family']}, hidden {facts['hidden']}, embedding {facts['embedding']}, "
        f"vocabulary {facts['vocab']:,}, {facts['positions']} positions, {facts['types']} types{relative}{tied}"
    )
    table = figures_table("layer", "heads", "key", "value", "ffn", "parameters", "FLOPs a token", left=0)
    hidden, length = facts["hidden"], facts["flops"]["length"]
    for name, layer in _runs(layers):
        size = layer.attention_parameters(hidden) + layer.ffn_parameters(hidden) + 4 * hidden
        numbers = (layer.heads, layer.key, layer.value, layer.ffn, size, layer.flops(hidden, length))
        table.add_row(name, *(f"{number:,}" for number in numbers))
    screen.print(table)
    _show_amounts(screen, facts)
    _show_tuning(screen, facts)
    _show_abstention(screen, facts)
    if facts.get("unused"):
        screen.print(f"  not used by Quoth: {', '.join(facts['unused'][:4])}" + (" …" * (len(facts["unused"]) > 4)))


def _show_ensemble(source: str, facts: dict[str, Any]) -> None:
    screen = console(markup=True)
    how, encoders = facts["ensemble"]["how"], facts["ensemble"]["encoders"]
    many = f"{encoders} encoders" if encoders > 1 else "one encoder"
    screen.print(f"[bold]{escape(source)}[/bold]: an ensemble of {len(facts['members'])} models with {many}, by {how}")
    table = Table("member", "family", "encoder", "head", "parameters alone", "base")
    for member in facts["members"]:
        base, head = member["base"], member["head"] or {}
        shown = f"{base['source']}{'' if base['found'] else ', which is not there'}" if base else ""
        cells = (member["source"], member["family"], str(member["encoder"]), head.get("line") or head.get("kind", ""))
        table.add_row(*map(escape, cells), f"{member['parameters']:,}", escape(shown))
    screen.print(table)
    _show_amounts(screen, facts)


def _show_amounts(screen: Console, facts: dict[str, Any]) -> None:
    for part, size in facts["parts"].items():
        if size:
            screen.print(f"  {part:12s} {size:>13,}")
    screen.print(f"  [bold]{'parameters':12s} {facts['parameters']:>13,}[/bold]")
    amounts = ", ".join(f"{kind} {size / 1e6:,.1f} MB" for kind, size in facts["bytes"].items() if size)
    screen.print(f"  bytes: {amounts}")
    flops = facts["flops"]
    screen.print(f"  {flops['per_window'] / 1e9:,.2f} GFLOPs a window of {flops['length']} tokens")


def _show_tuning(screen: Console, facts: dict[str, Any]) -> None:
    tuning, base = facts.get("tuning"), facts.get("base")
    if tuning:
        settings = ", ".join(f"{key} {value}" for key, value in tuning.items() if key != "kind")
        shown = f"{tuning.get('kind')} ({settings})" if settings else tuning.get("kind")
        screen.print(f"  tuning: {shown}", markup=False)
    if base:
        parameters, size = base["delta"]["parameters"], base["delta"]["bytes"]
        found = "" if base["found"] else ", which is not there"
        screen.print(
            f"  a delta of {parameters:,} parameters, {size / 1e6:,.1f} MB, on the base {base['source']} "
            f"(sha256 {base['sha256'][:12]}…){found}",
            markup=False,
        )


def _show_abstention(screen: Console, facts: dict[str, Any]) -> None:
    """The calibration or the threshold that the folder keeps, and what it was fitted on."""
    confidence = facts.get(CONFIDENCE)
    if confidence:
        names = ", ".join(confidence["fitted"].get("cross_fitted", {}))
        told = f", fitted on {names}" if names else ""
        screen.print(f"  abstains where no answer is more probable than a right one{told}", markup=False)
    kept = facts.get(KEY)
    if kept and not confidence:
        fitted = kept["fitted"]
        told = f", fitted on {fitted['data']}" if "data" in fitted else ""
        told += f": F1 {fitted['f1']:.2f}" if told and "f1" in fitted else ""
        screen.print(f"  abstains where null − best is above {kept['threshold']:.3f}{told}", markup=False)


def _runs(layers: tuple[LayerShape, ...]) -> list[tuple[str, LayerShape]]:
    """Neighbouring layers of the same sizes as one row: ("1–12", shape)."""
    rows, first = [], 1
    for layer, equal in groupby(layers):
        last = first + len(list(equal)) - 1
        rows.append((f"{first}–{last}" if last > first else str(first), layer))
        first = last + 1
    return rows
