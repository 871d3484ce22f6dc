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

# What `quoth --help` says of each verb: one line that fits into 80 columns. `quoth VERB --help` says more.
VERBS = {
    "ask": "Answer questions from your documents.",
    "serve": "Answer questions over HTTP, with a page for people.",
    "mcp": "Offer your documents to agents (Model Context Protocol).",
    "index": "Build or refresh the index of a folder.",
    "answer": "Answer all questions of a dataset.",
    "score": "Score predictions by the official rule of SQuAD.",
    "evaluate": "Answer a dataset, score the answers, measure the cost.",
    "calibrate": "Fit the probability that an answer is right.",
    "negatives": "Make unanswerable questions from answerable ones.",
    "train": "Train a reader by a recipe.",
    "prune": "Cut the sizes of a model, and train what is left.",
    "ensemble": "Combine models with span heads into one.",
    "analyse": "Show what models get wrong, and how they differ.",
    "compare": "Compare finished runs by quality and cost.",
    "inspect": "Show the sizes, operations and bytes of a model.",
    "export": "Write a model as ONNX, which answers without torch.",
    "build": "Build a small reader: teachers, student, cut, int8.",
    "sweep": "Train all runs of a grid of recipes and seeds.",
    "reproduce": "Make a table or figure of the papers again.",
    "advise": "Find the method that answers best within your limits.",
}

# The base of what typer raises for wrong arguments; it has no public name, and lies in click or in typer itself.
MISTAKE: Any = next(kind for kind in typer.BadParameter.__mro__ if kind.__name__ == "ClickException")

for _verb, _short in VERBS.items():
    app.command(_verb, short_help=_short)(getattr(import_module(f"quoth.cli.{_verb}"), _verb))


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
