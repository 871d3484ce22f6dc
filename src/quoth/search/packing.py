"""A document as bytes and back, for an index to keep: no pickle, and damaged bytes are one line.

Layout: `MAGIC`, then what zlib makes of: the length of a JSON header (8 bytes), the header, the text in UTF-8, the
arrays of places as they lie in memory (little-endian).
"""

from __future__ import annotations

import json
import zlib
from typing import Any

import numpy as np

from quoth.errors import QuothError
from quoth.search.document import Boxes, Document, Heading, Runs

MAGIC = b"QDOC1\n"
DIFFERENCES = frozenset(["runs.at", "runs.start", "runs.end", "lines", "boxes.at"])  # rising: kept as differences


def to_bytes(document: Document) -> bytes:
    """All that a document holds."""
    text = document.text.encode("utf-8", "surrogatepass")
    arrays = _arrays(document)
    header = {
        "name": document.name.encode("utf-8", "surrogatepass").decode("latin-1"),
        "title": document.title,
        "headings": [[one.at, one.level, one.title] for one in document.headings],
        "parts": document.parts,
        "labels": document.labels,
        "notes": document.notes,
        "text": len(text),
        "arrays": {name: len(values) for name, values in arrays.items()},
    }
    start = json.dumps(header).encode()
    kept = [_differences(name, values).tobytes() for name, values in arrays.items()]
    return MAGIC + zlib.compress(b"".join([len(start).to_bytes(8, "little"), start, text, *kept]), 3)


def from_bytes(data: bytes) -> Document:
    """The document that `to_bytes` was given."""
    try:
        if not data.startswith(MAGIC):
            raise ValueError
        plain = zlib.decompress(data[len(MAGIC) :])
        past = 8 + int.from_bytes(plain[:8], "little")
        header = json.loads(plain[8:past])
        text = plain[past : past + header["text"]].decode("utf-8", "surrogatepass")
        return _restored(header, text, _read_arrays(header["arrays"], plain[past + header["text"] :]))
    except (ValueError, KeyError, TypeError, AttributeError, IndexError, zlib.error):
        raise QuothError("a stored document is damaged; build the index again") from None


def _arrays(document: Document) -> dict[str, Any]:
    found: dict[str, Any] = {}
    if document.runs is not None:
        found |= {f"runs.{key}": getattr(document.runs, key) for key in ("at", "start", "end")}
    if document.lines is not None:
        found["lines"] = document.lines
    if document.boxes is not None:
        found |= {f"boxes.{key}": getattr(document.boxes, key) for key in ("at", "page", "box")}
    return found


def _kind(name: str) -> str:
    return "<f4" if name == "boxes.box" else "<i4"


def _differences(name: str, values: Any) -> Any:
    values = np.asarray(values, _kind(name))
    return np.diff(values, prepend=values.dtype.type(0)) if name in DIFFERENCES else values


def _read_arrays(lengths: dict[str, int], data: bytes) -> dict[str, Any]:
    found, place = {}, 0
    for name, length in lengths.items():
        count = length * 4 if name == "boxes.box" else length
        values = np.frombuffer(data, _kind(name), count, place)
        place += values.nbytes
        found[name] = np.cumsum(values, dtype=np.int32) if name in DIFFERENCES else values
    if place != len(data):
        raise ValueError
    return found


def _restored(header: dict[str, Any], text: str, arrays: dict[str, Any]) -> Document:
    runs = Runs(*(arrays[f"runs.{key}"] for key in ("at", "start", "end"))) if "runs.at" in arrays else None
    boxes = None
    if "boxes.at" in arrays:
        boxes = Boxes(arrays["boxes.at"], arrays["boxes.page"], arrays["boxes.box"].reshape(-1, 4))
    return Document(
        header["name"].encode("latin-1").decode("utf-8", "surrogatepass"),
        text,
        header["title"],
        tuple(Heading(*one) for one in header["headings"]),
        runs,
        arrays.get("lines"),
        tuple((part, at) for part, at in header["parts"]),
        boxes,
        tuple(header["labels"]),
        tuple(header["notes"]),
    )
