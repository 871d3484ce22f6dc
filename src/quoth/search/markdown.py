"""Markdown: the text without its marks, the headings, and the offsets of all characters in the file.

A light reader of CommonMark's blocks (headings, lists, quotes, code, tables, paragraphs) and of its most used marks. It
does not aim at the last corner of the standard: what it does not know stays in the text as it is written.
"""

from __future__ import annotations

import html
import re
from dataclasses import dataclass, field
from itertools import pairwise

from quoth.search.document import Document, Edit, Heading, edited, line_starts
from quoth.search.text import decode_utf8

LINES = re.compile(r"[^\r\n]*(?:\r\n|\r|\n|\Z)")
FENCE = re.compile(r"[ \t]*(`{3,}|~{3,})[^`]*$")
ATX = re.compile(r"( {0,3}#{1,6}[ \t]+)(.*?)([ \t]+#*[ \t]*)?$")
SETEXT = re.compile(r" {0,3}(=+|-+)[ \t]*$")
RULE = re.compile(r" {0,3}(?:(?:\*[ \t]*){3,}|(?:-[ \t]*){3,}|(?:_[ \t]*){3,})$")
QUOTE = re.compile(r"(?: {0,3}>[ \t]?)+")
ITEM = re.compile(r"[ \t]*(?:[-*+]|\d{1,9}[.)])(?:[ \t]+(?:\[[ xX]\][ \t]+)?|$)")
INTERRUPTS = re.compile(r"[ \t]*(?:[-*+]|1[.)])[ \t]+\S")  # what a paragraph ends for
INDENTED = re.compile(r" {4}|\t")
ROW = re.compile(r"[ \t]*\|?.*\|.*$")
TABLE_RULE = re.compile(r"[ \t]*\|?[ \t]*:?-+:?[ \t]*(?:\|[ \t]*:?-+:?[ \t]*)*\|?[ \t]*$")
DEFINITION = re.compile(r" {0,3}\[[^\]\r\n]{1,200}\]:[ \t]*\S.*$")
FRONT = re.compile(r"\A---[ \t]*(?:\r\n|\r|\n)(?:(?!---)[^\r\n]*(?:\r\n|\r|\n)){0,200}?---[ \t]*(?:\r\n|\r|\n|\Z)")
INLINE = re.compile(
    r"(?P<code>(?<!`)(?P<ticks>`{1,4})(?!`)(?P<inside>[^`]+)(?P=ticks)(?!`))"
    r"|(?P<escape>\\[!-/:-@\[-`{-~])"
    r"|(?P<comment><!--.{0,1000}?-->)"
    r"|<(?P<auto>(?:https?|ftp|mailto):[^\s<>]{1,500}|[\w.+-]{1,64}@[\w.-]{1,255})>"
    r"|(?P<tag></?[a-zA-Z][^<>]{0,1000}+>)"
    r"|(?P<open>!?\[(?=[^\[\]]{0,500}+\](?:\([^()\s]{0,500}+(?:\([^()\s]{0,200}\)[^()\s]{0,1000})?"
    r"(?:\s+\"[^\"]{0,500}\")?\)|\[[^\[\]]{0,200}\])))"
    r"|(?P<close>\](?:\([^()\s]{0,500}+(?:\([^()\s]{0,200}\)[^()\s]{0,1000})?(?:\s+\"[^\"]{0,500}\")?\)|\[[^\[\]]{0,200}\]))"
    r"|(?P<entity>&(?:[a-zA-Z][a-zA-Z0-9]{1,31}|#\d{1,7}|#[xX][0-9a-fA-F]{1,6});)"
    r"|(?P<strong>\*{1,3}+(?=\S)|(?<=\S)\*{1,3}+|(?<!\w)_{1,3}+(?=\S)|(?<=\S)_{1,3}+(?!\w)|~~)",
    re.DOTALL,
)


@dataclass
class _Blocks:
    """What has been found so far: edits in the order of the source, and headings by their place in the source."""

    source: str
    edits: list[Edit] = field(default_factory=list)
    headings: list[tuple[int, int, str]] = field(default_factory=list)


