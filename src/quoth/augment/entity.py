"""Questions about something else: a name, year or number of the question is replaced by another one (`entity`).

Rajpurkar et al. (2018, table 1) call it an entity swap; Gautam et al. (2023) found it one of the two edits that help.
What is swapped stands in the question and in its passage. What takes its place is of the same kind, is seen between
like words, comes from the same article if it can, and none of its words stands in the passage.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass

import numpy as np

from quoth.augment.base import WORD, Negative, Passage, gather, is_article, passages_of, stem
from quoth.data import Question

TOKEN = re.compile(
    r"(?:[A-Z]\.)+(?=\s?\w|[,?;])|\b(?:St|Mt|Dr|Mr|Mrs|Jr|Sr)\.|\d+(?:[.,]\d+)*\w*|[^\W_]+(?:[-&][^\W_]+)*|[^\w\s]"
)
INNER = ("of the", "of", "de la", "de", "von", "van", "du")  # join two capitalised words to one name
JOINTS = frozenset(f" {inner} " for inner in INNER)
PARTS = frozenset(("what", "which", "whose", "s", "&", "-", "/"))  # beside these a name is part of something else
MONTH = re.compile("January|February|March|April|May|June|July|August|September|October|November|December")
DAY = re.compile("(Mon|Tues|Wednes|Thurs|Fri|Satur|Sun)day")
DIGITS = {"year": r"1\d{3}|20\d\d", "decade": r"\d{3}0s", "ordinal": r"\d+(st|nd|rd|th)", "number": r"\d+([.,]\d+)*"}
SAME = (
    frozenset(("us", "usa", "america", "american", "americans", "united", "states")),
    frozenset(("uk", "britain", "british", "england", "english", "great", "united", "kingdom")),
)  # what one word of a set is said of, may be said of another
WIDE = frozenset(("europe", "asia", "africa", "america", "americas", "world", "earth", "god", "west", "east", "south"))
TITLES = re.compile(
    "(Sir|Lord|King|Queen|Prince|Emperor|Pope|President|Saint|Father|Church|House|State|City|University).?"
)
# What the answer goes with, or is not: "besides Luther, who …"; and names inside others: "Destiny's Child".
BESIDE = re.compile(
    r"(?i)\b(than|besides|aside from|addition to|along with|apart from|instead of|unlike|and|or)( the)? $"
)
INSIDE = re.compile(r"['’]s [^\W\d_a-z]")
RANGE = re.compile(r"\b(1\d{3}|20\d\d)s?(?: |\b)(?:to|and|until|till|through|–|—|-) ?(\d\d(?:\d\d)?)\b")
SINCE = re.compile(r"\b(?:since|from|after) (?:\w+ )?(1\d{3}|20\d\d)\b", re.IGNORECASE)
VOWELS = frozenset("AEIOUaeiou8")  # with which "an" goes
OFTEN = 3  # times that a name must have been seen: less says too little of its kind
FEATURES = 1000  # the most common words around names, which tell kinds apart
SLOT = 2  # times that the words around the mention itself count
SHRINK = 60.0  # the squared length at which a vector of surroundings is halved in its square
CLOSEST = 5  # of the names most alike, from which one is drawn
ALIKE = 0.3  # the least likeness of a name that comes in
NEAR = 0.75  # of the best likeness: what a name of the same article must have to be preferred


@dataclass(frozen=True, slots=True)
class Mention:
    """A name or number in a text: the words before and after it in lower case, and two on each side as features."""

    text: str
    start: int
    before: str
    after: str
    around: tuple[str, ...]


def mentions(text: str) -> list[Mention]:
    """Capitalised words in a row, and tokens with digits. A word that begins a sentence is no name by its capital."""
    tokens = list(TOKEN.finditer(text))
    found: list[Mention] = []
    i = 0
    while i < len(tokens):
        j = _end_of_name(text, tokens, i) if _capital(tokens, i) else i + tokens[i].group()[0].isdigit()
        name = text[tokens[i].start() : tokens[j - 1].end()] if j > i else ""
        if len(WORD.findall(name)) and (name[0].isdigit() or sum(map(str.isalpha, name)) > 1):
            places = {"<": i - 1, ">": j, "<<": i - 2, ">>": j + 1}
            words = {side: tokens[k].group().lower() for side, k in places.items() if 0 <= k < len(tokens)}
            around = tuple(side + word for side, word in words.items())
            found.append(Mention(name, tokens[i].start(), words.get("<", ""), words.get(">", ""), around))
        i = max(j, i + 1)
    return found


def _capital(tokens: list[re.Match[str]], i: int) -> bool:
    """Whether a token has a capital that its place does not explain."""
    begins = i == 0 or tokens[i - 1].group() in '.?!:"“'
    return tokens[i].group()[0].isupper() and not begins


def _end_of_name(text: str, tokens: list[re.Match[str]], i: int) -> int:
    """The token past a name that begins at token i."""
    j = i + 1
    while j < len(tokens):
        inner = next((n for n in (0, 1, 2) if j + n < len(tokens) and _joined(text, tokens[j - 1 : j + n + 1])), None)
        if inner is None:
            break
        j += inner + 1
    return j


def _joined(text: str, tokens: list[re.Match[str]]) -> bool:
    """Whether the last token goes on with the name that ends in the first: a capital, a blank or "of the" between."""
    between = text[tokens[0].end() : tokens[-1].start()]
    return tokens[-1].group()[0].isupper() and (between == " " or between in JOINTS)


def kind(name: str) -> str:
    """What a name or number is, as far as its letters tell."""
    if name[0].isdigit():
        return next((key for key, form in DIGITS.items() if re.fullmatch(form, name)), "other")
    if MONTH.fullmatch(name) or DAY.fullmatch(name):
        return "day" if DAY.fullmatch(name) else "month"
    acronym = len(name) > 1 and name.replace(".", "").isupper()
    plural = name.endswith("s") and not name.endswith("ss") and " " not in name
    return "acronym" if acronym else "plural" if plural else "name"


class Names:
    """The names and numbers of a dataset, and what stands around them.

    - seen: how often each was seen; with_the: of the common ones, (n,), how often after "the"
    - common: the n that were seen at least OFTEN times; kinds: (n,) theirs; articles: in which they stand, by title
    """

    def __init__(self, passages: Sequence[Passage], questions: Sequence[Question]) -> None:
        self.around: dict[str, Counter[str]] = defaultdict(Counter)
        self.seen: Counter[str] = Counter()
        found: dict[str, set[str]] = defaultdict(set)
        for text, title in [(p.context, p.title) for p in passages] + [(q.question, q.title) for q in questions]:
            for mention in mentions(text):
                self.seen[mention.text] += 1
                self.around[mention.text].update(mention.around)
                found[title].add(mention.text)
        for name in self.seen:
            words = WORD.findall(name)
            self.around[name].update((f"^{words[0]}", f"${words[-1]}"))
        self.common = [name for name, count in self.seen.items() if count >= OFTEN]
        self.kinds = np.array([kind(name) for name in self.common])
        self.with_the = np.array([self.around[name]["<the"] / self.seen[name] for name in self.common])
        self._sizes = np.array([len(name) for name in self.common])
        self._vowels = np.array([name[0] in VOWELS for name in self.common], bool)
        self._in = {title: np.array([name in names for name in self.common], bool) for title, names in found.items()}
        spread = Counter(feature for name in self.common for feature in self.around[name])
        self._columns = {feature: i for i, (feature, _) in enumerate(spread.most_common(FEATURES))}
        self._idf = np.log(1 + len(self.common) / np.array([spread[f] for f in self._columns], np.float32))
        self._rows = {name: i for i, name in enumerate(self.common)}
        empty = np.zeros((0, len(self._columns)), np.float32)
        self._counts = np.concatenate([empty, *(self._count(self.around[name])[None] for name in self.common)])
        self._by_feature = np.ascontiguousarray(self._weigh(self._counts).T)  # (features, n)

    def of_article(self, title: str) -> np.ndarray:
        """Which of the common names stand in an article, (n,); none where the title names no article."""
        return self._in[title] if is_article(title) else np.zeros(len(self.common), bool)

    def fitting(self, mention: Mention) -> np.ndarray:
        """Which of the common names are of a mention's kind and go with the article before it, (n,)."""
        good = self.kinds == kind(mention.text)
        if mention.text[0].isdigit():
            good &= self._sizes == len(mention.text)
        else:
            good &= self.with_the > 0.5 if mention.before == "the" else self.with_the < 0.3
        if mention.before in ("a", "an"):
            good &= self._vowels == (mention.before == "an")
        return np.asarray(good, bool)

    def likeness(self, mention: Mention) -> np.ndarray:
        """How alike the surroundings of the common names are to those of a mention, (n,)."""
        row = self._rows.get(mention.text)
        wanted = self._count(self.around[mention.text]) if row is None else self._counts[row].copy()
        wanted += self._count(Counter(dict.fromkeys(mention.around, SLOT)))
        vector = self._weigh(wanted[None])[0]
        (there,) = vector.nonzero()  # a few dozen of the features
        return np.asarray(vector[there] @ self._by_feature[there])

    def _count(self, around: Counter[str]) -> np.ndarray:
        counts = np.zeros(len(self._columns), np.float32)
        for feature, count in around.items():
            if feature in self._columns:
                counts[self._columns[feature]] = count
        return counts

    def _weigh(self, counts: np.ndarray) -> np.ndarray:
        """log(1 + count) · idf of each neighbour, (m, features), shortened to below 1: the less known, the shorter."""
        weights = np.log1p(counts) * self._idf
        return np.asarray(weights / np.sqrt(np.square(weights).sum(1, keepdims=True) + SHRINK), np.float32)


