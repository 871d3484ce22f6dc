"""Questions made from sentences of a passage, with a phrase of the sentence left out: pairs without a label.

After Lewis, Denoyer and Riedel (2019, "Unsupervised Question Answering by Cloze Translation"): a phrase of a sentence is
the answer, and the rest of its clause is turned into a question by rules. Here the phrase is not kept as a label: what
the answer is, and whether there is one, a teacher says.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from quoth.augment.base import FUNCTION_WORDS, Draws, draw
from quoth.augment.sentences import sentence_spans
from quoth.augment.styles import keywords
from quoth.augment.verbs import BE, HAVE, MODAL
from quoth.data import Question

MONTHS = "January|February|March|April|May|June|July|August|September|October|November|December"
DATE = re.compile(rf"\b(?:(?:\d{{1,2}} )?(?:{MONTHS})(?: \d{{1,2}})?(?:,? \d{{4}})?|1[5-9]\d\d|20\d\d)\b(?![.,]?\d|-)")
COUNT = re.compile(
    r"\b(?:\d+(?:[.,]\d+)*|two|three|four|five|six|seven|eight|nine|ten|twelve|twenty)(?= (?P<unit>[a-z]{3,}))"
)
NUMBER = re.compile(r"(?<![\w.-])[$€£]?\d+(?:[.,]\d+)*%?(?![\w-])")
CODE = re.compile(
    r"``?[^`\n]{2,40}``?|(?<![\w-])--?[a-z][\w-]+|(?<![\w.])[A-Za-z]\w*(?:[._/]\w+)+(?:\(\))?|\b[A-Z]+_[A-Z_]+\b|"
    r"\b[A-Za-z_]\w*\(\)|[\"“][^\"”\n]{2,40}[\"”]"
)
NAME = re.compile(r"\b[A-Z][\w'’-]+(?: (?:of |the |de |van |von )?[A-Z][\w'’-]+)*")
NOUN = re.compile(r"\b(?:the|a|an|its|their|your) ((?:[a-z][\w-]+ ){0,2}[a-z][\w-]{2,})(?= (?:is|are|was|were|of|in|to|for|that|which|and|on|with|from|by|at|as|can|will|has|have)\b|[.,;:)]|$)")  # fmt: skip # noqa: E501
KINDS = {"date": DATE, "count": COUNT, "number": NUMBER, "code": CODE, "name": NAME, "noun": NOUN}
CLAUSE = re.compile(
    r"[;:()—]|,? (?:which|who|while|although|because|but|whereas|and then) |, (?=(?:and|or|so|if|when) )"
)
PLACE_BEFORE = frozenset(("in", "at", "near"))
WITH_TIME = frozenset(("in", "on", "since", "until", "by", "during", "around", "from"))
LONGEST_SENTENCE, LONGEST_QUERY, LONGEST_QUESTION = 400, 9, 22  # characters; words; words
EACH = 6  # phrases of a passage that are tried


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
    good = [one for one in sentences if len(one) <= LONGEST_SENTENCE and len(one.split()) >= 5]
    for sentence in [one for _ in range(2) for one in draws.shuffled(good)]:
        phrases = _phrases(sentence)
        made = _question(sentence, draws.pick(phrases), draws) if phrases else None
        if made is not None and made.lower() not in asked:
            asked.add(made.lower())
            yield made


def _phrases(sentence: str) -> list[Phrase]:
    """What may be left out. Every kind is there as often as the most frequent one, at most: each is drawn alike."""
    by_kind: dict[str, list[Phrase]] = {}
    for kind, form in KINDS.items():
        for found in form.finditer(sentence):
            group = 1 if kind == "noun" else 0
            start, past = (found.start(), found.end())
            if kind == "name" and (start == 0 or found.group().lower() in FUNCTION_WORDS):
                continue  # the capital says nothing
            unit = found.group("unit") if kind == "count" else ""
            if group == 0 or found.group(1) not in FUNCTION_WORDS:
                by_kind.setdefault(kind, []).append(Phrase(kind, start, past, unit))
    if "date" in by_kind:
        dates = {(one.start, one.past) for one in by_kind["date"]}
        by_kind["number"] = [one for one in by_kind.get("number", []) if (one.start, one.past) not in dates]
    most = max(map(len, by_kind.values()), default=0)
    return [group[i % len(group)] for group in by_kind.values() if group for i in range(most)]


def _question(sentence: str, phrase: Phrase, draws: Draws) -> str | None:
    begin, past = _clause(sentence, phrase)
    before, after = sentence[begin : phrase.start].strip(), sentence[phrase.past : past].strip().rstrip(".!?,;: ")
    if draws.below(2):
        asked = _fronted(before, after, phrase, draws)
        if asked is not None:
            return asked
    return _query(before, after, phrase, draws)


def _clause(sentence: str, phrase: Phrase) -> tuple[int, int]:
    """The characters of the clause around a phrase; of the whole sentence where the clause is short."""
    cuts = [found.span() for found in CLAUSE.finditer(sentence)]
    begin = max((past for _, past in cuts if past <= phrase.start), default=0)
    past = min((start for start, _ in cuts if start >= phrase.past), default=len(sentence))
    words = sentence[begin : phrase.start].split() + sentence[phrase.past : past].split()
    return (begin, past) if len(words) >= 5 else (0, len(sentence))


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
    return draws.pick(("what", "what", "which")) if phrase.kind == "noun" else "what"


def _query(before: str, after: str, phrase: Phrase, draws: Draws) -> str | None:
    """The words nearest to the phrase that say something, as typed into a search box; sometimes with the question word."""
    word = _word(before, phrase, draws)
    left, right = before.split(), after.split()
    if phrase.kind == "count" and right:
        right = right[1:]  # the unit
    half = LONGEST_QUERY
    near = " ".join([*left[-half:], *right[: half + max(0, half - len(left))]])
    found = keywords(near[:1].lower() + near[1:] if not left[:1] or left[0] in near.split()[:1] else near, 2)
    if found is None:
        return None
    kept = " ".join(found.split()[:LONGEST_QUERY])
    if phrase.kind == "count":
        return f"{word} {kept}" if draws.below(2) else f"{phrase.unit} {kept}"
    return f"{word} {kept}" if draws.below(3) == 0 else kept


def _fronted(before: str, after: str, phrase: Phrase, draws: Draws) -> str | None:
    """The question word in front, the auxiliary after it: "The mill was built in 1742" → "When was the mill built?"."""
    word, left = _word(before, phrase, draws), before.split()
    rest = after.split()[1:] if phrase.kind == "count" else after.split()
    if len(left) + len(rest) > LONGEST_QUESTION or len(left) + len(rest) < 3:
        return None
    if not left:  # the phrase is the subject
        verb = rest[0].lower() if rest else ""
        good = verb in BE | HAVE | MODAL or (verb.endswith("s") and verb.islower() and len(rest) > 2)
        return _asked([word if word != "where" else "what", *rest]) if good else None
    at = next((i for i, one in enumerate(left) if one in BE | HAVE | MODAL), None)
    if at is None or at == 0 or any("," in one for one in left[:at]):
        return None
    subject, between = left[:at], left[at + 1 :]
    if subject[0][0].isupper() and (subject[0].lower() in FUNCTION_WORDS or not subject[0][1:].islower()):
        subject[0] = subject[0].lower() if subject[0].lower() in FUNCTION_WORDS else subject[0]
    if between and word in ("when", "where", "what year") and between[-1].lower() in WITH_TIME | PLACE_BEFORE:
        between = between[:-1]
    return _asked([word, left[at], *subject, *between, *rest])


def _asked(words: list[str]) -> str:
    text = " ".join(words)
    return text[0].upper() + text[1:] + "?"
