"""HTML: the visible text in its blocks, the headings, and the offsets of all characters in the file.

lexbor (selectolax) builds the tree as a browser does, but does not say where a text stood in the file. So the file is
gone through twice. The first pass (`markup.py`) finds tags and texts, and writes a small page: tags without their
attributes, and for each text its number. lexbor parses that, and the numbers lead from the tree back to the file.
Attributes by the megabyte and tags inside each other by the thousand, which lexbor takes long for, never reach it.
"""

from __future__ import annotations

import codecs
import html
import re
from html.entities import html5

from selectolax.lexbor import LexborHTMLParser, LexborNode

from quoth.search.builder import Builder
from quoth.search.document import Document, line_starts
from quoth.search.failure import NoTextError
from quoth.search.markup import LEFT_OUT, mark
from quoth.search.word_sets import word_set

MOST = 64 << 20  # bytes of a file
BLOCKS = word_set(
    "address article aside blockquote body caption center dd details dialog dir div dl dt fieldset figcaption figure",
    "footer form frameset h1 h2 h3 h4 h5 h6 header hgroup hr html li main menu ol optgroup option p pre search section",
    "summary table tbody tfoot thead title ul",
)
LINES = word_set("li dt dd option br summary")  # one line end and not two before and after
CELLS = word_set("td th")
HEADINGS = {f"h{level}": level for level in range(1, 7)}
META = re.compile(
    rb"<meta[^>]{0,500}?charset\s*=\s*[\"']?\s*([\w.:-]{1,40})|<\?xml[^>]{0,200}?encoding\s*=\s*[\"']([\w.:-]{1,40})",
    re.I,
)
WHITE = " \t\n\f\r"
MARKS = re.compile(r"(\d+);|([ \t\n\f\r]+)")
REFERENCE = re.compile(r"&(?:#[xX][0-9a-fA-F]{1,8};?|#\d{1,9};?|[a-zA-Z][a-zA-Z0-9]{1,31};?)")
CHANGED = re.compile(rf"[ ]*[\t\n\f\r][ \t\n\f\r]*|[ ]{{2,}}|{REFERENCE.pattern}")


def read_html(data: bytes, name: str) -> Document:
    """A file in HTML or XHTML."""
    source = decode_html(data, name)
    found = html_text(source)
    return Document(name, found.text, found.title, tuple(found.headings), found.runs.made(), line_starts(source))


def decode_html(data: bytes, name: str) -> str:
    """The characters of a file: by its byte order mark, as UTF-8, as it says itself, or as Windows-1252."""
    if len(data) > MOST:
        raise NoTextError(f"{name}: holds more than {MOST:,} bytes of HTML")
    for mark_, encoding in (
        (codecs.BOM_UTF8, "utf-8"),
        (codecs.BOM_UTF16_LE, "utf-16-le"),
        (codecs.BOM_UTF16_BE, "utf-16-be"),
    ):
        if data.startswith(mark_):
            return data[len(mark_) :].decode(encoding, "replace")
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError:
        said = META.search(data[:4096])
        label = ((said[1] or said[2]).decode() if said else "") or "cp1252"
    try:
        known = codecs.lookup(label)
        text = data.decode("cp1252" if known.name in ("iso8859-1", "ascii") else known.name, "replace")
    except (LookupError, ValueError):
        text = data.decode("cp1252", "replace")
    return text


def html_text(source: str, found: Builder | None = None, xml: bool = False) -> Builder:
    """The visible text of a page, put after what was found before it. xml: it is XHTML"""
    marked = mark(source, xml)
    found = Builder() if found is None else found
    root = LexborHTMLParser(marked.html).root
    if root is not None:
        _walk(root, source, marked.spans, found)
    return found


