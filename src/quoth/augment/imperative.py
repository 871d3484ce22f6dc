"""Questions as orders: "When was the mill built?" → "Tell me when the mill was built."

Rules for what, which, who, when, where, why and how many. `imperative` has no result where none of them fits safely.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

from quoth.augment.verbs import (
    ADVERBS,
    AUXILIARIES,
    BE,
    BEFORE_NOUN,
    DO,
    HAVE,
    MODAL,
    PAST,
    PAST_FORMS,
    THIRD_FORMS,
    is_participle,
    statement,
)

Words = dict[str, str]
"""The named groups of a rule's pattern."""

STRANDED = re.compile(  # what ends so, or has this in it, is no noun phrase by itself
    r"(?i).*\b(?:of|in|on|at|to|for|from|by|with|as|about|into|after|like|called|named|known|used|made|given|considered|"
    r"than|do|done|doing|said|found|located|against|under|over|near|through|between|up|out|responsible|based|able)"
)
INNER = re.compile(
    r"(?i)\b(?:called|named|known as|referred to as|considered|described as|consist|supposed|said to|responsible for|"
    r"(?:of|with|for|from|as|about|into|to|by) "
    r"(?:in|on|at|during|when|while|after|before|by|according|that|because|if))\b"
)
ABSTRACT = re.compile(
    r"(?i)the (?:\w+ ){0,2}?(?:name|nature|purpose|reason|meaning|result|effect|cause|number|population|amount|size|"
    r"length|height|cost|price|percentage|average|rate|date|year|time|difference|relationship|definition|status|impact|"
    r"outcome|total|temperature|speed|distance|value|area|elevation|age|goal|aim|role|function|term|word|title)s?\b"
)  # one does not name these, but gives or states them
TIMES = re.compile(r"(?i)(?:[\w-]+ ){0,2}(?:years?|month|day|date|century|decade|season|era|period|time|age)")
PLACES = re.compile(
    r"(?i)(?:[\w-]+ ){0,2}(?:country|city|state|town|county|place|region|location|area|village|continent)"
)
TELL = ("Tell me", "Tell me", "State", "Say", "Find out", "Please tell me")
NAME = ("Name", "Name", "Give", "State", "Tell me", "Give me")
RELATIVE = frozenset(("that", "who", "which", "whose", "where"))


def imperative(question: str, draw: int) -> str | None:
    """The question as an order; None where no rule fits. draw: random bits, which choose among the openings."""
    text = " ".join(question.split()).rstrip("?!. ")
    for pattern, rule in RULES:
        found = pattern.fullmatch(text)
        if found:
            made = rule(found.groupdict(), draw)
            if made is not None:
                return made + ("" if draw >> 8 & 1 else ".")
    return None


def _pick(openings: Sequence[str], draw: int) -> str:
    return openings[draw % len(openings)]


def _tell(word: str, said: str | None, draw: int) -> str | None:
    return f"{_pick(TELL, draw)} {word.lower()} {said}" if said else None


def _inverted(groups: Words, draw: int) -> str | None:
    """When did the mill burn → Tell me when the mill burned."""
    words = groups["rest"].split()
    if groups["word"].lower() == "what" and _follows([groups["aux"].lower(), *words]):
        return _tell("what", f"{groups['aux'].lower()} {groups['rest']}", draw)
    said = statement(groups["aux"], groups["rest"])
    short = groups["word"].lower() == "where" and groups["aux"].lower() in BE and len(words) <= 5
    if said is None and short and not STRANDED.fullmatch(words[-1]):
        said = f"{groups['rest']} {groups['aux'].lower()}"
    return _tell(groups["word"], said, draw)


def _noun_phrase(groups: Words, draw: int) -> str | None:
    """What was the name of the mill → Give the name of the mill."""
    rest = groups["rest"]
    words = rest.split()
    if len(words) < 2 or STRANDED.fullmatch(rest) or INNER.search(rest) or not _noun_at_end(words):
        return None
    if all(word[0].isupper() for word in words[1:]):  # not what it is called, but what it is
        return f"{_pick(TELL, draw)} what {rest} {groups['aux'] or 'is'}"
    opening = _pick(NAME[2:] if ABSTRACT.match(rest) else NAME, draw)
    if opening in ("Name", "State") and groups["aux"].lower() in ("are", "were") and draw >> 9 & 1:
        opening = "List"
    return f"{opening} {rest}"


def _noun_at_end(words: list[str]) -> bool:
    """Whether nothing says that a clause follows the noun: "the mill built from" but not "the mill that was built"."""
    for i, word in enumerate(words):
        if word.lower() in RELATIVE:
            return True
        if word.lower() in AUXILIARIES or (
            i and words[i - 1][0].isupper() and (is_participle(word) or word.endswith("ing"))
        ):
            return False
    return not is_participle(words[-1])


def _who(groups: Words, draw: int) -> str | None:
    """Who built the mill → Tell me who built the mill."""
    first = groups["rest"].split()[0].lower()
    if first in AUXILIARIES - HAVE - MODAL:
        return None
    if first in HAVE | MODAL and not _follows(groups["rest"].split()):
        return None
    return _tell("who", groups["rest"], draw)


def _follows(words: list[str]) -> bool:
    """Whether the verb follows its auxiliary at once: the question word is the subject."""
    i = 1 + (len(words) > 1 and (words[1] in ADVERBS or words[1].endswith("ly")))
    if len(words) <= i:
        return False
    if words[0].lower() in DO:
        return False
    if words[0].lower() in BE | HAVE:
        return is_participle(words[i]) or words[i] in ("being", "been")
    return words[i] in PAST or words[i] == "be"


