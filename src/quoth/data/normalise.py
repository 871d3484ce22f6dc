"""Answers as the official SQuAD score compares them: lower case, no punctuation, no articles."""

from __future__ import annotations

import re
import string

_ARTICLES = frozenset(("a", "an", "the"))
_ARTICLE = re.compile(r"\b(a|an|the)\b", re.UNICODE)
Words = list[str]
_NO_PUNCTUATION = {ord(char): None for char in string.punctuation}


def normalise(text: str) -> str:
    """Lower case, without punctuation and articles, words separated by single blanks."""
    return " ".join(normalised_words(text))


def normalised_words(text: str) -> Words:
    """The words of the normalised text."""
    text = text.lower().translate(_NO_PUNCTUATION)
    # Printable ASCII has only letters, digits and blanks left: there an article is simply a word.
    if text.isascii() and text.isprintable():
        return [word for word in text.split() if word not in _ARTICLES]
    return _ARTICLE.sub(" ", text).split()