def read_markdown(data: bytes, name: str) -> Document:
    """A file in Markdown."""
    source = decode_utf8(data, name)
    blocks = _Blocks(source)
    _scan(blocks)
    return edited_document(name, source, blocks.edits, blocks.headings)


def edited_document(name: str, source: str, edits: list[Edit], headings: list[tuple[int, int, str]]) -> Document:
    """What edits leave of a source. headings: place in the source, level, title; the first one is the title."""
    text, runs = edited(source, edits)
    found = moved_headings(headings, edits)
    return Document(name, text, found[0].title if found else "", found, runs, line_starts(source))


def inline_edits(source: str, start: int, end: int) -> list[Edit]:
    """What takes the marks out of [start, end), in order."""
    found: list[Edit] = []
    links = 0
    marks: list[tuple[str, int]] = []  # of emphasis that may yet be closed
    for match in INLINE.finditer(source, start, end):
        begin, past, kind = match.start(), match.end(), match.lastgroup
        if match["code"]:
            width = len(match["ticks"])
            found += (begin, begin + width, ""), (past - width, past, "")
        elif kind == "escape":
            found.append((begin, begin + 1, ""))
        elif kind == "auto":
            found += (begin, begin + 1, ""), (past - 1, past, "")
        elif kind in ("comment", "tag"):
            found.append((begin, past, "\n" if match[0].lower().startswith("<br") else ""))
        elif kind == "open":
            links += 1
            found.append((begin, past, ""))
        elif kind == "close" and links:
            links -= 1
            found.append((begin, past, ""))
        elif kind == "entity" and (known := html.unescape(match[0])) != match[0]:
            found.append((begin, past, known))
        elif kind == "strong":
            found += _emphasis(source, match, marks)
    return sorted(found)


def _emphasis(source: str, match: re.Match[str], marks: list[tuple[str, int]]) -> list[Edit]:
    """The edits of a pair of marks, if this one closes the latest of its kind; else it may open one."""
    mark, begin, past = match[0], match.start(), match.end()
    if begin and not source[begin - 1].isspace() and any(mark == one for one, _ in marks[-10:]):
        while marks[-1][0] != mark:
            marks.pop()
        _, opened = marks.pop()
        return [(opened, opened + len(mark), ""), (begin, past, "")]
    if past < len(source) and not source[past].isspace():
        marks.append((mark, begin))
    return []


def _scan(blocks: _Blocks) -> None:
    """All blocks of the file, line by line; the lines of a paragraph are gathered and end with it."""
    source = blocks.source
    front = FRONT.match(source)
    paragraph: list[tuple[int, int]] = []  # the lines of the open paragraph without marks before them
    fence, table, listed = "", False, False  # listed: the open paragraph is that of a list item
    if front and front.end():
        blocks.edits.append((0, front.end(), ""))
    for match in LINES.finditer(source, front.end() if front else 0):
        start, line = match.start(), match[0].rstrip("\r\n")
        end = start + len(line)
        if fence:
            if line.strip().startswith(fence) and not line.strip().strip(fence[0]):
                fence = ""
                blocks.edits.append((start, end, ""))
            continue
        quote = QUOTE.match(line)
        begin = start + (quote.end() if quote else 0)
        rest = source[begin:end]
        if found := FENCE.match(rest):
            _close(blocks, paragraph)
            fence = found[1]
            blocks.edits.append((start, end, ""))
        elif not rest.strip():
            _close(blocks, paragraph)
            table = False
            if quote:
                blocks.edits.append((start, begin, ""))
        elif paragraph and (found := SETEXT.match(rest)):
            _heading(blocks, paragraph, 1 if found[1][0] == "=" else 2)
            blocks.edits.append((start, end, ""))
        elif found := ATX.match(rest):
            _close(blocks, paragraph)
            level = found[1].count("#")
            blocks.edits.append((start, begin + found.end(1), ""))
            paragraph.append((begin + found.start(2), begin + found.end(2)))
            _heading(blocks, paragraph, level)
            if found[3]:
                blocks.edits.append((begin + found.start(3), end, ""))
        elif RULE.match(rest) or DEFINITION.match(rest):
            _close(blocks, paragraph)
            blocks.edits.append((start, end, ""))
        elif not paragraph and INDENTED.match(rest) and not ITEM.match(rest):
            continue  # code stays as it is
        elif TABLE_RULE.match(rest) and "|" in rest and (paragraph or table):
            _rows(blocks, paragraph)
            table = True
            blocks.edits.append((start, end, ""))
        elif table and ROW.match(rest):
            _rows(blocks, [(begin, end)])
        else:
            found = ITEM.match(rest)
            if found and paragraph and (found.end() == len(rest) or not (listed or INTERRUPTS.match(rest))):
                found = None  # a number at the beginning of a wrapped line
            if found:
                _close(blocks, paragraph)
            listed = found is not None or (listed and bool(paragraph))
            if quote and not paragraph:
                blocks.edits.append((start, begin, ""))
            paragraph.append((begin + (found.end() if found else 0), end))
    _close(blocks, paragraph)


