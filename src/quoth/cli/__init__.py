"""The command line: one file per verb, each a typed function."""

from __future__ import annotations

import io
import os
import sys
from importlib import import_module
from typing import Annotated, Any

import typer

from quoth._version import __version__
from quoth.cli.screen import say
from quoth.errors import QuothError

app = typer.Typer(
    name="quoth",
    help="Short answers from small models.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)

VERBS = (
    "ask",
    "serve",
    "mcp",
    "index",
    "answer",
    "score",
    "evaluate",
    "calibrate",
    "negatives",
    "train",
    "prune",
    "ensemble",
    "analyse",
    "compare",
    "inspect",
    "export",
    "build",
    "sweep",
    "reproduce",
    "advise",
)

# The base of what typer raises for wrong arguments; it has no public name, and lies in click or in typer itself.
MISTAKE: Any = next(kind for kind in typer.BadParameter.__mro__ if kind.__name__ == "ClickException")

for _verb in VERBS:
    app.command(_verb)(getattr(import_module(f"quoth.cli.{_verb}"), _verb))


def _version(wanted: bool) -> None:
    if wanted:
        print(f"quoth {__version__}")
        raise typer.Exit


@app.callback()
def quoth(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """Short answers from small models."""


def _tell_mistake(error: Any) -> int:
    """Say in one line what is wrong with the arguments. `quoth` alone shows the help."""
    if type(error).__name__ == "NoArgsIsHelpError":
        error.show()
    else:
        verb = f" {error.ctx.info_name}" if error.ctx is not None and error.ctx.parent is not None else ""
        say(f"quoth: {error.format_message().rstrip('.')}; see quoth{verb} --help")
    return 2


def main() -> None:
    """Run the command line: a user's mistake is one line on stderr and exit code 2."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):  # what its encoding does not have is shown as ?
            stream.reconfigure(errors="replace")
    try:
        raise SystemExit(app(standalone_mode=False))
    except QuothError as error:
        say(f"quoth: {error}")
        raise SystemExit(2) from None
    except MISTAKE as error:
        raise SystemExit(_tell_mistake(error)) from None
    except typer.Abort:
        raise SystemExit(1) from None
    except BrokenPipeError:
        # The reader of our output went away, as in `quoth … | head`.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise SystemExit(1) from None
    except OSError as error:  # a full disk, a folder without permission: files are atomic, so nothing is half-written
        where = f"{error.filename}: " if error.filename else ""
        say(f"quoth: {where}{error.strerror or error}")
        raise SystemExit(2) from None