def entity(questions: Sequence[Question], count: int, seed: int = 0) -> list[Negative]:
    """At most `count` questions in which a name or number of the passage is exchanged for one that is not in it."""
    passages = passages_of(questions)
    names = Names(list(passages.values()), questions)

    def attempt(question: Question, draw: int) -> tuple[str, Passage] | None:
        passage = passages[question.context]
        found = [m for m in mentions(question.question) if _free(m, question.question) and _stands(m.text, passage)]
        for i in range(len(found)):
            mention = found[(draw + i) % len(found)]
            other = _other(mention, question, passage, names, draw >> 32)
            if other:
                return _replaced(question.question, mention.text, other), passage
        return None

    return gather(questions, count, "entity", seed, attempt)


def _free(mention: Mention, text: str) -> bool:
    """Whether a mention stands by itself, and is what the question asks about."""
    part = {mention.before, mention.after} & PARTS or INSIDE.match(text, mention.start + len(mention.text))
    return not part and not BESIDE.search(text[: mention.start]) and not TITLES.fullmatch(mention.text)


def _stands(name: str, passage: Passage) -> bool:
    """Whether a name stands in the passage, and is not a common word there too."""
    return bool(_whole(name).search(passage.context)) and (
        name[0].isdigit() or " " in name or not _whole(name.lower()).search(passage.context)
    )


