"""The line that describes a head, such as `pool(learned) > compress(386) > skip > linear`.

    line     = step ">" step ">" …
    step     = word  |  word "(" argument "," … ")"  |  "(" line "+" line "+" … ")"
    argument = value  |  key "=" value

The words and their arguments stand in `WORDS`. Lines in parentheses are branches: each gets what stands before them,
and their results are concatenated. `parse` reads a line, `spell` writes it in the one canonical way.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from quoth.config import nearest
from quoth.errors import QuothError


@dataclass(frozen=True)
class Word:
    """One step: its name and the value of every argument."""

    name: str
    values: Mapping[str, Any]


@dataclass(frozen=True)
class Branches:
    """Lines whose results are concatenated."""

    lines: tuple[Line, ...]


Line = tuple[Word | Branches, ...]


@dataclass(frozen=True)
class Argument:
    """What a word takes: one of some words, a whole number from `least`, or a part of 1 (at least 0, below 1).

    default: None where the argument must be given
    """

    kind: tuple[str, ...] | type[int] | type[float]
    default: Any = None
    least: int = 1


SOURCES: dict[str, dict[str, Argument]] = {  # which states are read
    "layers": {"which": Argument(("all",))},
    "layer": {"number": Argument(int, least=0)},
    "last": {"count": Argument(int)},
}
WORDS: dict[str, Mapping[str, Argument]] = {**SOURCES}  # and the steps, by `quoth.heads.register_step`


def parse(text: str) -> Line:
    """Read a line; what is wrong with it is said in one line of its own."""
    tokens = re.findall(r"[\w.-]+|\S", text.replace("×", "x"))
    line, rest = _line(tokens, text)
    if rest:
        raise QuothError(f"head: {rest[0]!r} has no place in {text!r}; steps are joined by >, branches by + in ()")
    return line


def spell(line: Line) -> str:
    """The canonical spelling: one space around > and +, no argument that has its default."""
    return " > ".join(_spell_step(step) for step in line)


def _line(tokens: list[str], text: str) -> tuple[Line, list[str]]:
    """The line that the tokens begin with, and the tokens after it."""
    steps: list[Word | Branches] = []
    while True:
        step, tokens = _branches(tokens[1:], text) if tokens[:1] == ["("] else _word(tokens, text)
        steps.append(step)
        if tokens[:1] != [">"]:
            return tuple(steps), tokens
        tokens = tokens[1:]


def _branches(tokens: list[str], text: str) -> tuple[Branches, list[str]]:
    lines = []
    while True:
        line, tokens = _line(tokens, text)
        lines.append(line)
        if tokens[:1] != ["+"]:
            break
        tokens = tokens[1:]
    if tokens[:1] != [")"]:
        raise QuothError(f"head: a parenthesis of {text!r} is not closed; branches are written (… + …)")
    if len(lines) == 1:
        raise QuothError(f"head: ({spell(lines[0])}) is one branch alone; write it without parentheses, or add + …")
    return Branches(tuple(lines)), tokens[1:]


def _word(tokens: list[str], text: str) -> tuple[Word, list[str]]:
    name = tokens[0] if tokens else ""
    if not re.fullmatch(r"[\w.-]+", name):
        raise QuothError(f"head: a step is missing {f'before {name!r}' if name else 'at the end'} of {text!r}")
    if name not in WORDS:
        raise QuothError(f"head: unknown step {name!r}; did you mean {nearest(name, WORDS)}?")
    tokens, given = tokens[1:], []
    if tokens[:1] == ["("]:
        if ")" not in tokens:
            raise QuothError(f"head: a parenthesis of {text!r} is not closed: {name}(…)")
        end = tokens.index(")")
        given = "".join(tokens[1:end]).split(",") if end > 1 else []
        tokens = tokens[end + 1 :]
    return Word(name, _values(name, given)), tokens


def _values(name: str, given: list[str]) -> dict[str, Any]:
    """The arguments of a word as values, by their keys."""
    known = WORDS[name]
    found: dict[str, Any] = {}
    for place, argument in enumerate(given):
        key, equals, value = argument.rpartition("=")
        if not equals:
            if place >= len(known):
                count = f"{len(known)} argument(s)" if known else "no arguments"
                raise QuothError(f"head: {name} takes {count}; {value!r} is one too many")
            key = list(known)[place]
        if key not in known:
            raise QuothError(f"head: {name} has no argument {key!r}; it takes {', '.join(known) or 'none'}")
        if key in found:
            raise QuothError(f"head: {name} is given {key} twice")
        found[key] = _value(f"{name}: {key}", known[key], value)
    for key, wanted in known.items():
        if key not in found and wanted.default is None:
            raise QuothError(f"head: {name} needs an argument: {name}({_wanted(wanted)})")
    return {key: found.get(key, wanted.default) for key, wanted in known.items()}


def _value(what: str, wanted: Argument, text: str) -> Any:
    value: Any = None
    if isinstance(wanted.kind, tuple):
        value = text if text in wanted.kind else None
    elif wanted.kind is int:
        value = int(text) if re.fullmatch(r"[0-9]{1,9}", text) and int(text) >= wanted.least else None
    else:
        value = float(text) if re.fullmatch(r"0?\.[0-9]+|0", text) else None
    if value is None:
        raise QuothError(f"head: {what} must be {_wanted(wanted)}, not {text!r}")
    return value


def _wanted(argument: Argument) -> str:
    if isinstance(argument.kind, tuple):
        return " or ".join(argument.kind)
    return f"a whole number from {argument.least}" if argument.kind is int else "a part of 1 such as 0.1, or 0"


def _spell_step(step: Word | Branches) -> str:
    if isinstance(step, Branches):
        return f"({' + '.join(spell(line) for line in step.lines)})"
    shown = [
        _spell_argument(key, step.values[key], argument)
        for key, argument in WORDS[step.name].items()
        if step.values[key] != argument.default
    ]
    return f"{step.name}({', '.join(shown)})" if shown else step.name


def _spell_argument(key: str, value: Any, argument: Argument) -> str:
    """A number that has a default is written with its key, all else without."""
    text = f"{value:g}" if isinstance(value, float) else str(value)
    keyed = argument.default is not None and not isinstance(argument.kind, tuple)
    return f"{key}={text}" if keyed else text
