"""What the modules of `quoth.augment` share: random draws, the words of a passage, how questions are rewritten."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TypeVar

import numpy as np

from quoth.data import Question, normalise

Item = TypeVar("Item")
WORD = re.compile(r"\w+")


def word_set(text: str) -> frozenset[str]:
    """The words of a text that lists them."""
    return frozenset(text.split())


LONGEST_STEM = 5  # letters: "populated" and "population" are one word here
LITTLE = """
a about after all also although among an and another any are as at be became because become been before being between
both but by called can could did do does done during each first for from had has have he her him his how if in into is
it its kind last like made main many may meant might more most much must name named new next not number of on one only
or other out over own part people she should since so some such than that the their them then there these they thing
things this those through time to two type under until up used using very was way well were what when where which while
who whom whose why will with would year years you
"""
COUNTED = "zero one two three four five six seven eight nine ten eleven twelve"
FUNCTION_WORDS = word_set(LITTLE)  # words that say little by themselves
NUMBERS = {word: str(number) for number, word in enumerate(COUNTED.split())}


@dataclass(frozen=True, slots=True)
class Negative:
    """A new question that its passage does not answer. maker: the rule; source: the id that it was made from."""

    question: Question
    maker: str
    source: str


class Passage:
    """A passage and its words, computed when they are first needed."""

    def __init__(self, context: str, title: str) -> None:
        self.context, self.title = context, title
        self.asked: set[str] = set()

    @cached_property
    def normal(self) -> str:
        """As the official score sees it."""
        return normalise(self.context)

    @cached_property
    def words(self) -> frozenset[str]:
        """All words, in lower case."""
        return frozenset(map(str.lower, WORD.findall(self.context)))

    @cached_property
    def stems(self) -> frozenset[str]:
        """The beginnings of all words."""
        return frozenset(map(stem, self.words))

    def may_answer(self, golds: Sequence[str], question: frozenset[str]) -> bool:
        """Whether a gold text stands here, or half of the words that it has beyond the question's stems.

        A gold without any word stands everywhere. Inside a word counts too: "1990" in "1990s".
        """
        for gold in golds:
            if normalise(gold) in self.normal:
                return True
            words = content(gold) or {stem(word) for word in WORD.findall(gold)}
            own = words - question or words
            if 2 * len(own & self.stems) >= len(own):
                return True
        return False


def stem(word: str) -> str:
    """A word cut to its beginning, in lower case; a small number as digits."""
    word = word.lower()
    return NUMBERS.get(word) or (word if word.isdigit() else word[:LONGEST_STEM])


def content(text: str) -> frozenset[str]:
    """The stems of a text's words, but for those that say little."""
    return frozenset(stem(word) for word in WORD.findall(text) if word.lower() not in FUNCTION_WORDS)


def is_article(title: str) -> bool:
    """Whether a title names an article; one that is empty or begins with "_" does not."""
    return bool(title.strip()) and not title.startswith("_")


def passages_of(questions: Sequence[Question]) -> dict[str, Passage]:
    """Every passage once, by its text, in order, with the questions that are asked of it."""
    found: dict[str, Passage] = {}
    for question in questions:
        here = found.setdefault(question.context, Passage(question.context, question.title))
        here.asked.add(normalise(question.question))
    return found


Attempt = Callable[[Question, int], tuple[str, Passage] | None]
"""From an answerable question and a draw (64 random bits) to a new question and its passage, or None."""


def gather(questions: Sequence[Question], count: int, maker: str, seed: int, attempt: Attempt) -> list[Negative]:
    """Try the answerable questions in an order drawn by the seed, each once, until there are `count` new ones.

    What a question becomes does not depend on `count`: fewer are the beginning of more. A question that is already
    asked of the passage, and an id that the data already have, are left out.
    """
    taken = {question.id for question in questions}
    sources = [question for question in questions if question.answers and not question.impossible]
    draws = np.random.PCG64(np.random.SeedSequence([seed, *maker.encode()])).random_raw(2 * len(sources))
    order = np.argsort(draws[: len(sources)], kind="stable").tolist()
    made: list[Negative] = []
    for i in order:
        if len(made) >= count:
            break
        source = sources[i]
        found = attempt(source, int(draws[len(sources) + i]))
        name = f"{source.id}-{maker}"
        if found is None or name in taken or normalise(found[0]) in found[1].asked:
            continue
        text, passage = found
        taken.add(name)
        made.append(Negative(Question(name, text, passage.context, (), True, passage.title), maker, source.id))
    return made


def draw(seed: int, purpose: str, name: str) -> int:
    """64 random bits that depend on the seed, on what they are for and on a name, such as a question's id."""
    text = f"{seed}\0{purpose}\0{name}".encode(errors="surrogatepass")
    return int.from_bytes(hashlib.blake2b(text, digest_size=8).digest(), "little")


class Draws:
    """Random numbers in a row from 64 random bits (SplitMix64, Steele, Lea and Flood 2014): quick to set up."""

    def __init__(self, bits: int) -> None:
        self._state = bits

    def below(self, n: int) -> int:
        """A random number from 0 to n − 1; n far below 2⁶⁴."""
        self._state = (self._state + 0x9E3779B97F4A7C15) % 2**64
        mixed = self._state
        mixed = (mixed ^ mixed >> 30) * 0xBF58476D1CE4E5B9 % 2**64
        mixed = (mixed ^ mixed >> 27) * 0x94D049BB133111EB % 2**64
        return (mixed ^ mixed >> 31) % n

    def pick(self, items: Sequence[Item]) -> Item:
        """One of the items."""
        return items[self.below(len(items))]

    def some(self, items: Sequence[Item], most: int) -> list[Item]:
        """At most so many of the items, in a random order."""
        left = list(items)
        return [left.pop(self.below(len(left))) for _ in items[:most]]


Rewriter = Callable[[Question], Question | None]
"""From a question to the same one in other words or with another passage; None where it does not fit."""


def rewrite(
    questions: Sequence[Question],
    fractions: Mapping[str, float],
    purpose: str,
    seed: int,
    ways: Mapping[str, Rewriter],
) -> list[Question]:
    """The same questions in the same order, a fraction of them rewritten in each way, none in two.

    Questions are tried in an order drawn by the seed and their ids, until there are enough of a way, or none is left.
    """
    order = sorted(range(len(questions)), key=lambda i: draw(seed, f"order of {purpose}", questions[i].id))
    made: dict[int, Question] = {}
    for name, way in ways.items():
        count = round(fractions.get(name, 0) * len(questions))
        for i in order:
            if count <= 0:
                break
            found = way(questions[i]) if i not in made else None
            if found is not None:
                made[i] = found
                count -= 1
    return [made.get(i, question) for i, question in enumerate(questions)]