def _whole(name: str) -> re.Pattern[str]:
    return re.compile(rf"(?<!\w){re.escape(name)}(?!\w)")


def _replaced(text: str, name: str, other: str) -> str:
    return _whole(name).sub(lambda _: other, text)


def _other(mention: Mention, question: Question, passage: Passage, names: Names, draw: int) -> str | None:
    """What takes the place of a mention: one of those most alike, of its article if they are nearly as alike."""
    likeness = np.where(names.fitting(mention), names.likeness(mention), -1)
    least = ALIKE if kind(mention.text) in ("name", "plural", "acronym") else 0.0  # of a number its digits tell enough
    taken = passage.stems | set(map(stem, WORD.findall(f"{question.question} {question.title.replace('_', ' ')}")))
    near = names.of_article(question.title)
    chosen: list[tuple[bool, float, str]] = []
    for i in np.argsort(-likeness, kind="stable").tolist():
        name, best = names.common[i], chosen[0][1] if chosen else 0.0
        if likeness[i] < max(least, NEAR * best):
            break
        if not (near[i] or len(chosen) < CLOSEST) or not _is_new(name, mention.text, taken):
            continue
        joined = {f"{name} {mention.text}", f"{mention.text} {name}"} & names.seen.keys()
        if not joined and not _is_within(name, passage.context):
            chosen.append((bool(near[i]), float(likeness[i]), name))
    chosen = [one for one in chosen if one[0]] or chosen
    return chosen[draw % min(len(chosen), CLOSEST)][2] if chosen else None


def _is_within(name: str, context: str) -> bool:
    """Whether a year lies in a span of years that the text names."""
    if kind(name) != "year":
        return False
    spans = ((first, first[: 4 - len(last)] + last) for first, last in RANGE.findall(context))
    return any(first <= name <= last for first, last in spans) or any(first <= name for first in SINCE.findall(context))


def _is_new(name: str, old: str, taken: AbstractSet[str]) -> bool:
    """Whether a name means something else than the old one, and no word of it is taken.

    Words at the same place in both are not looked at: "Lake Ontario", "Lake Superior". A name of half the world is
    never new: what is said of France is said of Europe.
    """
    mine, theirs = (WORD.findall(text.lower().replace(".", "")) for text in (name, old))
    if set(mine) & WIDE or TITLES.fullmatch(name) or any(set(mine) | set(theirs) <= same for same in SAME):
        return False
    if len(mine) == len(theirs):
        mine = [m for m, t in zip(mine, theirs, strict=True) if m != t]
    return bool(mine) and not taken & set(map(stem, mine))
