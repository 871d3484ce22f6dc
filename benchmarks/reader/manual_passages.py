"""Passages of real documentation for `data.unlabelled.passages`: manuals, READMEs, change logs, licences, docstrings.

    python -m benchmarks.reader.manual_passages --out manuals.txt.gz [--folder archives/] [--most 10] [NAME==VERSION …]

The source archives of Python packages are taken from a folder, or downloaded into it from the package index (nothing of
them is run). Passages have 200 to 1,200 characters, with one blank line between them. Beside the file,
`manuals.packages.txt` has the name, version, licence and number of passages of each package.

Packages under the GPL or LGPL are not on the list. Left out, because they are used for checks from outside: the
manuals of Git and Python, Debian's policy, GPL texts.
"""

from __future__ import annotations

import argparse
import ast
import gzip
import hashlib
import html
import re
import tarfile
import urllib.parse
import urllib.request
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from email.parser import HeaderParser
from itertools import accumulate
from pathlib import Path

PACKAGES = """
aiohttp==3.14.5 black==26.10.1 borgbackup==1.4.5 boto3==1.44.0 celery==5.7.0 click==8.5.1
cryptography==50.0.2 django==6.1.3 fabric==3.2.3 fastapi==0.162.4 flask==3.1.3 gunicorn==27.0.0 httpx==0.28.1
jinja2==3.1.6 kombu==5.7.0 matplotlib==3.11.2 mypy==2.4.1 networkx==3.7 numpy==2.5.4 pandas==3.1.1
pillow==13.0.0 pip==26.3 poetry==2.5.1 pydantic==2.14.3 pytest==9.2.0 requests==2.34.2 salt==3008.5
scipy==1.18.1 scrapy==2.19.0 setuptools==84.2.1 sphinx==9.2.0 sqlalchemy==2.1.8 supervisor==4.3.0 sympy==1.14.0
tornado==6.6.1 twisted==26.10.0 zope.interface==8.7
"""
INDEX = "https://pypi.org/simple"
SHORTEST, LONGEST = 200, 1200  # characters of a passage
DOCSTRING = 3
LARGEST = 2_000_000  # bytes of a file that is read
TEXTS = re.compile(
    r"(?i)\.(?:rst|txt|md|1|5|8)$|/(?:readme|changes|changelog|news|license|copying|notice|authors)[^/.]*$"
)
SKIPPED = re.compile(
    r"(?i)/(?:_?vendor(?:ed)?|_vendored|tests?|testing|third_party|extern(?:al)?|node_modules|locale|subprojects|"
    r"requirements|benchmarks|egg-info|[^/]*\.egg-info|[^/]*\.dist-info)/|requirements[^/]*\.txt$|CMakeLists\.txt$"
)
FOREIGN = re.compile(  # texts that checks from outside use
    r"GNU (?:LESSER |AFFERO |LIBRARY )?GENERAL PUBLIC LICENSE|Debian Policy|Python Software Foundation License Version"
)
GPL = re.compile(r"(?i)GNU\s+(?:\w+\s+)?General\s+Public\s+Licen[sc]e")
DIRECTIVE = re.compile(r"\s*(?:\.\. |:[a-z-]+:(?:\s|$)|\.\.$|\.[A-Z]{2}\b|\[//\]|<!--|:orphan:)")
NAMED = re.compile(r"(\.\. [a-z-]+::) +(?=\S* \S+ )")  # a directive with text: the text stays
ROLE = re.compile(r"(?::[\w:+-]+:|\{[\w:-]+\})`~?\.?([^`<]*?)(?: ?<[^`>]*>)?`")
LINK = re.compile(r"`([^`<]+?) ?<[^`>]+>`__?")
RULE = re.compile(r"\s*([=\-~^\"'`#*+.:_])\1{2,}\s*")
MARKUP = re.compile(r"<[^<>]{1,200}>")
BLANK = re.compile(r"\n\s*\n")


