"""Questions of the opposite meaning: a word replaced by its antonym, a negation added or removed (`negation`).

Rajpurkar et al. (2018, table 1) call them antonym and negation. The opposite must not stand in the passage, and where a
negation is put in the passage must have none of its own: then it does not say who did *not*.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from itertools import pairwise

from quoth.augment.base import Negative, Passage, gather, passages_of, stem
from quoth.data import Question

WORD = re.compile(r"[^\W_]+(?:[-'’][^\W_]+)*")

# Words that are each other's opposites. Words with a second sense that a swap would break are left out (last, left).
PAIRS = """
largest/smallest highest/lowest longest/shortest oldest/youngest earliest/latest best/worst fastest/slowest
strongest/weakest richest/poorest hottest/coldest larger/smaller longer/shorter older/younger
stronger/weaker faster/slower maximum/minimum majority/minority major/minor northern/southern eastern/western
north/south east/west northeast/southwest northwest/southeast northeastern/southwestern northwestern/southeastern
increase/decrease increases/decreases increased/decreased increasing/decreasing rose/fell
victory/defeat victories/defeats accepted/rejected accept/reject allowed/prohibited allow/prohibit
allows/prohibits supported/opposed supports/opposes supporters/opponents included/excluded
include/exclude includes/excludes legal/illegal successful/unsuccessful popular/unpopular
common/uncommon male/female men/women boys/girls positive/negative advantage/disadvantage
advantages/disadvantages import/export imports/exports imported/exported internal/external
public/private urban/rural permanent/temporary natural/artificial encouraged/discouraged encourage/discourage
superior/inferior formal/informal official/unofficial strengths/weaknesses friends/enemies friend/enemy
agreed/disagreed agree/disagree praised/criticized liked/disliked father/mother son/daughter brother/sister
sons/daughters husband/wife king/queen necessary/unnecessary
before/after above/below inside/outside summer/winter
"""
ONE_WAY = """
first/last most/least higher/lower won/lost win/lose biggest/smallest tallest/shortest bigger/smaller greater/smaller
domestic/foreign approved/rejected ancient/modern gained/lost wettest/driest warmest/coldest
"""
BARRED = re.compile(  # two words in a row in which a swap would make no sense, or leave the answer where it was
    r"(named|called|looked?|soon|shortly|years?|happen\w*|occurr\w*) (after|before)|(after|before) how|"
    r"most (of|recent\w*)|first names?|at first|best known|in common|in support|public opinion|"
    r"(?!(the|s|is|are|was|were) )\w+ most"  # it may mean "nearly all"
)
AUXILIARIES = {
    "did": "didn't", "does": "doesn't", "do": "don't", "can": "can't", "could": "couldn't", "would": "wouldn't",
    "should": "shouldn't", "will": "won't",
}  # fmt: skip
BE = {"was": "wasn't", "were": "weren't", "is": "isn't", "are": "aren't"}
PLAIN = {negated: plain for plain, negated in (AUXILIARIES | BE).items()} | {"cannot": "can"}
PARTICIPLE = re.compile(r"\w+(ed|[^d]en|wn|ung|ght|ade|eld|uilt|ost|old|ept)")
NEGATION = re.compile(r"(?i)\b(no|not|never|none|nor|neither|cannot|without|except|unlike|instead|\w+n['’]t)\b")
LACK = re.compile(r"(?i)\b(lack\w*|fail\w*|refus\w*|reject\w*|exclud\w*|avoid\w*|opposed|rather than|other than)\b")
# Of which one would not ask what was *not*: moments, ways, numbers, meanings, one of a few.
UNASKED = re.compile(
    r"(?i)\b(when|how|where|why|which of|stands? for|mean|name|called|known as|"
    r"year|date|time|day|month|century|decade|age)\b"
)
DOER = re.compile(r"Who (?=(\w+ed|wrote|won|led|became|made|gave|took|built|held|said|ran|brought|taught|saw)\b)")
OPENING = re.compile(r"(?i)(who|what|which|why)( \w+){0,3} ")  # where the negation of a main clause stands


def _opposites() -> dict[str, str]:
    there = dict(pair.split("/") for pair in f"{PAIRS} {ONE_WAY}".split())
    back = {other: word for word, other in (pair.split("/") for pair in PAIRS.split())}
    return back | there


OPPOSITES = _opposites()


def negation(questions: Sequence[Question], count: int, seed: int = 0) -> list[Negative]:
    """At most `count` questions of the opposite meaning: by an antonym where there is one, else by a negation."""
    passages = passages_of(questions)

    def attempt(question: Question, draw: int) -> tuple[str, Passage] | None:
        passage = passages[question.context]
        found = list(_swapped(question.question, passage)) or list(_negated(question.question, passage))
        return (found[draw % len(found)], passage) if found else None

    return gather(questions, count, "negation", seed, attempt)


def _swapped(text: str, passage: Passage) -> Iterator[str]:
    """The question, if nothing negates it, with a word exchanged for its opposite; one with a capital is a name."""
    words = [] if NEGATION.search(text) else list(WORD.finditer(text))
    for i, word in enumerate(words):
        other = OPPOSITES.get(word.group())
        if other is None or stem(other) in passage.stems:
            continue
        before, after = (words[k].group().lower() if 0 <= k < len(words) else "" for k in (i - 1, i + 1))
        pairs = (f"{before} {word.group()}", f"{word.group()} {after}")
        if any(map(BARRED.fullmatch, pairs)) or f" {other}" in text:
            continue
        if before in ("a", "an") and (other[0] in "aeiou") != (before == "an"):
            continue
        yield text[: word.start()] + other + text[word.end() :]


def _negated(text: str, passage: Passage) -> Iterator[str]:
    """The question with a negation put in, after its auxiliary or before its verb, or with its only one taken out."""
    own = list(NEGATION.finditer(text))
    if len(own) == 1 and OPENING.fullmatch(text[: own[0].start()]) and not text[own[0].end() :].startswith(" only"):
        yield from _without(text, own[0])
    if own or UNASKED.search(text) or NEGATION.search(passage.context) or LACK.search(passage.context):
        return
    words = list(WORD.finditer(text))
    for word, after in pairwise(words):
        negated = AUXILIARIES.get(word.group())
        if negated is None and PARTICIPLE.fullmatch(after.group()):
            negated = BE.get(word.group())
        if negated and after.group() not in AUXILIARIES | BE:
            yield text[: word.start()] + negated + text[word.end() :]
            return
    if DOER.match(text):
        yield f"Who never {text.removeprefix('Who ')}"


def _without(text: str, negation: re.Match[str]) -> Iterator[str]:
    word = negation.group()
    if word.lower() in PLAIN:
        yield text[: negation.start()] + PLAIN[word.lower()] + text[negation.end() :]
    elif word in ("not", "never") and text[: negation.start()].endswith(" "):
        yield text[: negation.start() - 1] + text[negation.end() :]
