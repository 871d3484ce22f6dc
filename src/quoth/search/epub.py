"""EPUB: the pages of the book in their order, each read as HTML."""

from __future__ import annotations

import posixpath
from urllib.parse import unquote

import numpy as np

from quoth.search.archive import Archive, parse_xml
from quoth.search.builder import Builder
from quoth.search.document import Document, line_starts
from quoth.search.docx import core_title
from quoth.search.failure import NoTextError
from quoth.search.html import decode_html, html_text

CONTAINER = "META-INF/container.xml"
PAGES = frozenset(["application/xhtml+xml", "text/html", "text/x-oeb1-document"])


def read_epub(data: bytes, name: str) -> Document:
    """A book in EPUB 2 or 3. A place counts the characters of the page (`part`) that it is on."""
    archive = Archive(data, name)
    package = _package_path(archive, name)
    content = archive.read(package)
    if content is None:
        raise NoTextError(f"{name}: has no {package}; it is damaged")
    encrypted = archive.read("META-INF/encryption.xml") or b""
    found = Builder()
    parts, lines = [], []
    for path in _spine(content, package, f"{name}: {package}"):
        page = archive.read(path)
        if page is None:
            continue
        if path.encode() in encrypted:
            raise NoTextError(f"{name}: is encrypted (DRM)")
        source = decode_html(page, f"{name}: {path}")
        parts.append((path, found.begin))
        lines.append(line_starts(source) + found.begin)
        html_text(source, found, xml=True)
        found.begin += len(source)
        found.gap("\n\n")
    if not parts:
        raise NoTextError(f"{name}: has no pages to read")
    title = core_title(content, f"{name}: {package}") or found.title
    return Document(
        name,
        found.text,
        title,
        tuple(found.headings),
        found.runs.made(),
        np.concatenate(lines).astype(np.int32),
        tuple(parts),
    )


def _package_path(archive: Archive, name: str) -> str:
    data = archive.read(CONTAINER)
    if data is None:
        raise NoTextError(f"{name}: has no {CONTAINER}; it is no EPUB file, or damaged")
    paths: list[str] = []

    def start(tag: str, attributes: dict[str, str]) -> None:
        if tag == "rootfile" and "full-path" in attributes:
            paths.append(attributes["full-path"])

    parse_xml(data, f"{name}: {CONTAINER}", start, lambda _: None)
    if not paths:
        raise NoTextError(f"{name}: {CONTAINER} names no package")
    return paths[0]


def _spine(data: bytes, package: str, label: str) -> list[str]:
    """The paths of the pages in reading order, each once, the table of contents left out."""
    pages: dict[str, str] = {}
    order: list[str] = []

    def start(tag: str, attributes: dict[str, str]) -> None:
        if tag == "item" and attributes.get("media-type") in PAGES and "nav" not in attributes.get("properties", ""):
            path = posixpath.join(posixpath.dirname(package), unquote(attributes.get("href", "")))
            pages[attributes.get("id", "")] = posixpath.normpath(path)
        elif tag == "itemref":
            order.append(attributes.get("idref", ""))

    parse_xml(data, label, start, lambda _: None)
    return list(dict.fromkeys(pages[key] for key in order if key in pages))
