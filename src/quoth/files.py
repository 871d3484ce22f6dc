"""Files are written whole or not at all: to a neighbour first, then moved into place."""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from quoth.errors import QuothError


@contextmanager
def atomic_file(path: str | Path) -> Iterator[Path]:
    """Yield a temporary path beside `path`; move it onto `path` if the block ends well, else remove it."""
    path = Path(path)
    _make_parent(path)
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.", suffix=".part")
    os.close(handle)
    part = Path(name)
    try:
        yield part
        part.chmod(0o666 & ~_umask())
        part.replace(path)
    except OSError as error:  # a full disk does not say of which file, and the temporary name is of no use to a user
        raise OSError(error.errno, error.strerror, str(path)) from None
    finally:
        with suppress(FileNotFoundError):
            part.unlink()


@contextmanager
def atomic_folder(path: str | Path) -> Iterator[Path]:
    """Yield a temporary folder beside `path`; it becomes `path` if the block ends well.

    An existing folder is replaced only if it is empty or a model folder that Quoth or transformers wrote.
    """
    path = Path(path)
    _make_parent(path)
    if path.exists() and not _replaceable(path):
        raise QuothError(f"{path}: exists and is not a model folder; choose another place or remove it first")
    part = Path(tempfile.mkdtemp(dir=path.parent, prefix=f".{path.name}.", suffix=".part"))
    try:
        yield part
        part.chmod(0o777 & ~_umask())
        for file in part.iterdir():  # safetensors writes files that only their owner may read
            if file.is_file():
                file.chmod(0o666 & ~_umask())
        old = part.with_suffix(".old")
        if path.exists():
            path.rename(old)
        part.rename(path)
        shutil.rmtree(old, ignore_errors=True)
    finally:
        shutil.rmtree(part, ignore_errors=True)


def write_text(path: str | Path, text: str) -> None:
    """Write `text` to `path` atomically, as UTF-8 with plain line ends."""
    with atomic_file(path) as part:
        part.write_text(text, encoding="utf-8", newline="\n")


def write_json(path: str | Path, value: Any) -> None:
    """Write `value` to `path` atomically, as readable JSON."""
    write_text(path, json.dumps(value, indent=2, ensure_ascii=False) + "\n")


def read_json(path: str | Path) -> Any:
    """Read JSON, or say in one line which file is wrong and where."""
    path = Path(path)
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise QuothError(f"{path}: no such file") from None
    except OSError as error:
        raise QuothError(f"{path}: cannot be read ({error.strerror})") from None
    except (UnicodeDecodeError, json.JSONDecodeError) as error:
        raise QuothError(f"{path}: not valid JSON ({error})") from None


def _make_parent(path: Path) -> None:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except (FileExistsError, NotADirectoryError):
        raise QuothError(f"{path.parent}: is not a folder, so {path.name} cannot be written there") from None


def _replaceable(path: Path) -> bool:
    if not path.is_dir():
        return False
    names = {entry.name for entry in path.iterdir()}
    return not names or bool(names & {"quoth.json", "config.json"})


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask
