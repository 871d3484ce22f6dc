r"""Sentences of a text whose line ends are real ones.

A sentence ends at a line end, or after . ! ? … (with quotes and brackets that close there) before white space. A full
stop does not end one after an abbreviation ("e.g.", "Dr.", "No. 5"), an initial ("J. Smith"), letters with stops
("U.S."), the number of a list item ("1. First"). Those that may also end a sentence ("etc.", "U.S.") do so before a
word that often begins one ("The"). A stop inside a word (3.5, setup.py, an address, a version) has no space after it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from quoth.search.word_sets import word_set

SENTENCE = 500  # characters on either side of an answer that its sentence may have: some texts have no full stop

STOP = re.compile(r"[.!?…]+[\"'”’»)\]]*(?=\s)|[。！？]+[」』”’）]*")
LINE = re.compile(r"[^\r\n]+")
WORD_BEFORE = re.compile(r"[\w.&'’-]+\Z")
NEXT = re.compile(r"\s*[\"'“‘«(\[]*(\S*)")
ITEM = re.compile(r"\s*[(\[]?(?:\d{1,3}|[a-zA-Z]|[ivxIVX]{1,5})(?:\.\d{1,3})*\.\Z")

# No sentence ends with these; with those of the second line it may, before a capital letter.
NEVER = word_set(
    "e.g i.e cf viz vs mr mrs ms dr prof rev hon gov sen rep gen col lt capt sgt st mt ft messrs mme mlle",
    "fig figs eq eqs sec secs ch chap vol vols p pp par art no nos nr tab ref refs ed eds trans cf ca approx resp",
    "incl excl esp dept univ assn bros jan feb mar apr jun jul aug sep sept oct nov dec al z.b d.h bzw nr abb vgl",
)
MAYBE = word_set("etc inc ltd co corp llc jr sr esq u.s u.k u.n u.s.a e.u a.m p.m a.d b.c ph.d m.d b.a m.a al")
BEFORE_NUMBER = word_set("no nos nr fig figs eq eqs sec secs ch chap vol vols p pp par art tab ref refs")
ALSO_WORDS = word_set("no art par tab ref")
STARTERS = word_set(
    "The This That These Those It Its In On At He She We They You I A An If When While As For From To By With But And",
    "So However Then There Here What Who Why How Where After Before Since Because Although Our Their His Her My Your",
    "No Not Each Every All Some Most Many Such Also Thus Once Until Unless Use See Note Both Another One Two",
)


def split_sentences(text: str) -> list[tuple[int, int]]:
    """All sentences, [first, past) each, in order, without the white space around them."""
    found = []
    for line in LINE.finditer(text):
        first = line.start()
        for past in (*_ends(text, line.start(), line.end()), line.end()):
            span = _stripped(text, first, past)
            if span[0] < span[1]:
                found.append(span)
            first = past
    return found


def sentence_around(text: str, start: int, end: int) -> tuple[int, int]:
    """The characters [first, past) of the sentence around [start, end), or of all sentences that it lies in.

    A sentence without an end is cut off, `SENTENCE` characters before and after. At least [start, end) is given.
    """
    low, high = max(0, start - SENTENCE), min(len(text), end + SENTENCE)
    first = max(text.rfind("\n", low, start), text.rfind("\r", low, start)) + 1 or low
    ends = [place for place in (text.find("\n", end, high), text.find("\r", end, high)) if place >= 0]
    past = min(ends, default=high)
    for place in _ends(text, first, past):
        if place <= start:
            first = place
        elif place >= end:
            past = place
            break
    while first < start and text[first].isspace():
        first += 1
    while past > end and text[past - 1].isspace():
        past -= 1
    return first, past


def _stripped(text: str, first: int, past: int) -> tuple[int, int]:
    while first < past and text[first].isspace():
        first += 1
    while past > first and text[past - 1].isspace():
        past -= 1
    return first, past


def _ends(text: str, begin: int, past: int) -> Iterator[int]:
    """Where sentences end within [begin, past), which is one line or a part of one."""
    first = begin
    for match in STOP.finditer(text, begin, past):
        if match[0][0] in "。！？" or _ends_sentence(text, first, match, past):
            yield match.end()
            first = match.end()


def _begins_line(text: str, place: int) -> bool:
    return place == 0 or text[place - 1] in "\r\n"


def _ends_sentence(text: str, first: int, match: re.Match[str], past: int) -> bool:
    """Whether a sentence that began at `first` ends with this stop."""
    before = text[max(first, match.start() - 40) : match.start()]
    following = NEXT.match(text, match.end(), past)
    word = following[1] if following else ""
    if match[0][0] != ".":
        return not word[:1].islower()  # "What?" he asked.
    found = WORD_BEFORE.search(before)
    last = found[0] if found else ""
    if match[0].startswith(".."):
        return not word[:1].islower()
    if _begins_line(text, first) and match.start() - first <= 10 and ITEM.match(text[first : match.start() + 1]):
        return False
    lower = last.lower().lstrip("'’-")
    if lower in BEFORE_NUMBER and not word[:1].isdigit():
        return lower in ALSO_WORDS and word[:1].isupper()  # "He said no. Then …"
    starts = word.rstrip(",;:") in STARTERS
    if lower in MAYBE or re.fullmatch(r"(?:\w\.)+\w", last) or (len(last) == 1 and last.isupper()):
        return starts if lower not in NEVER else False
    if lower in NEVER:
        return False
    return not (word[:1].islower() and len(last) <= 4 and last.isalpha())
