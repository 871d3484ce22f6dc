"""Files are written whole or not at all: to a neighbour first, then moved into place. A name in .gz is compressed."""

from __future__ import annotations

import gzip
import hashlib
import json
import os
import shutil
import stat
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from quoth.errors import QuothError
from quoth.limits import nested_deeply, open_bytes, read_bounded


@contextmanager
def atomic_file(path: str | Path) -> Iterator[Path]:
    """Yield a temporary path; what is written there becomes `path` if the block ends well, else nothing changes.

    A symbolic link stays, and the file that it leads to is replaced. A pipe or a device is written to as it is.
    """
    path = Path(path)
    straight = _is_stream(path)
    target = path if straight else Path(os.path.realpath(path))
    make_parent(target)
    folder = tempfile.gettempdir() if straight else target.parent
    handle, name = tempfile.mkstemp(dir=folder, prefix=f".{target.name}.", suffix=".part")
    os.close(handle)
    part = Path(name)
    try:
        yield part
        if straight:
            with part.open("rb") as source, open_bytes(path, "wb") as stream:
                shutil.copyfileobj(source, stream)
        else:
            part.chmod(0o666 & ~umask())
            part.replace(target)
    except OSError as error:  # a full disk does not say of which file, and the temporary name is of no use to a user
        raise OSError(error.errno, error.strerror, str(path)) from None
    finally:
        with suppress(FileNotFoundError):
            part.unlink()


def write_text(path: str | Path, text: str) -> None:
    """Write `text` to `path` atomically, as UTF-8 with plain line ends."""
    data = text.encode("utf-8", "replace")
    with atomic_file(path) as part:
        part.write_bytes(gzip.compress(data, mtime=0) if Path(path).suffix == ".gz" else data)


def write_json(path: str | Path, value: Any) -> None:
    """Write `value` to `path` atomically, as readable JSON."""
    text = json.dumps(value, indent=2, ensure_ascii=False)
    try:
        text.encode()
    except UnicodeEncodeError:  # half of a surrogate pair, which UTF-8 does not have and JSON's \u escapes do
        text = json.dumps(value, indent=2)
    write_text(path, text + "\n")


def read_json(path: str | Path) -> Any:
    """Read JSON, or say in one line which file is wrong and where."""
    path = Path(path)
    try:
        with open_bytes(path) as file:
            value = json.loads(read_bounded(file, str(path)).decode("utf-8"))
    except FileNotFoundError:
        raise QuothError(f"{path}: no such file") from None
    except OSError as error:
        raise QuothError(f"{path}: cannot be read ({error.strerror})") from None
    except RecursionError:
        raise QuothError(f"{path}: not valid JSON (nested too deeply)") from None
    except ValueError as error:  # not UTF-8, not JSON, or a number of thousands of digits
        raise QuothError(f"{path}: not valid JSON ({error})") from None
    if nested_deeply(value):
        raise QuothError(f"{path}: not valid JSON (nested too deeply)")
    return value


def read_object(path: str | Path) -> dict[str, Any]:
    """Read JSON that must be an object."""
    value = read_json(path)
    if not isinstance(value, dict):
        raise QuothError(f"{path}: a JSON object is wanted, not {type(value).__name__}")
    return value


def sha256_of(path: Path) -> str:
    """The sha256 of a file, read piece by piece."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def make_parent(path: Path) -> None:
    """Make the folder that a file or folder is to lie in."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except (FileExistsError, NotADirectoryError):
        raise QuothError(f"{path.parent}: is not a folder, so {path.name} cannot be written there") from None


def umask() -> int:
    """The permissions that new files of this process do not get."""
    mask = os.umask(0)
    os.umask(mask)
    return mask


def _is_stream(path: Path) -> bool:
    """Whether a path is a pipe or a device; refuse a folder and a socket."""
    try:
        mode = path.stat().st_mode
    except OSError:  # it does not exist yet
        return False
    if stat.S_ISDIR(mode) or stat.S_ISSOCK(mode):
        what = "a folder" if stat.S_ISDIR(mode) else "a socket"
        raise QuothError(f"{path}: is {what}, so no file can be written there; choose another place")
    return not stat.S_ISREG(mode) or path.is_relative_to("/dev") or path.is_relative_to("/proc")