def _who_is(groups: Words, draw: int) -> str | None:
    """Who was the owner of the mill → Name the owner of the mill."""
    words = groups["rest"].split()
    if is_participle(words[0]):
        return _tell("who", f"{groups['aux'].lower()} {groups['rest']}", draw)
    owner = words[0].lower() in ("the", "one") or words[0].endswith(("'s", "’s"))
    if owner and all(word[0].isupper() for word in words[1:]) and words[0] == "the":
        return _tell("who", f"{groups['rest']} {groups['aux']}", draw)
    return _noun_phrase(groups, draw) if owner else None


def _what_noun(groups: Words, draw: int) -> str | None:
    """What year did the mill burn → Give the year in which the mill burned; what mill burned → Name the mill that …"""
    noun, rest, aux = groups["noun"], groups["rest"], groups["aux"].lower()
    if _odd_noun(noun):
        return None
    opening, words = f"{_pick(NAME, draw)} the {noun}", rest.split()
    if aux in AUXILIARIES:
        if _follows([aux, *words]):
            return f"{opening} that {aux} {rest}"
        said = statement(aux, rest)
        if said is None:
            return None
        where = TIMES.fullmatch(noun) or PLACES.fullmatch(noun)
        if not where:
            return f"{opening} that {said}"
        return f"{opening} {said}" if STRANDED.fullmatch(said) else f"{opening} in which {said}"
    return None if DO & set(words[:4]) else f"{opening} that {groups['aux']} {rest}"


def _with_preposition(groups: Words, draw: int) -> str | None:
    """In what year did the mill burn → Give the year in which the mill burned."""
    said = statement(groups["aux"], groups["rest"])
    if said is None or _odd_noun(groups["noun"]):
        return None
    return f"{_pick(NAME, draw)} the {groups['noun']} {groups['before'].lower()} which {said}"


def _odd_noun(noun: str) -> bool:
    words = noun.split()
    return any(word.lower() in AUXILIARIES or word.endswith(",") for word in words) or (
        words[0].lower()
        in (
            "other",
            "else",
            "about",
            "happens",
            "happened",
            "makes",
            "two",
            "three",
            "four",
            "of",
            "the",
            "in",
            "on",
            "at",
            "for",
        )
        or is_participle(words[0])
        or words[0] in PAST_FORMS | THIRD_FORMS
        or words[-1].lower() in BEFORE_NOUN | ADVERBS | {"least"}
    )


def _how_many(groups: Words, draw: int) -> str | None:
    """How many mills did the town build → Give the number of mills that the town built."""
    noun, rest, aux = groups["noun"], groups["rest"], groups["aux"].lower()
    if aux not in AUXILIARIES:
        return f"{_pick(TELL, draw)} how many {noun} {aux} {rest}"
    if _follows([aux, *rest.split()]):
        return f"{_pick(TELL, draw)} how many {noun} {aux} {rest}"
    if rest.lower().split()[0] == "there":
        after = rest.split()[1:]
        return f"{_pick(('Give', 'State', 'Tell me'), draw)} the number of {' '.join([noun, *after])}"
    said = statement(aux, rest)
    return f"{_pick(('Give', 'State', 'Tell me'), draw)} the number of {noun} that {said}" if said else None


NOUN = r"(?P<noun>[\w'’\-$%]+(?: [\w'’\-]+){0,6}?)"
PREPOSITION = "in|on|at|during|from|to|by|with|for|under"
AUX = "|".join(sorted(AUXILIARIES))
FINITE = "|".join(sorted((PAST_FORMS | THIRD_FORMS) - AUXILIARIES))
RULES: tuple[tuple[re.Pattern[str], Callable[[Words, int], str | None]], ...] = tuple(
    (re.compile(pattern), rule)
    for pattern, rule in (
        (r"(?i:what|which) (?P<aux>is|was|are|were) (?P<rest>the .+)", _noun_phrase),
        (r"(?i:what['’]s) (?P<aux>)(?P<rest>the .+)", _noun_phrase),
        (r"(?P<word>(?i:what)) (?P<aux>is|was|are|were) (?!(?:the|this|these|a|an|one|not) )(?P<rest>.+)", _inverted),
        (rf"(?P<word>(?i:what)) (?P<aux>{AUX}) (?<!is )(?<!was )(?<!are )(?<!were )(?!not )(?P<rest>.+)", _inverted),
        (rf"(?P<word>(?i:when|where|why)) (?P<aux>{AUX}) (?P<rest>.+)", _inverted),
        (r"(?P<word>(?i:who)) (?P<aux>did|does|do) (?P<rest>.+)", _inverted),
        (r"(?i:who) (?P<aux>is|was|are|were) (?P<rest>.+)", _who_is),
        (r"(?i:who) (?P<rest>\w+ .+)", _who),
        (rf"(?i:how many) {NOUN} (?P<aux>{AUX}|{FINITE}) (?P<rest>.+)", _how_many),
        (rf"(?i:what|which) {NOUN} (?P<aux>{AUX}|{FINITE}) (?P<rest>.+)", _what_noun),
        (rf"(?P<before>(?i:{PREPOSITION})) (?:what|which) {NOUN} (?P<aux>{AUX}) (?P<rest>.+)", _with_preposition),
    )
)