def _close(blocks: _Blocks, paragraph: list[tuple[int, int]]) -> None:
    """The end of a paragraph: its marks go, and its lines are joined, but for hard breaks."""
    if not paragraph:
        return
    source = blocks.source
    breaks: list[Edit] = []
    for (start, end), (after, last) in pairwise(paragraph):
        line, following = source[start:end], source[after:last]
        bare = line.rstrip()
        past = start + len(bare) - bare.endswith("\\")
        begin = after + len(following) - len(following.lstrip())
        breaks.append((past, begin, "\n" if bare.endswith("\\") or line.endswith("  ") else " "))
    marks = inline_edits(source, paragraph[0][0], paragraph[-1][1])
    blocks.edits += merged(marks, breaks)
    paragraph.clear()


def merged(first: list[Edit], second: list[Edit]) -> list[Edit]:
    """All edits in order, but for those of the second list that overlap one of the first."""
    kept, i = [], 0
    for edit in second:
        while i < len(first) and first[i][1] <= edit[0]:
            i += 1
        if i == len(first) or first[i][0] >= edit[1]:
            kept.append(edit)
    return sorted(first + kept)


def _heading(blocks: _Blocks, paragraph: list[tuple[int, int]], level: int) -> None:
    """A heading: its lines are a paragraph of their own."""
    first, count = paragraph[0][0], len(blocks.edits)
    past = paragraph[-1][1]
    _close(blocks, paragraph)
    inside = [(start - first, end - first, new) for start, end, new in blocks.edits[count:]]
    title = " ".join(edited(blocks.source[first:past], inside)[0].split())
    if title:
        blocks.headings.append((first, level, title))


def _rows(blocks: _Blocks, rows: list[tuple[int, int]]) -> None:
    """Rows of a table: the bars around them go, those between cells stay."""
    for start, end in rows:
        text = blocks.source[start:end]
        inner = text.strip()
        first = start + text.index(inner) + inner.startswith("|") if inner else start
        past = start + len(text.rstrip()) - (len(inner) > 1 and inner.endswith("|") and not inner.endswith("\\|"))
        if first > start:
            blocks.edits.append((start, first, ""))
        blocks.edits.extend(inline_edits(blocks.source, first, past))
        if past < end:
            blocks.edits.append((past, end, ""))
    rows.clear()


def moved_headings(headings: list[tuple[int, int, str]], edits: list[Edit]) -> tuple[Heading, ...]:
    """Headings by their place in the text and not in the source."""
    found, moved, i = [], 0, 0
    for at, level, title in headings:
        while i < len(edits) and edits[i][1] <= at:
            moved += len(edits[i][2]) - (edits[i][1] - edits[i][0])
            i += 1
        found.append(Heading(at + moved, level, title))
    return tuple(found)
