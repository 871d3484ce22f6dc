"""`quoth export`: a model for onnxruntime, which answers without torch."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer

from quoth.cli.common import AsJson, output, read_dataset
from quoth.cli.screen import console
from quoth.embedded import ONLY_ANSWERS, is_embedded
from quoth.errors import QuothError


def export(
    model: Annotated[str, typer.Argument(metavar="MODEL", help="The model folder or hub id, also of an ensemble.")],
    to: Annotated[Path, typer.Option(help="Write the exported model to this folder.")],
    int8: Annotated[bool, typer.Option("--int8", help="Quantise weights and embeddings to 8 bits.")] = False,
    data: Annotated[
        str | None,
        typer.Option(help="Compare the logits and compute F1 on these questions; int8 takes its ranges from them."),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Write a model as ONNX, checked against torch; the folder answers without torch."""
    if is_embedded(model):
        raise QuothError(ONLY_ANSWERS)
    try:
        from quoth.export.export import export as write  # here, since torch and onnx are optional
    except ModuleNotFoundError as error:
        raise QuothError(f"export needs {error.name}: pip install 'quoth[export]'") from None
    found = asdict(write(model, to, int8=int8, data=read_dataset(data) if data else None))
    output(found, as_json, lambda: _show(found))


def _show(found: dict[str, Any]) -> None:
    screen = console(wrap=False)
    screen.print(
        f"fp32: {found['bytes'] / 1e6:.1f} MB, logits within {found['difference']:.1e} of torch's{_f1(found['f1'])}"
    )
    if found["int8_bytes"]:
        screen.print(
            f"int8: {found['int8_bytes'] / 1e6:.1f} MB, logits within {found['int8_difference']:.2g} of torch's, "
            f"of which the largest is {found['largest_logit']:.2g}{_f1(found['int8_f1'])}"
        )
    screen.print(f"written to {found['folder']}")


def _f1(value: float | None) -> str:
    return "" if value is None else f"; F1 {value:.2f}"
