"""Questions asked of their own passages, changed: pairs without a label that most often still have an answer.

A small model learns its training passages by heart long before it reads as well as its teacher. So the same question is
asked of its passage with other names and numbers, fewer sentences, another order, a sentence of elsewhere:

    names, numbers   half of those of the passage; each becomes another one of its kind, in question and passage alike
    sentences        of half of the pairs, a quarter is left out; of a quarter, the order changes; in another quarter, a
                     sentence of another passage stands among them, of the same article if there is one
    question         of a quarter of the pairs, a word is left out

In the same spirit Jiao et al. (2020, "TinyBERT", §3.2) exchange words of a student's training data. What a changed pair
has for an answer, and whether it has one, the teacher says.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import cached_property

from quoth.augment.base import FUNCTION_WORDS, WORD, Draws, Passage, draw, is_article, passages_of
from quoth.augment.entity import kind, mentions
from quoth.augment.sentences import sentence_spans
from quoth.data import Question

PIECE = re.compile(r"\w+|\W+")
FEWEST = 4  # words of a question of which one may be left out
TRIES = 3  # draws for an edit that is new

Kind = tuple[str, int]  # of a name: what its letters tell, and how many words it has


class Source(Passage):
    """A passage with its sentences, and its names and numbers by their kind, longest first."""

    @cached_property
    def sentences(self) -> list[str]:
        """In order."""
        return [self.context[begin:past] for begin, past in sentence_spans(self.context)]

    @cached_property
    def names(self) -> list[tuple[str, Kind]]:
        """Different ones, those of more words first."""
        found = {mention.text: WORD.findall(mention.text) for mention in mentions(self.context)}
        kinds = [(name, (kind(name), len(words))) for name, words in found.items()]
        return sorted(kinds, key=lambda pair: -pair[1][1])


def edited(questions: Sequence[Question], count: int, seed: int = 0) -> list[Question]:
    """At most `count` changed pairs, without a label.

    Every question, in an order drawn by the seed, is changed once before any is changed twice: fewer pairs are the
    beginning of more. No pair is made twice, nor one that is asked already.
    """
    if not count or not questions:
        return []
    sources = {text: Source(text, passage.title) for text, passage in passages_of(questions).items()}
    names: dict[Kind, list[str]] = {}
    for source in sources.values():
        for name, what in source.names:
            names.setdefault(what, []).append(name)
    articles: dict[str, list[Source]] = {}
    for source in sources.values():
        articles.setdefault(source.title if is_article(source.title) else "", []).append(source)
    order = sorted(questions, key=lambda question: draw(seed, "order of edited", question.id))
    known = {(question.question, question.context) for question in questions}
    made: list[Question] = []
    for number in range(1, -(-count // len(questions)) + 2):  # one round more: some edits are not new
        for question in order:
            if len(made) >= count:
                return made
            source = sources[question.context]
            others = articles[source.title if is_article(source.title) else ""]
            draws = Draws(draw(seed, f"edited {number}", question.id))
            for _ in range(TRIES):
                pair = _edit(question.question, source, names, others, draws)
                if pair not in known:
                    known.add(pair)
                    made.append(Question(f"{question.id}-edited-{number}", *pair, (), False, question.title))
                    break
    return made


def _edit(
    question: str, source: Source, names: dict[Kind, list[str]], others: list[Source], draws: Draws
) -> tuple[str, str]:
    """A changed question and its changed passage."""
    sentences = source.sentences or [source.context]
    if not draws.below(2):
        sentences = [one for one in sentences if draws.below(4)] or sentences
    if not draws.below(4):
        sentences = draws.some(sentences, len(sentences))
    if not draws.below(4):
        place = draws.below(len(sentences) + 1)
        sentences = [*sentences[:place], *draws.some(draws.pick(others).sentences, 1), *sentences[place:]]
    words = question.split()
    if len(words) >= FEWEST and not draws.below(4):
        words.pop(draws.below(len(words)))
    other = _exchange(source, names, draws)
    return _replaced(" ".join(words), other), _replaced(" ".join(sentences), other)


def _exchange(source: Source, names: dict[Kind, list[str]], draws: Draws) -> dict[str, str]:
    """What half of the words of a passage's names become, and half of its numbers.

    Words are exchanged one by one, so that a man who is named by his surname later keeps his new one.
    """
    found: dict[str, str] = {}
    for name, what in source.names:
        if draws.below(2):
            continue
        for old, new in zip(WORD.findall(name), WORD.findall(draws.pick(names[what]))):
            if old.lower() not in FUNCTION_WORDS:
                found.setdefault(old, new)
    return found


def _replaced(text: str, other: dict[str, str]) -> str:
    return "".join([other.get(piece, piece) for piece in PIECE.findall(text)])