def _walk(root: LexborNode, source: str, spans: list[tuple[int, int]], found: Builder) -> None:
    """All nodes in order, without recursion: a page may have thousands of levels."""
    heading: tuple[int, int] | None = None  # the number of pieces where the open heading begins, and its level
    pre, down = 0, True
    node: LexborNode = root
    while True:
        tag = node.tag or "-"
        if not down:
            if tag == "tr":
                found.end_row()
            _edge(found, tag)
            pre -= tag == "pre"
            if tag in HEADINGS and heading:
                found.end_heading(*heading)
                heading = None
            elif tag == "title" and not found.title:
                found.title = " ".join(found.text.split())
        elif tag == "-text":
            _put_node(node.text(deep=False) or "", source, spans, found, pre > 0)
        elif tag[0] != "-" and tag not in LEFT_OUT and "hidden" not in node.attributes:
            if tag == "tr":
                found.start_row()
            _edge(found, tag)
            if tag in CELLS:
                found.next_cell()
            if (child := node.child) is not None:
                pre += tag == "pre"
                heading = (len(found.pieces), HEADINGS[tag]) if tag in HEADINGS else heading
                node = child
                continue
            _edge(found, tag)
        if node.mem_id == root.mem_id:
            return
        following = node.next
        down = following is not None
        parent = following or node.parent
        if parent is None:
            return
        node = parent


def _edge(found: Builder, tag: str) -> None:
    """The white space at the beginning and the end of an element."""
    if tag in LINES:
        found.gap("\n")
    elif tag in BLOCKS:
        found.gap("\n\n")


def _put_node(marks: str, source: str, spans: list[tuple[int, int]], found: Builder, pre: bool) -> None:
    """A node of text: numbers of texts, and white space between tags."""
    for number, space in MARKS.findall(marks):
        if number:
            (_put_pre if pre else _put_text)(found, source, *spans[int(number)])
        else:
            found.gap(space.replace("\r\n", "\n").replace("\r", "\n") if pre else " ")


def _put_text(found: Builder, source: str, start: int, end: int) -> None:
    """Characters of a paragraph: white space of any length is one space, references are what they stand for."""
    raw = source[start:end]
    first, past = start + len(raw) - len(raw.lstrip(WHITE)), start + len(raw.rstrip(WHITE))
    if first > start:
        found.gap(" ")
    done = first
    for match in CHANGED.finditer(source, first, past):
        found.put(source[done : match.start()], done, match.start(), exact=True)
        if match[0][0] in WHITE:
            done = match.end()
            found.put(" ", match.start(), done, exact=done - match.start() == 1)
        else:
            done = _put_reference(found, match)
    found.put(source[done:past], done, past, exact=True)
    if past < end:
        found.gap(" ")


def _put_pre(found: Builder, source: str, start: int, end: int) -> None:
    """Characters as they stand; only empty lines at the beginning and the end become gaps."""
    raw = source[start:end]
    first, past = start + len(raw) - len(raw.lstrip("\r\n")), start + len(raw.rstrip())
    if first > start:
        found.gap("\n" * min(2, len(source[start:first].splitlines())))
    done = first
    for match in REFERENCE.finditer(source, first, past):
        found.put(source[done : match.start()], done, match.start(), exact=True)
        done = _put_reference(found, match)
    found.put(source[done:past], done, past, exact=True)
    if 0 <= past < end:
        found.gap(source[past:end].replace("\r\n", "\n").replace("\r", "\n"))


def _put_reference(found: Builder, match: re.Match[str]) -> int:
    """What a reference stands for (a soft hyphen: for nothing), and where it ends: that of "&ltab" after "&lt"."""
    reference = match[0]
    if reference[1] != "#" and reference[1:] not in html5:
        known = (
            reference[: length + 1] for length in range(len(reference) - 1, 1, -1) if reference[1 : length + 1] in html5
        )
        reference = next(known, "")
    if not reference:  # no reference: an "&" and letters
        found.put(match[0], match.start(), match.end(), exact=True)
        return match.end()
    past = match.start() + len(reference)
    found.put(html.unescape(reference).replace("\xa0", " ").replace("\xad", ""), match.start(), past, exact=False)
    return past
