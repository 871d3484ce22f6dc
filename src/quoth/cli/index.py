"""`quoth index`: build or refresh the index of a folder, and show what it holds."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from quoth.cli.common import AsJson, figures_table, output, progress
from quoth.cli.screen import console, say
from quoth.errors import QuothError
from quoth.search import IndexCollection, open_index
from quoth.search.index import FileEntry


def index(
    folder: Annotated[str, typer.Argument(metavar="FOLDER", help="The folder whose documents are indexed.")],
    index: Annotated[
        Path | None, typer.Option(help="Keep the index in this file; by default in the user's cache directory.")
    ] = None,
    rebuild: Annotated[bool, typer.Option("--rebuild", help="Read all documents again.")] = False,
    as_json: AsJson = False,
) -> None:
    """Build or refresh the index of a folder, which `quoth ask` uses, and show what was read.

    `quoth ask QUESTION FOLDER` does the same by itself.
    """
    if not Path(folder).is_dir():
        why = "is a file; an index is of a folder" if Path(folder).exists() else "no such folder"
        raise QuothError(f"{folder}: {why}")
    begun = time.monotonic()
    with progress("reading") as tell:
        opened, done = open_index(folder, index, rebuild=rebuild, progress=tell)
    collection = IndexCollection(opened, folder, done.notes)
    entries = opened.entries()
    facts = {
        "folder": folder,
        "index": str(opened.path),
        "bytes": opened.path.stat().st_size if opened.path else 0,
        "seconds": round(time.monotonic() - begun, 2),
        "files": {name: getattr(done, name) for name in ("added", "changed", "removed", "unchanged")},
        "documents": len(collection),
        "passages": collection.passages,
        "formats": _by_format(entries),
        "notes": list(collection.notes),
    }
    output(facts, as_json, lambda: _show(facts))


def _by_format(entries: Sequence[FileEntry]) -> list[dict[str, Any]]:
    """Documents, passages and files that gave no text, by the extensions of the files; most passages first."""
    found: dict[str, dict[str, Any]] = {}
    for entry in entries:
        row = found.setdefault(entry.format, {"format": entry.format, "documents": 0, "passages": 0, "left_out": 0})
        row["documents" if entry.passages else "left_out"] += 1
        row["passages"] += entry.passages
    return sorted(found.values(), key=lambda row: (-row["passages"], row["format"]))


def _show(facts: dict[str, Any]) -> None:
    screen = console()
    table = figures_table("format", "documents", "passages", "left out")
    for row in facts["formats"]:
        table.add_row(row["format"], *(f"{row[key]:,}" for key in ("documents", "passages", "left_out")))
    screen.print(table)
    files = ", ".join(f"{count:,} {what}" for what, count in facts["files"].items())
    screen.print(f"files: {files}")
    size = f"{facts['bytes'] / 1e6:,.1f} MB"
    screen.print(f"{facts['index']}: {facts['passages']:,} passages, {size}, {facts['seconds']:.1f} s", soft_wrap=True)
    for note in facts["notes"]:
        say(f"quoth: {note}")
