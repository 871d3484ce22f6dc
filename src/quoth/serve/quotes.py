r"""Does this sentence stand in the documents, and where? No model is needed: every document is searched.

A quote stands in a document *exactly* if the text of the document has its characters, and *normalised* if it does after
`normalised` of both: white space, quotation marks and apostrophes, dashes, ligatures and hyphens inside words are
written in several ways, and a quote may change them. Words, numbers, case and all other marks must be the same.
A quote never stands where it would cut a word or a number: "5 euros" is not in "25 euros", "1.5 euros" or "-5 euros",
and "we can" is not in "we can't".

If it does not stand anywhere, `verify` gives the nearest sentence (`quoth.serve.quotes_nearest`).
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from itertools import islice
from typing import Literal

from quoth.errors import QuothError
from quoth.search import Collection
from quoth.search.document import Runs, edited
from quoth.search.retrieve import WIDE
from quoth.serve.quotes_nearest import Nearest, nearest

Verdict = Literal["exact", "normalised", "altered", "absent"]

LONGEST = 10_000  # characters of a quote
HELD = 50_000_000  # characters that are kept in memory between quotes
PLACES = 100  # that are looked for: more say nothing new

HYPHENS = "\\-\u2010\u2011\u2012\u2013"
LETTER = r"[^\W\d_]"
UNSEEN = "\u00ad\u200b\u200c\u200d\u2060\ufeff"  # soft hyphen, zero width space and the like
CHANGED = re.compile(
    rf"(?P<unseen>[{UNSEEN}]+)"
    rf"|(?P<hyphen>[{HYPHENS}](?<={LETTER}.)[{UNSEEN}\s]*(?={LETTER}))"
    r"|(?P<dash>\s*(?:[\u2014\u2015]|--+)\s*)"
    rf"|(?P<wide>\s(?<=[{WIDE}].)(?=[{WIDE}]))"
    r"|(?P<space>\s{2,}|[^\S ])"
    r"|(?P<quotes>''|``)"
    r"|(?P<accents>\w[\u0300-\u036f]{1,4})"
    r"|(?P<other>[^\x00-\x7f]|`)",
    re.DOTALL,
)
ACCENTS = re.compile(r"\w[\u0300-\u036f]{1,4}")  # of a million on one letter, normalising would take hours
BECOMES = {"unseen": "", "hyphen": "", "dash": " - ", "wide": "", "space": " ", "quotes": '"'}
MARKS = (
    dict.fromkeys("“”„‟«»″〝〞＂", '"')
    | dict.fromkeys("‘’‚‛‹›′ʼ´`＇", "'")
    | dict.fromkeys("\u2010\u2011\u2012\u2013\u2212", "-")
)
SPELLINGS = ("<compat>", "<wide>", "<narrow>", "<noBreak>")  # not <super>: 10² is not 102
QUOTED = re.compile(r"[\"“„«]([^\"“”„«»]+)[\"”“»]|[‘]([^‘’]+)’")
RUN = re.compile(r"[^\W_]+")
# What hides letters from a search for them: ligatures these letters, wide letters all.
LIGATURES, LIGATURE = re.compile("[\ufb00-\ufb06]"), re.compile("f[filt]|st")
WIDE_LETTERS = re.compile("[\uff10-\uff5a]")
ANCHOR = 20  # letters of the longest word that are looked for
MARGIN = 300  # characters around it that are normalised, beside twice those of the quote
NUMBER_BEFORE = re.compile(r"\d[.,]\Z|(?:\A|[\s(])[-+\u2013\u2212]\Z")
NUMBER_AFTER = re.compile(r"[.,]\d")
WORD_BEFORE = re.compile(rf"[^\W{WIDE}](?:['’])?\Z")
WORD_AFTER = re.compile(rf"(?:['’])?[^\W{WIDE}]")
IS_WORD = re.compile(rf"[^\W{WIDE}]")


@dataclass(frozen=True)
class QuotePlace:
    """The characters [start, end) of a document, which are the quote, exactly or normalised."""

    document: int
    start: int
    end: int
    exact: bool


@dataclass(frozen=True)
class Verified:
    """What was found of a quote.

    - places: where it stands, at most `PLACES`; those that are exact first, else in the order of the documents
    - more: whether there may be further places
    - nearest: if it stands nowhere, the sentence or sentences most like it, None if none is like it
    """

    places: list[QuotePlace]
    more: bool
    nearest: Nearest | None

    @property
    def verdict(self) -> Verdict:
        """In one word."""
        if self.places:
            return "exact" if self.places[0].exact else "normalised"
        return "altered" if self.nearest else "absent"


class Texts:
    """The texts of a collection, for several quotes: the first `HELD` characters of them are kept in memory."""

    def __init__(self, collection: Collection) -> None:
        self.collection = collection
        self._kept: dict[int, str] = {}
        self._left = HELD

    def __getitem__(self, number: int) -> str:
        text = self._kept.get(number)
        if text is None:
            text = self.collection.document(number).text
            if len(text) <= self._left:
                self._kept[number] = text
                self._left -= len(text)
        return text


def verify(quote: str, collection: Collection, texts: Texts | None = None) -> Verified:
    """Where a quote stands in the documents, or what is nearest to it. texts: those of the collection."""
    quote = check_quote(quote)
    texts = texts or Texts(collection)
    places: list[QuotePlace] = []
    for number in range(len(collection)):
        found = find_quote(quote, texts[number], PLACES + 1 - len(places))
        places += (QuotePlace(number, *place) for place in found)
        if len(places) > PLACES:
            break
    if places:
        shown = sorted(places[:PLACES], key=lambda place: not place.exact)
        return Verified(shown, len(places) > PLACES, None)
    near = nearest(quote, collection, normalised)
    if near and not near.differences and _whole(texts[near.document], near.start, near.end):
        return Verified([QuotePlace(near.document, near.start, near.end, False)], True, None)  # "word ," is "word,"
    return Verified([], False, near)


def check_quote(quote: str) -> str:
    """The quote without white space and quotation marks around it; an error if it is too long or has no word."""
    quote = quote.strip()
    if found := QUOTED.fullmatch(quote):
        quote = (found[1] or found[2]).strip()
    if len(quote) > LONGEST:
        raise QuothError(f"the quote has {len(quote):,} characters; at most {LONGEST:,} are taken: give a part of it")
    if not any(char.isalnum() for char in quote):
        raise QuothError("the quote has no words")
    return quote


def find_quote(quote: str, text: str, at_most: int = PLACES) -> list[tuple[int, int, bool]]:
    """The characters [start, end) of a text that are a quote, and whether exactly; in order, without overlap."""
    exact = ((start, start + len(quote), True) for start in _occurrences(quote, text))
    found = list(islice((place for place in exact if _whole(text, *place[:2])), at_most))
    found += islice(_find_normalised(quote, text), at_most)
    return _apart(found)[:at_most]


@lru_cache(maxsize=1 << 16)
def _spelling(char: str) -> str:
    """One character, or one with its accents, as it is compared."""
    if char in MARKS:
        return MARKS[char]
    if unicodedata.decomposition(char[0]).startswith(SPELLINGS) or len(char) > 1:
        return unicodedata.normalize("NFKC" if len(char) == 1 else "NFC", char)
    return char


def normalised(text: str) -> str:
    """A text as it is compared."""
    return CHANGED.sub(_replacement, text)


def _replacement(found: re.Match[str]) -> str:
    kind = found.lastgroup or ""
    return BECOMES[kind] if kind in BECOMES else _spelling(found[0])


def _edits(text: str) -> Iterator[tuple[int, int, str]]:
    for found in CHANGED.finditer(text):
        new = _replacement(found)
        if new != found[0]:
            yield found.start(), found.end(), new


def _find_normalised(quote: str, text: str) -> Iterator[tuple[int, int, bool]]:
    wanted, letters = _wanted(quote)
    for begin, past in _chunks(wanted, text):
        chunk = text[begin:past]
        if letters not in _letters(chunk):
            continue
        changed, runs = edited(chunk, _edits(chunk))
        for first in _occurrences(wanted, changed):
            place = _source(runs, changed, first, first + len(wanted))
            if place is not None and _whole(chunk, *place):
                start, end = begin + place[0], begin + place[1]
                yield start, end, text[start:end] == quote


def _source(runs: Runs | None, changed: str, first: int, past: int) -> tuple[int, int] | None:
    """Where [first, past) of a normalised text comes from; None if it cuts a word there.

    It does not where something between words has gone: "pre- and post-war" has become "preand postwar".
    """
    if runs is None:
        return first, past
    start, end = runs.source(first, past, len(changed))
    if not _begins(changed, first) and runs.source(first - 1, first, len(changed))[1] >= start:
        return None
    if not _ends(changed, past) and runs.source(past, past + 1, len(changed))[0] <= end:
        return None
    return start, end


def _chunks(wanted: str, text: str) -> Iterator[tuple[int, int]]:
    """The characters [begin, past) of a text, in order and apart, outside of which a normalised quote cannot stand.

    Normalising takes some hundred times as long as looking for its longest word, with hyphens and white space in it.
    """
    hidden = LIGATURE if not text.isascii() and LIGATURES.search(text) else None
    words = [word for word in RUN.findall(wanted) if unicodedata.is_normalized("NFD", word)]
    words = [word for word in words if hidden is None or not hidden.search(word)]
    if not words or (not text.isascii() and WIDE_LETTERS.search(text)):
        yield 0, len(text)
        return
    longest = re.compile(f"[{HYPHENS}{UNSEEN}\\s]*".join(map(re.escape, max(words, key=len)[:ANCHOR])))
    margin = MARGIN + 2 * len(wanted)
    begin = past = 0
    for found in longest.finditer(text):
        low, high = found.start() - margin, found.end() + margin
        if low > past:
            if past:
                yield begin, past
            begin = low
        past = min(len(text), high)
    if past:
        yield begin, past


@lru_cache(maxsize=8)
def _wanted(quote: str) -> tuple[str, str]:
    """A quote as it is compared, and its letters and digits."""
    wanted = normalised(quote).strip()
    return wanted, _letters(wanted)


def _letters(text: str) -> str:
    """The letters and digits of a text as they are compared: what a quote must have in common with it.

    Finding them takes a tenth of the time of normalising.
    """
    if not text.isascii():
        text = "".join(map(_spelling, ACCENTS.sub(lambda found: _spelling(found[0]), text)))
    return "".join(RUN.findall(text))


def _occurrences(part: str, text: str) -> Iterator[int]:
    """Where a part occurs in a text, without overlap."""
    place = text.find(part)
    while place >= 0:
        yield place
        place = text.find(part, place + len(part))


def _apart(places: Iterable[tuple[int, int, bool]]) -> list[tuple[int, int, bool]]:
    """In order, without those that overlap another; an exact one goes before one that is not."""
    found: list[tuple[int, int, bool]] = []
    for place in sorted(set(places), key=lambda place: (not place[2], place)):
        if not any(place[0] < other[1] and other[0] < place[1] for other in found):
            found.append(place)
    return sorted(found)


def _whole(text: str, start: int, end: int) -> bool:
    """Whether [start, end) of a text begins and ends between words and between numbers."""
    return _begins(text, start) and _ends(text, end)


def _begins(text: str, start: int) -> bool:
    before = text[max(0, start - 8) : start].rstrip(UNSEEN)[-2:]
    if text[start].isdigit() and NUMBER_BEFORE.search(before):
        return False
    return not (IS_WORD.match(text[start]) and WORD_BEFORE.search(before))


def _ends(text: str, end: int) -> bool:
    after = text[end : end + 8].lstrip(UNSEEN)[:2]
    if text[end - 1].isdigit() and NUMBER_AFTER.match(after):
        return False
    return not (IS_WORD.match(text[end - 1]) and WORD_AFTER.match(after))
