"""The page and its files, read once when the server starts: what is not among them does not exist."""

from __future__ import annotations

from importlib.resources import files
from typing import NamedTuple

KINDS = {
    "html": "text/html; charset=utf-8",
    "js": "text/javascript; charset=utf-8",
    "css": "text/css; charset=utf-8",
    "svg": "image/svg+xml",
    "png": "image/png",
    "txt": "text/plain; charset=utf-8",
}
FIRST = "index.html"


class PageFile(NamedTuple):
    """A file and what it is."""

    data: bytes
    kind: str


def page_files() -> dict[str, PageFile]:
    """The files of the page by their names."""
    folder = files("quoth.serve").joinpath("page")
    if not folder.is_dir():
        return {}
    found = {}
    for file in folder.iterdir():
        kind = KINDS.get(file.name.rpartition(".")[2])
        if file.is_file() and kind:
            found[file.name] = PageFile(file.read_bytes(), kind)
    return found
