"""`quoth ensemble`: combine several models into one."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from quoth.cli.common import AsJson
from quoth.cli.inspect import inspect
from quoth.errors import QuothError
from quoth.runtime.combine import check_how


def ensemble(
    models: Annotated[list[str], typer.Argument(metavar="MODEL MODEL...", help="Two or more folders or hub ids.")],
    out: Annotated[Path, typer.Option(help="Write the ensemble to this folder.")],
    how: Annotated[
        str, typer.Option(help="Combine by max or mean of the probabilities, or sum of the logits.")
    ] = "max",
    as_json: AsJson = False,
) -> None:
    """Combine models with span heads into one; those with the same encoder share its forward pass."""
    chosen = check_how(how)
    try:
        from quoth.runtime.ensemble import save_ensemble  # here, since torch is optional
    except ModuleNotFoundError as error:
        raise QuothError(f"an ensemble needs {error.name}: pip install 'quoth[train]'") from None
    save_ensemble(models, out, chosen)
    inspect(str(out), as_json=as_json)
