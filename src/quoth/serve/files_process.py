"""The processes that open files: one keeps the index up to date, one reads files that were sent and draws pages.

A file may be hostile. What it can do here is end this process, which is replaced: it has a limit of memory, and the
server ends it when it is late.
"""

from __future__ import annotations

import os
import struct
import zlib
from contextlib import suppress
from dataclasses import asdict
from multiprocessing.connection import Connection
from pathlib import Path

import numpy as np
import pypdfium2 as pdfium

from quoth.errors import QuothError
from quoth.limits import LIMIT, byte_limit, open_bytes, read_bounded
from quoth.search import open_index, read_document, to_bytes
from quoth.search.index_refresh import walk_files
from quoth.serve.child import Header, answer_calls

MEMORY = 4 << 30  # bytes of addresses that this process may use
UNPACKED = 256_000_000  # bytes that a file which was sent may hold, unzipped
PIXELS = 12_000_000  # of a page that is drawn


def run_index(connection: Connection) -> None:
    """Bring the index of a folder up to date, whenever asked to."""

    def answer(header: Header, data: bytes) -> tuple[Header, bytes]:
        if not walk_files(Path(header["folder"]))[0]:  # no error: some may come
            return {"empty": True}, b""
        index, done = open_index(header["folder"], header["index"])
        try:
            return {**asdict(done), "path": str(index.path), "writable": index.writable}, b""
        finally:
            index.close()

    answer_calls(connection, answer)


def run_files(connection: Connection) -> None:
    """Read files and draw pages."""
    os.environ[LIMIT] = str(min(byte_limit(), UNPACKED))
    with suppress(ImportError, ValueError, OSError):  # Windows has none; a lower limit may be set already
        import resource

        resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))

    def answer(header: Header, data: bytes) -> tuple[Header, bytes]:
        if header["do"] == "read":
            return {}, to_bytes(read_document(data, header["name"], seconds=header["seconds"]))
        data = data or _file(header["path"])
        if header["do"] == "sizes":
            return {"sizes": page_sizes(data)}, b""
        return {}, draw_page(data, header["page"], header["width"])

    answer_calls(connection, answer)


def page_sizes(data: bytes) -> list[tuple[float, float]]:
    """Width and height of each page of a PDF as it is shown, in points."""
    pdf = _open(data)
    try:
        return [pdf.get_page_size(number) for number in range(len(pdf))]
    finally:
        pdf.close()


def draw_page(data: bytes, number: int, width: int) -> bytes:
    """A page of a PDF, counted from 1, as a PNG of so many pixels, or fewer if it is very long."""
    pdf = _open(data)
    try:
        if not 1 <= number <= len(pdf):
            raise QuothError(f"there is no page {number}; the document has {len(pdf):,}")
        page = pdf[number - 1]
        wide, high = page.get_size()
        scale = min(width / wide, (PIXELS / (wide * high)) ** 0.5)
        return png(page.render(scale=scale, rev_byteorder=True, prefer_bgrx=False).to_numpy())
    except QuothError:
        raise
    except (pdfium.PdfiumError, ValueError, ZeroDivisionError):
        raise QuothError(f"page {number} cannot be drawn; it is damaged") from None
    finally:
        pdf.close()


def png(pixels: np.ndarray) -> bytes:
    """An image, (height, width, 3 or 4) bytes, as a PNG (RFC 2083) of three colours without filters."""
    high, wide = pixels.shape[:2]
    rows = np.zeros((high, 1 + 3 * wide), np.uint8)  # each row begins with its filter: 0, none
    rows[:, 1:] = pixels[:, :, :3].reshape(high, -1)
    head = struct.pack(">IIBBBBB", wide, high, 8, 2, 0, 0, 0)
    parts = ((b"IHDR", head), (b"IDAT", zlib.compress(rows.tobytes(), 6)), (b"IEND", b""))
    made = (
        struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data)) for kind, data in parts
    )
    return b"\x89PNG\r\n\x1a\n" + b"".join(made)


def _open(data: bytes) -> pdfium.PdfDocument:
    try:
        return pdfium.PdfDocument(data)
    except pdfium.PdfiumError:
        raise QuothError("the document cannot be drawn; it is no PDF any more, or damaged") from None


def _file(path: str) -> bytes:
    try:
        with open_bytes(Path(path)) as file:
            return read_bounded(file, Path(path).name)
    except OSError as error:
        raise QuothError(f"the file cannot be read ({error.strerror})") from None
