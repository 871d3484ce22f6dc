"""Questions made from sentences of a passage, with a phrase of the sentence left out: pairs without a label.

After Lewis, Denoyer and Riedel (2019, "Unsupervised Question Answering by Cloze Translation"): a phrase of a sentence
is the answer, and the rest of its clause is turned into a question by rules. Here the phrase is not kept as a label:
what the answer is, and whether there is one, a teacher says.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain

from quoth.augment.base import FUNCTION_WORDS, Draws, draw, word_set
from quoth.augment.sentences import sentence_spans
from quoth.augment.styles import keywords
from quoth.augment.verbs import ADVERBS, BE, HAVE, MODAL, PAST_FORMS, THIRD_FORMS, inverted
from quoth.data import Question

MONTHS = "January|February|March|April|May|June|July|August|September|October|November|December"
DATE = re.compile(rf"\b(?:(?:\d{{1,2}} )?(?:{MONTHS})(?: \d{{1,2}})?(?:,? \d{{4}})?|1[5-9]\d\d|20\d\d)\b(?![.,]?\d|-)")
COUNT = re.compile(
    r"\b(?:\d+(?:[.,]\d+)*|two|three|four|five|six|seven|eight|nine|ten|twelve|twenty)"
    r"(?= (?P<unit>[a-z]{2,}[^s\W]s|people|percent)\b)"
)
NUMBER = re.compile(r"(?<![\w.-])[$€£]?\d+(?:[.,]\d+)*%?(?![\w-])")
CODE = re.compile(
    r"``?[^`\n]{2,40}``?|(?<![\w-])--?[a-z][\w-]+|(?<![\w.])[A-Za-z]\w*(?:[._/]\w+)+(?:\(\))?|\b[A-Z]+_[A-Z_]+\b|"
    r"\b[A-Za-z_]\w*\(\)|[\"“][^\"”\n]{2,40}[\"”]"
)
NAME = re.compile(r"\b[A-Z][\w'’-]+(?: (?:of |the |de |van |von )?[A-Z][\w'’-]+)*")
NOUN = re.compile(
    r"\b(?:[Tt]he|[Aa]n?|[Ii]ts|[Tt]heir|[Yy]our) (?P<noun>(?:[a-z][\w-]+ ){0,2}[a-z][\w-]{2,})"
    r"(?= (?:is|are|was|were|of|in|to|for|that|which|and|on|with|from|by|at|as|can|will|has|have)\b|[.,;:)]|$)"
)
KINDS = {"date": DATE, "count": COUNT, "number": NUMBER, "code": CODE, "name": NAME, "noun": NOUN}
CLAUSE = re.compile(  # bullets and cells of tables too: the lines of a paragraph are joined
    r"[;:()\[\]{}—\n]| [-*•|+#] |[.?!]\s|"
    r",? (?:which|who|while|although|because|but|whereas|and then) |, (?=(?:and|or|so|if|when) )"
)
PLACE_BEFORE = frozenset(("in", "at", "near"))
WITH_TIME = frozenset(("in", "on", "since", "until", "by", "during", "around", "from"))
LONGEST_SENTENCE, LONGEST_CLAUSE, LONGEST_QUERY, FEWEST = 400, 16, 8, 3  # characters of a sentence, else words
KEEP = 2  # a draw for `keywords`: add nothing
# Words with which a clause does not begin with its subject.
OPENINGS = word_set(
    "in on at to for from by with as after before during when while if since because although and or but "
    "is are was were has have had can will that which who"
)
EACH = 6  # questions of a passage
TRIES = 4  # phrases of a sentence


@dataclass(frozen=True)
class Phrase:
    """What is left out of a sentence: its kind, its characters in the sentence, the unit after a count."""

    kind: str
    start: int
    past: int
    unit: str = ""


def cloze(passages: Sequence[str], count: int, seed: int = 0) -> list[Question]:
    """At most `count` questions, each of one of the passages, without a label.

    Passages are taken in an order drawn by the seed. Each gives its first question before any gives its second: fewer
    questions are the beginning of more.
    """
    distinct = {_name(text): text for text in passages}
    order = sorted(distinct, key=lambda name: draw(seed, "order of cloze", name))
    lists = {name: _questions(distinct[name], Draws(draw(seed, "cloze", name))) for name in order}
    made: list[Question] = []
    for number in range(EACH):
        for name in order:
            if len(made) >= count:
                return made
            found = next(lists[name], None)
            if found is not None:
                made.append(Question(f"{name}-cloze-{number + 1}", found, distinct[name], ()))
    return made


def _name(text: str) -> str:
    return hashlib.blake2b(text.encode(errors="surrogatepass"), digest_size=8).hexdigest()


def _questions(text: str, draws: Draws) -> Iterator[str]:
    """Different questions about a passage, of different sentences as far as there are some."""
    asked: set[str] = set()
    sentences = [text[begin:past] for begin, past in sentence_spans(text)]
    good = [one for one in sentences if len(one) <= LONGEST_SENTENCE and len(one.split()) >= 5 and _wordy(one)]
    for sentence in [one for _ in range(2) for one in draws.some(good, len(good))]:
        phrases = _phrases(sentence)
        made = _question(sentence, [draws.pick(phrases) for _ in range(TRIES)], draws) if phrases else None
        if made is not None and made.lower() not in asked:
            asked.add(made.lower())
            yield made


def _wordy(sentence: str) -> bool:
    """Whether it is made of words, not of formulas or code."""
    return sum(character.isalpha() or character == " " for character in sentence) >= 0.85 * len(sentence)


def _phrases(sentence: str) -> list[Phrase]:
    """What may be left out. Every kind is there as often as the most frequent one, at most: each is drawn alike."""
    by_kind: dict[str, list[Phrase]] = {}
    for kind, form in KINDS.items():
        for found in form.finditer(sentence):
            first = found.group().split()[0].lower()
            if kind == "name" and (first in FUNCTION_WORDS or (found.start() == 0 and " " not in found.group())):
                continue  # the capital says nothing
            if kind == "noun" and found.group("noun") in FUNCTION_WORDS:
                continue
            unit = found.group("unit") if kind == "count" else ""
            by_kind.setdefault(kind, []).append(Phrase(kind, found.start(), found.end(), unit))
    if "date" in by_kind:
        dates = {(one.start, one.past) for one in by_kind["date"]}
        by_kind["number"] = [one for one in by_kind.get("number", []) if (one.start, one.past) not in dates]
    most = max(map(len, by_kind.values()), default=0)
    return [group[i % len(group)] for group in by_kind.values() if group for i in range(most)]


def _question(sentence: str, phrases: Sequence[Phrase], draws: Draws) -> str | None:
    """A question about the first of some phrases of which one can be made, in two of three cases; else keywords."""
    parts = []
    for phrase in phrases:
        begin, past = _clause(sentence, phrase)
        before, after = sentence[begin : phrase.start].strip(), sentence[phrase.past : past].strip()
        parts.append((before, after.rstrip(".!?,;: "), phrase))
    asked = (_fronted(*part, draws) for part in parts if draws.below(3))
    queries = (_query(*part, draws) for part in parts)
    return next((one for one in chain(asked, queries) if one is not None), None)


def _clause(sentence: str, phrase: Phrase) -> tuple[int, int]:
    """The characters of the clause around a phrase."""
    cuts = [found.span() for found in CLAUSE.finditer(sentence)]
    begin = max((past for _, past in cuts if past <= phrase.start), default=0)
    past = min((start for start, _ in cuts if start >= phrase.past), default=len(sentence))
    return begin, max(past, phrase.past)


def _word(before: str, phrase: Phrase, draws: Draws) -> str:
    """The question word that fits a phrase."""
    last = before.split()[-1].lower() if before else ""
    if phrase.kind == "count":
        return f"how many {phrase.unit}"
    if phrase.kind == "date":
        return draws.pick(("when", "when", "what year"))
    if phrase.kind == "name":
        where = draws.pick(("where", "what")) if last in PLACE_BEFORE else ""
        return where or (draws.pick(("who", "what")) if last in ("by", "") else "what")
    return "what"


def _query(before: str, after: str, phrase: Phrase, draws: Draws) -> str | None:
    """The words of the clause nearest to the phrase, as typed into a search box; sometimes with the question word."""
    word = _word(before, phrase, draws)
    left, right = before.split(), after.split()[phrase.kind == "count" :]  # without the unit
    near = [*left[-LONGEST_CLAUSE:], *right[:LONGEST_CLAUSE]]
    if near and near[0].lower() in FUNCTION_WORDS:
        near[0] = near[0].lower()
    while near and near[-1].lower() in FUNCTION_WORDS:
        near.pop()
    found = keywords(" ".join(near), KEEP)
    if found is None or len(found.split()) < FEWEST:
        return None
    some = len(keywords(" ".join(left[-LONGEST_CLAUSE:]), KEEP) or "")
    kept = found.split()
    begin = max(0, len(found[:some].split()) - LONGEST_QUERY // 2) if len(kept) > LONGEST_QUERY else 0
    query = " ".join(kept[begin : begin + LONGEST_QUERY])
    if phrase.kind == "count":
        return f"{word if draws.below(2) else phrase.unit} {query}"
    return f"{word} {query}" if draws.below(3) == 0 else query


def _fronted(before: str, after: str, phrase: Phrase, draws: Draws) -> str | None:
    """The question word in front, the auxiliary after it: "The mill was built in 1742" → "When was the mill built?"."""
    word = _word(before, phrase, draws)
    left, rest = before.rpartition(", ")[2].split(), after.split()
    if len(left) == 1 and left[0].lower() in WITH_TIME | PLACE_BEFORE and after.startswith(","):
        left, rest = after.strip(", ").split(", ")[0].split(), []  # "In 1742, the mill was built"
    elif phrase.kind == "count":
        rest = rest[1:]  # the unit
    rest = " ".join(rest).split(", ")[0].split()
    if not FEWEST <= len(left) + len(rest) <= LONGEST_CLAUSE:
        return None
    if not left:  # the phrase is the subject
        return _asked([word, *rest]) if rest[0] in BE | HAVE | MODAL | PAST_FORMS | THIRD_FORMS else None
    if left[0].lower() in FUNCTION_WORDS:
        left[0] = left[0].lower()
    joined = left[-1] in ("and", "or") or (rest and rest[0] in ("and", "or", "of"))  # part of something larger
    found = inverted(left) if left[0] not in OPENINGS | ADVERBS and not joined else None
    if found is None:
        return None
    auxiliary, others = found
    if word in ("when", "where", "what year") and others[-1].lower() in WITH_TIME | PLACE_BEFORE:
        others = others[:-1]
    return _asked([word, auxiliary, *others, *rest])


def _asked(words: list[str]) -> str | None:
    """The words as a question, if two of them at least say something."""
    if sum(word.lower() not in FUNCTION_WORDS for word in words) < 2:
        return None
    text = " ".join(words)
    return text[0].upper() + text[1:] + "?"
