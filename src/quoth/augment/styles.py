"""Questions as people write them: without a question mark, as keywords, as orders, in lower case (`restyle`).

The answer stays: only the question's words are rewritten. Which questions are rewritten, and how, is drawn by the seed
and the question's id.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from quoth.augment.base import Rewriter, draw, rewrite, word_set
from quoth.augment.imperative import imperative
from quoth.data import Question

EDGES = "\"'“”‘’„«»()[]{}<>.,;:!?¿¡…–—-*`"  # left out at the edges of words
ASKING = {"what", "which", "whose", "whom", "why", "how", "who", "when", "where"}
LEFT_OUT = (
    word_set("""
a an the is was are were am be been being do does did done has have had will would can could should may might must shall
of in on at to for from by with as into onto upon about and or that this these those it its they their them he his him
she her there then than so such also some any we our us you your i my me if
""")
    | ASKING
)
JOINTS = word_set("of and the for de la &")  # inside a name they stay: "Bank of England"
STRANDED = word_set("for from of after with to in by on at as into")  # at the end they stay: "what was he known for"
KEPT = re.compile(r"(?:^|, )\W*(?i:(?:about|for|approximately) )?((?i:who|when|where)|(?i:how (?:many|much)))\b")
NOUNS = {
    "when": ("date", "year"),
    "where": ("location", "place"),
    "how many": ("number of",),
    "how much": ("amount of",),
}
MEASURES = re.compile(
    r"(?i)how (old|long|far|high|tall|large|big|deep|often|fast|wide|hot|cold|heavy|close|soon|late)\b"
)
FEWEST = 2  # words of a query: one word says too little


def no_mark(question: str, _: int = 0) -> str | None:
    """Without the question mark at the end."""
    text = question.rstrip()
    bare = text.rstrip("? ")
    return bare if text.endswith("?") and bare.strip(EDGES) else None


def lower(question: str, _: int = 0) -> str | None:
    """In lower case."""
    text = question.lower()
    return text if text != question and text.strip() else None


def keywords(question: str, draw: int) -> str | None:
    """The words that are typed into a search box, in lower case.

    Of half of the questions "who", "when", "where" and "how many" are kept, of a quarter they become "date", "place" …
    """
    tokens = [(word, word.strip(EDGES)) for word in question.split()]
    words = [bare for _, bare in tokens if bare]
    kept = [word.lower() for i, word in enumerate(words) if not _left_out(words, i)]
    if len(kept) < FEWEST or not any(map(str.isalpha, "".join(kept))):
        return None
    measure, asked = MEASURES.search(question), KEPT.search(question)
    if measure:  # "how" was left out, "old" was not
        kept = [f"how {word}" if word == measure.group(1).lower() else word for word in kept]
    elif asked:
        kept = _with_word(kept, asked.group(1).lower(), draw)
    return " ".join(kept)


def _left_out(words: Sequence[str], i: int) -> bool:
    """Whether a word says nothing to a search: a stop word that is neither inside a name nor at the end."""
    word = re.sub(r"['’](s|re|d|ll|ve)$", "", words[i].lower())
    if word not in LEFT_OUT or (i and words[i][0].isupper()):  # "WHO", "Doctor Who"
        return bool(i and word in ("many", "much") and words[i - 1].lower() == "how")
    if word in STRANDED and i == len(words) - 1:
        return False
    return not (word in JOINTS and _inside_name(words, i))


def _inside_name(words: Sequence[str], i: int) -> bool:
    """Whether a capitalised word stands before and after, with nothing but joints between, and "of" or "and" begins."""
    first, last = i, i
    while first > 0 and words[first - 1].lower() in JOINTS:
        first -= 1
    while last + 1 < len(words) and words[last + 1].lower() in JOINTS:
        last += 1
    if first < 2 or last + 1 >= len(words) or words[first].lower() in ("the", "for"):
        return False
    return words[first - 1][0].isupper() and words[last + 1][0].isupper()


def _with_word(kept: list[str], asked: str, draw: int) -> list[str]:
    nouns = NOUNS.get(asked)
    if draw & 1:
        return [*asked.split(), *kept]
    if not nouns or draw & 2:
        return kept
    noun = nouns[(draw >> 2) % len(nouns)]
    return [noun, *kept] if " " in noun else [*kept, noun]


Style = Callable[[str, int], str | None]
"""From a question and a draw (64 random bits) to its new words, or None where the style does not fit."""

STYLES: dict[str, Style] = {"imperative": imperative, "keywords": keywords, "no_mark": no_mark, "lower": lower}


def restyle(questions: Sequence[Question], fractions: Mapping[str, float], seed: int = 0) -> list[Question]:
    """The same questions in the same order, a fraction of them in each style, no question in two.

    fractions: by a style's name, such as {"no_mark": 0.3}; together at most 1. Questions are tried in an order drawn by
    the seed until there are enough: fewer are rewritten where a style does not fit more.
    """
    ways = {name: _restyled(name, style, seed) for name, style in STYLES.items()}
    return rewrite(questions, fractions, "style", seed, ways)


def _restyled(name: str, style: Style, seed: int) -> Rewriter:
    def rewritten(question: Question) -> Question | None:
        text = style(question.question, draw(seed, name, question.id))
        return None if text is None else replace(question, question=text)

    return rewritten
