"""The text of a file, plain or gzipped, or one line that says what is wrong with it."""

from __future__ import annotations

import gzip
import json
import zlib
from pathlib import Path
from typing import Any

from quoth.errors import QuothError

GZIP_MAGIC = b"\x1f\x8b"


def read_source(path: str | Path) -> str:
    """The whole file as text: UTF-8, gzipped or not (its first bytes tell), without a BOM, line ends kept."""
    path = Path(path)
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        raise QuothError(f"{path}: no such file") from None
    except OSError as error:
        raise QuothError(f"{path}: cannot be read ({error.strerror})") from None
    if data.startswith(GZIP_MAGIC):
        try:
            data = gzip.decompress(data)
        except (EOFError, OSError, zlib.error) as error:
            raise QuothError(f"{path}: broken gzip file ({error}); fetch or compress it again") from None
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise QuothError(f"{path}, line {line}: not UTF-8 ({error.reason}); save it as UTF-8") from None


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
