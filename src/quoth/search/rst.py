"""reStructuredText: the text without its marks, the headings, and the offsets of all characters in the file.

A light reader: sections, paragraphs, lists, literal blocks, tables, the usual directives and marks. docutils would
build the whole tree, but does not keep the place of a character.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from itertools import pairwise

from quoth.search.document import Document, Edit, edited
from quoth.search.markdown import edited_document, merged
from quoth.search.text import decode_utf8
from quoth.search.word_sets import word_set

ADORNMENT = re.compile(r"([!-/:-@\[-`{-~])\1{2,}[ \t]*$")
ITEM = re.compile(r"(?:[-*+•]|(?:\(?(?:\d+|[a-zA-Z]|[ivxIVX]+|#)[.)]))[ \t]+(?=\S)|:[^:\s][^:]{0,80}:(?=\s|$)|\|[ \t]")
EXPLICIT = re.compile(r"\.\.(?:[ \t]+|$)")
DIRECTIVE = re.compile(r"\.\.[ \t]+(?:\|[^|]{1,100}\|[ \t]+)?([\w:.+-]{1,60}?)[ \t]?::[ \t]*")
FOOTNOTE = re.compile(r"\.\.[ \t]+\[[^\]]{1,60}\][ \t]+")
OPTION = re.compile(r":[\w -]{1,40}:(?=\s|$)")
TABLE = re.compile(r"\+[-=+]{2,}|\||={2,}[ \t=]*$")
BORDER = re.compile(r"(?:\+[-=+]+|=+(?:[ \t]+=+)*|-+(?:[ \t]+-+)*)[ \t]*$")
VERBATIM = word_set("code code-block sourcecode literalinclude parsed-literal doctest productionlist")
KEPT = word_set(
    "note warning tip hint important caution danger attention error admonition seealso versionadded versionchanged",
    "deprecated versionremoved topic sidebar epigraph rubric centered function method class attribute data exception",
    "option envvar program describe glossary container compound list-table csv-table table",
)
INLINE = re.compile(
    r"(?P<literal>``(?P<code>[^`]{1,500}(?:`[^`]{1,500}){0,5})``)"
    r"|(?P<role>(?::[\w:+.-]{1,60}:)?`(?P<words>[^`<]{1,500}?)(?:\s*<(?P<target>[^`<>]{1,500})>)?`_{0,2}(?::[\w:+.-]{1,60}:)?)"
    r"|(?P<strong>(?<![\w*])(?P<stars>\*{1,2})(?=\S)(?P<inside>[^*]{1,500}?)(?<=\S)(?P=stars)(?![\w*]))"
)


@dataclass
class _Line:
    start: int  # of the text after the indentation
    end: int
    indent: int
    text: str


@dataclass
class _State:
    """Edits and headings in the order of the source; the indentation above which lines are verbatim or dropped."""

    source: str
    edits: list[Edit] = field(default_factory=list)
    headings: list[tuple[int, int, str]] = field(default_factory=list)
    styles: list[str] = field(default_factory=list)
    verbatim: int | None = None
    dropped: int | None = None


def read_rst(data: bytes, name: str) -> Document:
    """A file in reStructuredText."""
    source = decode_utf8(data, name)
    state = _State(source)
    for block in _blocks(source):
        _read_block(state, block)
    return edited_document(name, source, state.edits, state.headings)


def _blocks(source: str) -> list[list[_Line]]:
    """Lines that follow each other without an empty one between them."""
    blocks: list[list[_Line]] = []
    last = -3
    for match in re.finditer(r"[^\r\n]+", source):
        raw = match[0]
        bare = raw.strip()
        if not bare:
            continue
        indent = len(raw) - len(raw.lstrip())
        line = _Line(match.start() + indent, match.start() + indent + len(bare), indent, bare)
        between = source[last : match.start()] if last >= 0 else "\n\n"
        if max(between.count("\n"), between.count("\r")) > 1:
            blocks.append([])
        blocks[-1].append(line)
        last = line.end
    return blocks


def _read_block(state: _State, lines: list[_Line]) -> None:
    for attribute in ("verbatim", "dropped"):
        limit = getattr(state, attribute)
        if limit is None:
            continue
        inside = [line for line in lines if line.indent > limit]
        if len(inside) < len(lines) or not inside:
            setattr(state, attribute, None)
        if inside and lines[0].indent > limit:
            outside = next((i for i, line in enumerate(lines) if line.indent <= limit), len(lines))
            if attribute == "dropped":
                _drop(state, lines[:outside])
            lines = lines[outside:]
    while lines:
        lines = lines[_read_some(state, lines) :]


def _read_some(state: _State, lines: list[_Line]) -> int:
    """Read the beginning of a block, and say how many lines that were."""
    for i in range(min(2, len(lines))):  # an overline, the title, the line under it
        if _is_heading(lines, i):
            _heading(state, lines, i)
            return i + 2
    if ADORNMENT.match(lines[0].text) and len(lines) == 1:  # a transition
        _drop(state, lines)
        return 1
    if EXPLICIT.match(lines[0].text):
        return _explicit(state, lines)
    if TABLE.match(lines[0].text):
        for line in lines:
            if BORDER.match(line.text):
                _drop(state, [line])
            else:
                state.edits += inline_edits(state.source, line.start, line.end)
        return len(lines)
    count = next((i for i in range(1, len(lines)) if EXPLICIT.match(lines[i].text)), len(lines))
    _paragraph(state, lines[:count])
    return count


def _is_heading(lines: list[_Line], i: int) -> bool:
    """Whether line i is a title: the next line underlines it, and with i = 1 the one before it overlines it."""
    if i + 1 >= len(lines) or not ADORNMENT.match(lines[i + 1].text) or ADORNMENT.match(lines[i].text):
        return False
    if i == 1:
        return lines[0].text == lines[2 if len(lines) > 2 else 0].text and len(lines) > 2 and lines[2].indent == 0
    return lines[0].indent == 0 and len(lines[1].text) >= min(4, len(lines[0].text))


def _heading(state: _State, lines: list[_Line], i: int) -> None:
    style = f"{lines[i + 1].text[0]}{i}"
    if style not in state.styles:
        state.styles.append(style)
    if i:
        _drop(state, lines[:1])
    line = lines[i]
    marks = inline_edits(state.source, line.start, line.end)
    inside = [(start - line.start, end - line.start, new) for start, end, new in marks]
    title = " ".join(edited(line.text, inside)[0].split())
    state.headings.append((line.start, state.styles.index(style) + 1, title))
    state.edits += marks
    _drop(state, lines[i + 1 : i + 2])


def _explicit(state: _State, lines: list[_Line]) -> int:
    """A directive, a target or a comment: what is for the reader stays."""
    first = lines[0]
    own = next((i for i in range(1, len(lines)) if lines[i].indent <= first.indent), len(lines))
    found = DIRECTIVE.match(first.text) or FOOTNOTE.match(first.text)
    name = (found[1] if found and found.re is DIRECTIVE else "footnote").rsplit(":", 1)[-1]
    if not found or (name not in KEPT and name not in VERBATIM and name != "footnote"):
        state.dropped = first.indent
        _drop(state, lines[:own])
        return own
    options = next((i for i in range(1, own) if not OPTION.match(lines[i].text)), own)
    if name in VERBATIM:
        state.verbatim = first.indent
        _drop(state, lines[:options])
        return own
    state.edits.append((first.start, first.start + found.end(), ""))
    rest = _Line(first.start + found.end(), first.end, first.indent, first.text[found.end() :])
    kept = [rest] if rest.text else []
    if options > 1:
        if kept:
            _paragraph(state, kept)
            kept = []
        _drop(state, lines[1:options])
    elif kept and own > 1:
        rest.indent = lines[1].indent
    _paragraph(state, kept + lines[options:own])
    return own


def _paragraph(state: _State, lines: list[_Line]) -> None:
    """Lines of a paragraph or a list: marks go, wrapped lines are joined."""
    if not lines:
        return
    breaks: list[Edit] = []
    begins = lines[0].indent
    listed = ITEM.match(lines[0].text) is not None
    for line, following in pairwise(lines):
        if found := ITEM.match(line.text):
            begins = line.indent + found.end()
        elif line.indent != begins:
            begins = line.indent
        if not (listed and ITEM.match(following.text)) and (
            following.indent == begins or following.indent == line.indent
        ):
            breaks.append((line.end, following.start, " "))
            begins = following.indent
    marks = inline_edits(state.source, lines[0].start, lines[-1].end)
    last = lines[-1]
    if last.text.endswith("::"):
        state.verbatim = min(line.indent for line in lines)
        marks.append((last.end - (2 if last.text == "::" else 1), last.end, ""))
    state.edits += merged(marks, breaks)


def inline_edits(source: str, start: int, end: int) -> list[Edit]:
    """What takes the marks out of [start, end), in order."""
    found: list[Edit] = []
    for match in INLINE.finditer(source, start, end):
        kept = "code" if match["literal"] else "words" if match["role"] else "inside"
        first, past = match.span(kept)
        if kept == "words" and match[kept][0] in "~!":
            first += 1
        found += (match.start(), first, ""), (past, match.end(), "")
    return found


def _drop(state: _State, lines: list[_Line]) -> None:
    state.edits += [(line.start, line.end, "") for line in lines]