@dataclass(frozen=True)
class Package:
    """A source archive, and what its metadata say of its licence."""

    name: str
    version: str
    path: Path

    def licence(self) -> str:
        """By the metadata: the expression, the field if it is one line, or the classifiers."""
        with tarfile.open(self.path) as archive:
            for member in archive:
                if member.isfile() and re.fullmatch(r"[^/]+/PKG-INFO", member.name):
                    found = HeaderParser().parsestr(_decode(archive, member))
                    stated = found["License-Expression"] or (found["License"] or "").strip()
                    kinds = [one for one in found.get_all("Classifier", []) if one.startswith("License ::")]
                    if stated and "\n" not in stated and len(stated) < 100:
                        return str(stated)
                    return "; ".join(kind.rpartition(" :: ")[2] for kind in kinds) or "see the package"
        return "see the package"

    def texts(self) -> Iterator[tuple[str, str]]:
        """The path and text of every documentation file, and of the docstrings of every module."""
        with tarfile.open(self.path) as archive:
            for member in sorted((one for one in archive if one.isfile()), key=lambda one: one.name):
                if SKIPPED.search(member.name) or member.size > LARGEST:
                    continue
                if TEXTS.search(member.name):
                    text = _decode(archive, member)
                    if not FOREIGN.search(text):
                        yield member.name, text
                elif member.name.endswith(".py"):
                    yield member.name, docstrings(_decode(archive, member))


def _decode(archive: tarfile.TarFile, member: tarfile.TarInfo) -> str:
    file = archive.extractfile(member)
    assert file is not None
    return file.read().decode("utf-8", errors="ignore").replace("\r\n", "\n")


def docstrings(source: str) -> str:
    """The docstrings of a module that have several lines, with blank lines between them."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            tree = ast.parse(source)
        except (SyntaxError, ValueError):
            return ""
    kinds = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    found = [ast.get_docstring(node) for node in ast.walk(tree) if isinstance(node, kinds)]
    return "\n\n".join(text for text in found if text and text.count("\n") > 3)


def fetch(name: str, version: str, folder: Path) -> Package:
    """The source archive of a package, from the folder, or downloaded into it and compared with the index's hash."""
    plain = re.sub(r"[-_.]+", "-", name).lower()
    wanted = re.compile(rf"(?i){plain.replace('-', '[-_.]+')}-{re.escape(version)}\.tar\.gz")
    for path in sorted(folder.iterdir()):
        if wanted.fullmatch(path.name):
            return Package(name, version, path)
    with urllib.request.urlopen(f"{INDEX}/{plain}/", timeout=60) as page:
        links = re.findall(r'<a[^>]*href="([^"]+)"', page.read().decode())
    for link in map(html.unescape, links):
        url, _, digest = urllib.parse.urljoin(f"{INDEX}/{plain}/", link).partition("#sha256=")
        if wanted.fullmatch(url.rpartition("/")[2]):
            with urllib.request.urlopen(url, timeout=300) as file:
                content = file.read()
            if hashlib.sha256(content).hexdigest() != digest:
                raise SystemExit(f"{url}: its hash is not the one of the index")
            path = folder / url.rpartition("/")[2]
            path.write_bytes(content)
            return Package(name, version, path)
    raise SystemExit(f"{name}=={version}: the index {INDEX} has no source archive of it")


def blocks(text: str) -> list[str]:
    """The paragraphs, lists and tables of a text, with less markup: no directives, roles, rules and tags."""
    found = []
    for block in BLANK.split(re.sub(r"<!--.*?-->", "", text, flags=re.S)):
        lines = [NAMED.sub("", line) for line in block.split("\n")]
        kept = [line.rstrip() for line in lines if not DIRECTIVE.match(line) and not RULE.fullmatch(line)]
        clean = LINK.sub(r"\1", ROLE.sub(r"\1", "\n".join(kept)))
        clean = re.sub(r"[^\S\n]+", " ", MARKUP.sub("", html.unescape(clean)))
        clean = re.sub(r"[\x00-\x08\x0b-\x1f\x7f]", "", re.sub(r"\s*\n\s*\n", "\n", clean)).strip()
        if clean:
            found.append(clean)
    return found


def passages(text: str) -> Iterator[str]:
    """Neighbouring blocks joined to passages; how long each becomes depends on its first block."""
    here: list[str] = []
    for block in blocks(text):
        for piece in _pieces(block):
            size = sum(map(len, here)) + len(here)
            if here and (size + len(piece) > LONGEST or size >= _aim(here[0])):
                yield "\n".join(here)
                here = []
            here.append(piece)
    if here:
        yield "\n".join(here)


