"""Folders are replaced whole or not at all, and only if every entry in them is a file that Quoth writes.

A process that is killed while it replaces a folder leaves the old one or the new one. Where the system can exchange two
folders in one step (Linux), it is one rename; elsewhere the old one may be left as `.NAME.xxxxxxxx.old` for the next
command to put back (`recover`).
"""

from __future__ import annotations

import ctypes
import errno
import os
import re
import shutil
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from quoth.errors import QuothError
from quoth.files import make_parent, umask

TOKENIZER_FILES = (
    "tokenizer.json",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "vocab.txt",
    "vocab.json",
    "merges.txt",
    "spiece.model",
)
WRITTEN = {  # all files that Quoth writes into folders which it replaces: models, checkpoints, cached states
    *TOKENIZER_FILES,
    "quoth.json",
    "config.json",
    "model.safetensors",
    "delta.safetensors",
    "model.onnx",
    "model.onnx.data",
    "MODEL_CARD.md",
    "state.safetensors",
    "state.json",
    "hashes.json",
    "states.bin",
    "cache.json",
}
TEMPORARY = re.compile(r"\.(?P<name>.+)\.[a-z0-9_]{8}\.(?P<kind>part|old)")  # as tempfile makes them for us
EXCHANGE, HERE = 2, -100  # RENAME_EXCHANGE and AT_FDCWD of Linux


@contextmanager
def atomic_folder(path: str | Path) -> Iterator[Path]:
    """Yield a temporary folder beside `path`; it becomes `path` if the block ends well.

    An existing folder is replaced only if it holds nothing that Quoth did not write.
    """
    path = Path(os.path.realpath(path))
    make_parent(path)
    recover(path)
    strange = strange_entry(path) if path.is_dir() else path if path.exists() else None
    if strange is not None:
        raise QuothError(
            f"{path}: exists and is not a model folder ({strange} was not written by Quoth); choose another place"
        )
    part = Path(tempfile.mkdtemp(dir=path.parent, prefix=f".{path.name}.", suffix=".part"))
    try:
        yield part
        part.chmod(0o777 & ~umask())
        for file in part.iterdir():  # safetensors writes files that only their owner may read
            if file.is_file():
                file.chmod(0o666 & ~umask())
        replace_folder(part, path)
    finally:
        shutil.rmtree(part, ignore_errors=True)


def strange_entry(folder: Path) -> Path | None:
    """The first entry of a folder that Quoth does not write; members of an ensemble are looked into."""
    for entry in sorted(folder.iterdir()):
        if entry.is_dir() and not entry.is_symlink():
            members = entry.name == "members" or (folder.name == "members" and entry.name.isdigit())
            strange = strange_entry(entry) if members else entry
            if strange is not None:
                return strange
        elif entry.is_symlink() or not entry.is_file() or entry.name not in WRITTEN:
            return entry
    return None


def replace_folder(part: Path, path: Path) -> None:
    """Put the folder `part` in the place of `path`, which may exist."""
    if not path.exists():
        part.rename(path)
    elif _exchange(part, path):
        shutil.rmtree(part)
    else:
        old = part.with_suffix(".old")
        path.rename(old)
        part.rename(path)
        shutil.rmtree(old)


def recover(path: Path) -> None:
    """Put back a folder that a killed process had moved out of the way of its successor."""
    if path.exists() or not path.parent.is_dir():
        return
    for entry in sorted(path.parent.iterdir()):
        match = TEMPORARY.fullmatch(entry.name)
        if match and match["name"] == path.name and match["kind"] == "old" and entry.is_dir():
            entry.rename(path)
            return


def remove_leftovers(folder: Path, names: re.Pattern[str]) -> None:
    """Remove what a killed process left half-written of files and folders of these names, here and below."""
    for entry in sorted(folder.iterdir()):
        match = TEMPORARY.fullmatch(entry.name)
        if match and names.fullmatch(match["name"]):
            if match["kind"] == "old" and not (folder / match["name"]).exists():
                entry.rename(folder / match["name"])
            elif entry.is_dir() and not entry.is_symlink():
                shutil.rmtree(entry)
            else:
                entry.unlink()
        elif entry.is_dir() and not entry.is_symlink():
            remove_leftovers(entry, names)


def _exchange(one: Path, other: Path) -> bool:
    """Exchange two folders in one step; False where the system cannot."""
    if sys.platform != "linux":
        return False
    try:
        rename = ctypes.CDLL(None, use_errno=True).renameat2
    except (OSError, AttributeError):  # a C library without it
        return False
    if rename(HERE, os.fsencode(one), HERE, os.fsencode(other), EXCHANGE) == 0:
        return True
    number = ctypes.get_errno()
    if number in (errno.ENOSYS, errno.EINVAL, errno.ENOTSUP):  # a kernel or file system without it
        return False
    raise OSError(number, os.strerror(number), str(other))
