"""`quoth ensemble`: several models as one."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from quoth.cli.common import AsJson
from quoth.cli.inspect import inspect
from quoth.errors import QuothError
from quoth.runtime.combine import check_how


def ensemble(
    models: Annotated[list[str], typer.Argument(metavar="MODEL MODEL...", help="Folders or hub ids, two or more.")],
    out: Annotated[Path, typer.Option(help="The model folder to write.")],
    how: Annotated[str, typer.Option(help="max or mean of the probabilities, or sum of the logits.")] = "max",
    as_json: AsJson = False,
) -> None:
    """Put models with span heads together as one that answers; those with the same encoder share its pass."""
    chosen = check_how(how)
    try:
        from quoth.runtime.ensemble import save_ensemble
    except ModuleNotFoundError as error:
        raise QuothError(f"an ensemble needs {error.name}: pip install 'quoth[train]'") from None
    save_ensemble(models, out, chosen)
    inspect(str(out), as_json=as_json)
