"""The text of a file, plain or gzipped, or one line that says what is wrong with it."""

from __future__ import annotations

import gzip
import json
import os
import zlib
from pathlib import Path
from typing import Any, BinaryIO

from quoth.errors import QuothError

GZIP_MAGIC = b"\x1f\x8b"
LIMIT = "QUOTH_MAX_BYTES"
BLOCK = 1 << 20


def read_source(path: str | Path) -> str:
    """The whole file as text: UTF-8, gzipped or not (its first bytes tell), without a BOM, line ends kept."""
    path = Path(path)
    try:
        with path.open("rb") as file:
            zipped = file.peek(2)[:2] == GZIP_MAGIC
            data = read_bounded(gzip.GzipFile(fileobj=file) if zipped else file, str(path))  # type: ignore[arg-type]
    except FileNotFoundError:
        raise QuothError(f"{path}: no such file") from None
    except (EOFError, gzip.BadGzipFile, zlib.error) as error:
        raise QuothError(f"{path}: broken gzip file ({error}); fetch or compress it again") from None
    except OSError as error:
        raise QuothError(f"{path}: cannot be read ({error.strerror})") from None
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise QuothError(f"{path}, line {line}: not UTF-8 ({error.reason}); save it as UTF-8") from None


def read_bounded(file: BinaryIO, name: str) -> bytes:
    """All bytes of a file, unless there are more than the limit: a small .gz may hold more than the memory does."""
    limit = byte_limit()
    data = bytearray()
    while block := file.read(BLOCK):
        data += block
        if len(data) > limit:
            raise QuothError(f"{name}: holds more than {limit:,} bytes; set {LIMIT}=… to read more")
    return bytes(data)


def byte_limit() -> int:
    """The most bytes that are read of one file, unzipped: 1 GiB, or what QUOTH_MAX_BYTES says."""
    given = os.environ.get(LIMIT, "")
    if not given:
        return 1 << 30
    if not (given.isascii() and given.isdigit() and int(given[:18])):
        raise QuothError(f"{LIMIT}={given!r}: give a whole number of bytes, above 0")
    return int(given[:18])


def parse_json(text: str, where: str) -> Any:
    """`json.loads`, with errors of one line that begin with `where`."""
    try:
        return json.loads(text)
    except json.JSONDecodeError as error:
        raise QuothError(
            f"{where}: not valid JSON ({error.msg} at line {error.lineno}, column {error.colno})"
        ) from None
    except (RecursionError, ValueError) as error:
        raise QuothError(f"{where}: not valid JSON ({error})") from None
