"""The first pass over HTML: where tags and texts stand. What is left is a small page with a number for each text."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass

from quoth.search.word_sets import word_set

LEVELS = 2000  # of elements inside each other; deeper tags are left out, their text is not. lexbor is quadratic in it
ATTRIBUTES = 4000  # characters of a tag's attributes that are looked at
TAG = re.compile(r"<(/?)([a-zA-Z][^\s/>]*+)((?:[^>=]++|=\s*+(?:\"[^\"]*+\"|'[^']*+')?+)*+)>")
ATTRIBUTE = re.compile(r"([^\s=/>\"']+)(?:\s*=\s*(\"[^\"]*\"|'[^']*'|[^\s>\"']+))?")
NAME = re.compile(r"[a-z][a-z0-9-]{0,30}\Z")
NOT_SHOWN = re.compile(r"display\s*:\s*none|visibility\s*:\s*hidden", re.IGNORECASE)
RAW = {
    name: re.compile(rf"</{name}(?=[\s/>])", re.IGNORECASE)
    for name in ("script", "style", "title", "textarea", "xmp", "iframe", "noembed", "noframes")
}
LEFT_OUT = word_set(
    "script style nav noscript template select datalist svg canvas audio video object iframe noembed noframes applet",
    "annotation annotation-xml",
)
VOID = word_set("area base br col embed hr img input link meta param source track wbr")
CLOSED_BY_OTHERS = word_set("p li dt dd td th tr tbody thead tfoot colgroup option optgroup rp rt")
FORMATTING = word_set("a b big code em font i nobr s small strike strong tt u")


@dataclass(frozen=True)
class Marked:
    """A page without attributes, each text of it as its number and ";". spans: the texts [start, end) in the file."""

    html: str
    spans: list[tuple[int, int]]


def mark(source: str, xml: bool = False) -> Marked:
    """The page with numbers for texts. xml: <a/> is <a></a>, as in XHTML"""
    pieces: list[str] = []
    spans: list[tuple[int, int]] = []
    opened: Counter[str] = Counter()
    xml = xml or source[:100].lstrip().startswith("<?xml")

    def text(start: int, end: int) -> None:
        if start == end:
            return
        if (chunk := source[start:end]).isspace():
            pieces.append(chunk)
        else:
            pieces.append(f"{len(spans)};")
            spans.append((start, end))

    begin = place = 0
    while (place := source.find("<", place)) >= 0:
        tag = TAG.match(source, place)
        if tag is None:
            past = _past_other(source, place)
            if past is None:  # a "<" that is text
                place += 1
                continue
            text(begin, place)
            begin = place = past
            continue
        text(begin, place)
        begin = place = tag.end()
        closing, name = bool(tag[1]), tag[2].lower()
        if NAME.match(name) is None:
            name = "span"
        empty = xml and not closing and tag[3].endswith("/")
        written = _written(tag, closing, name, opened, empty)
        if name in RAW and not closing and not empty:
            ends = RAW[name].search(source, place)
            end = ends.start() if ends else len(source)
            if name in ("title", "textarea", "xmp"):
                pieces.append(f"<{'pre' if name == 'xmp' else name}>")
                text(place, end)
                pieces.append(f"</{'pre' if name == 'xmp' else name}>")
            begin = place = source.find(">", end) + 1 or len(source)
        else:
            pieces.append(written)
    text(begin, len(source))
    return Marked("".join(pieces), spans)


def _past_other(source: str, place: int) -> int | None:
    """Where a comment, a declaration or an unfinished tag at `place` ends; None if it is none of them."""
    if source.startswith("<!--", place):
        end = source.find("-->", place + 2)
        return end + 3 if end >= 0 else len(source)
    following = source[place + 1 : place + 2]
    if following and following in "!?/":
        return source.find(">", place) + 1 or len(source)
    return len(source) if following.isascii() and following.isalpha() else None


def _written(tag: re.Match[str], closing: bool, name: str, opened: Counter[str], empty: bool) -> str:
    """The tag without its attributes, or nothing where it would lie too deep."""
    counts = name not in VOID and name not in CLOSED_BY_OTHERS and name not in FORMATTING
    if closing:
        if counts and not opened[name]:
            return "" if name not in ("br", "p") else tag[0]
        opened[name] -= counts
        return f"</{name}>"
    if counts and not empty:
        if opened.total() >= LEVELS:
            return ""
        opened[name] += 1
    shown = name in ("html", "body") or not _is_hidden(tag[3])
    return f"<{name}{'' if shown else ' hidden'}>{f'</{name}>' if empty and name not in VOID else ''}"


def _is_hidden(attributes: str) -> bool:
    """Whether an element says that it is not shown, or that it is for finding the way about."""
    if len(attributes) < 5:
        return False
    for name, value in ATTRIBUTE.findall(attributes[:ATTRIBUTES]):
        name, value = name.lower(), value.strip("\"'").lower()
        if name == "hidden" and value != "until-found":
            return True
        if (name, value) in (("aria-hidden", "true"), ("role", "navigation"), ("role", "search")):
            return True
        if (name == "style" and NOT_SHOWN.search(value)) or (name == "class" and "headerlink" in value.split()):
            return True
    return False
