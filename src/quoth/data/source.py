"""The text of a file, plain or gzipped, or one line that says what is wrong with it."""

from __future__ import annotations

import gzip
import json
import zlib
from pathlib import Path
from typing import Any

from quoth.errors import QuothError
from quoth.limits import nested_deeply, open_bytes, read_bounded

GZIP_MAGIC = b"\x1f\x8b"


def read_source(path: str | Path) -> str:
    """The whole file as text: UTF-8, gzipped or not (its first bytes tell), without a BOM, line ends kept."""
    path = Path(path)
    try:
        with open_bytes(path) as file:
            zipped = file.peek(2)[:2] == GZIP_MAGIC  # type: ignore[attr-defined]
            data = read_bounded(gzip.GzipFile(fileobj=file) if zipped else file, str(path))  # type: ignore[arg-type]
    except FileNotFoundError:
        raise QuothError(f"{path}: no such file") from None
    except (EOFError, gzip.BadGzipFile, zlib.error) as error:
        raise QuothError(f"{path}: broken gzip file ({error}); fetch or compress it again") from None
    except OSError as error:
        raise QuothError(f"{path}: cannot be read ({error.strerror})") from None
    return decoded(data, str(path))


def decoded(data: bytes, name: str) -> str:
    """Bytes as text: UTF-8, without a BOM, line ends kept."""
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise QuothError(f"{name}, line {line}: not UTF-8 ({error.reason}); save it as UTF-8") from None


def parse_json(text: str, where: str) -> Any:
    """`json.loads`, with errors of one line that begin with `where`."""
    try:
        value = json.loads(text)
    except json.JSONDecodeError as error:
        raise QuothError(
            f"{where}: not valid JSON ({error.msg} at line {error.lineno}, column {error.colno})"
        ) from None
    except (RecursionError, ValueError) as error:
        raise QuothError(f"{where}: not valid JSON ({error})") from None
    if nested_deeply(value):
        raise QuothError(f"{where}: not valid JSON (nested too deeply)")
    return value