def _aim(text: str) -> int:
    return SHORTEST + int(hashlib.sha256(text.encode()).hexdigest()[:8], 16) % (LONGEST - SHORTEST)


def _pieces(block: str) -> Iterator[str]:
    """A long block in parts, cut at the ends of lines or sentences."""
    while len(block) > LONGEST:
        at = max(block.rfind("\n", 0, LONGEST), block.rfind(". ", 0, LONGEST) + 1)
        at = at if at > SHORTEST else LONGEST
        yield block[:at].strip()
        block = block[at:].strip()
    if block:
        yield block


def good(passage: str) -> bool:
    """Whether a passage is long enough, is text in the main, and is English as far as its letters tell."""
    letters = sum(map(str.isalpha, passage))
    words = re.findall(r"\b(?:the|a|of|to|is|in|and|for|this|be|if|with|or)\b", passage.lower())
    plain = sum(character.isascii() for character in passage)
    enough = (
        not GPL.search(passage)
        and SHORTEST <= len(passage) <= LONGEST
        and letters >= 0.6 * len(passage)
        and plain >= 0.98 * len(passage)
    )
    return enough and len(words) >= len(passage) / 80


def of_package(package: Package, seen: set[str]) -> list[str]:
    """The passages of a package without those seen before, in an order drawn by their hashes.

    Manuals come DOCSTRING times as often as docstrings, which are often about the insides of a package.
    """
    found: dict[bool, list[str]] = {True: [], False: []}
    for path, text in package.texts():
        for passage in passages(text):
            key = re.sub(r"\W+", "", passage.lower())[:150]
            if good(passage) and key not in seen:
                seen.add(key)
                found[path.endswith(".py")].append(passage)
    for kind in found.values():
        kind.sort(key=lambda passage: hashlib.sha256(passage.encode()).hexdigest())
    ranked = [
        (i * (DOCSTRING if code else 1), code, text) for code, kind in found.items() for i, text in enumerate(kind)
    ]
    return [text for _, _, text in sorted(ranked)]


def collect(packages: Sequence[Package], most: int) -> dict[str, list[str]]:
    """The passages of each package: at most `most` characters in all, as evenly spread as the small ones allow."""
    seen: set[str] = set()
    everything = {package.name: of_package(package, seen) for package in packages}
    left, share = most, 0
    sizes = sorted(sum(map(len, texts)) for texts in everything.values())
    for i, size in enumerate(sizes):
        share = left // (len(sizes) - i)
        left -= min(size, share)
    found = {}
    for name, texts in everything.items():
        ends = accumulate(map(len, texts))
        found[name] = [text for text, end in zip(texts, ends, strict=True) if end <= share]
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("packages", nargs="*", help="NAME==VERSION; 37 packages under permissive licences")
    parser.add_argument("--out", type=Path, required=True, help="a file named .txt.gz")
    parser.add_argument("--folder", type=Path, default=Path("archives"), help="where source archives are, or come")
    parser.add_argument("--most", type=float, default=10.0, help="million characters")
    options = parser.parse_args()
    if not options.out.name.endswith(".txt.gz"):
        parser.error(f"--out {options.out}: name a file .txt.gz")
    options.folder.mkdir(parents=True, exist_ok=True)
    wanted = [one.partition("==") for one in options.packages or PACKAGES.split()]
    packages = [fetch(name, version, options.folder) for name, _, version in wanted]
    found = collect(packages, int(options.most * 1e6))
    text = "\n\n".join(passage for texts in found.values() for passage in texts) + "\n"
    with options.out.open("wb") as file, gzip.GzipFile("", "wb", 9, file, mtime=0) as zipped:
        zipped.write(text.encode())
    rows = [f"{p.name} {p.version}: {p.licence()}; {len(found[p.name])} passages" for p in packages]
    listed = options.out.with_name(options.out.name.removesuffix(".txt.gz") + ".packages.txt")
    listed.write_text("Passages of documentation were taken from these packages.\n\n" + "\n".join(rows) + "\n")
    size = options.out.stat().st_size
    print(f"{sum(map(len, found.values()))} passages, {len(text) / 1e6:.1f} million characters, {size / 1e6:.2f} MB")


if __name__ == "__main__":
    main()
