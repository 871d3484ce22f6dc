"""Settings: tables from TOML or JSON to and from frozen dataclasses, with errors that name the key."""

from __future__ import annotations

import json
import re
import sys
import tomllib
from collections.abc import Callable, Iterable, Mapping, Sequence
from copy import deepcopy
from dataclasses import MISSING, fields, is_dataclass
from datetime import date, time
from difflib import get_close_matches
from math import isfinite
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

from quoth.errors import QuothError
from quoth.limits import LEVELS, nested_deeply, open_bytes, read_bounded

Made = TypeVar("Made")
LONGEST = 1 << 20  # bytes of a recipe
BARE = re.compile(r"[A-Za-z0-9_-]+")  # a key that TOML takes without quotes
DOTTED = re.compile(rf"(?<![^\s.=])(?:[^\s.=]++[ \t]*+\.[ \t]*+){{{LEVELS}}}")  # a.a.a. …
SHOWN = 200  # characters of a value in a message
NAMES = {
    int: "a whole number",
    float: "a number",
    str: "a text",
    bool: "true or false",
    dict: "a table",
    list: "a list",
}
RENAMED = {  # keys of recipes of version 0.1, and their names since
    "rate": "learning_rate",
    "decay": "weight_decay",
    "clip": "max_grad_norm",
    "windows": "batch_size",
    "tokens": "batch_tokens",
    "warmup": "warmup_ratio",
    "accumulate": "gradient_accumulation_steps",
    "beta1": "adam_beta1",
    "beta2": "adam_beta2",
    "epsilon": "adam_epsilon",
    "cache": "cache_gb",
    "task": "task_weight",
    "logits": "logits_weight",
    "states": "states_weight",
    "distil": "distillation",
    "between": "round_epochs",
    "search": "hpo",
}


def fill(cls: type[Made], table: Mapping[str, Any], where: str, prefix: str = "") -> Made:
    """A dataclass from a table whose keys are its fields; tables inside for fields that are dataclasses."""
    if not isinstance(table, Mapping):
        raise QuothError(f"{where}: {prefix.rstrip('.')} is {shown(table)}, a table is wanted")
    hints = get_type_hints(cls)
    known = {f.name: f for f in fields(cls)}  # type: ignore[arg-type]
    for key in table:
        if key not in known:
            raise QuothError(f"{where}: unknown key {prefix}{key}; {_hint(key, known, prefix)}")
    for name, f in known.items():
        if name not in table and f.default is MISSING and f.default_factory is MISSING:
            raise QuothError(f"{where}: {prefix}{name} is missing")
    made = {key: _convert(hints[key], value, where, prefix + key) for key, value in table.items()}
    return cls(**made)


def _hint(key: str, known: Mapping[str, Any], prefix: str) -> str:
    new = RENAMED.get(key)
    if new in known:
        return f"it is called {prefix}{new} now"
    if not known:
        return "there are none"
    near = nearest(key, [*known, *(old for old, now in RENAMED.items() if now in known)])
    return f"did you mean {prefix}{near if near in known else RENAMED[near]}?"


def nearest(word: str, known: Iterable[str]) -> str:
    """The known word that is most like this one."""
    return get_close_matches(word, list(known), n=1, cutoff=0.0)[0]


def dump_toml(table: Mapping[str, Any]) -> str:
    """A table of values and of tables of values, as TOML. What is None is left out: its default is None."""
    plain = {key: value for key, value in table.items() if not isinstance(value, Mapping | NoneType)}
    lines = [f"{_toml_key(key)} = {_toml(value)}" for key, value in plain.items()]
    for name, inner in table.items():
        if isinstance(inner, Mapping):
            lines += ["", f"[{_toml_key(name)}]"]
            lines += [f"{_toml_key(key)} = {_toml(value)}" for key, value in inner.items() if value is not None]
    return "\n".join(lines) + "\n"


def _toml_key(key: str) -> str:
    """A key as TOML wants it: in quotes unless it is plain."""
    return key if BARE.fullmatch(key) else _toml(key)


def _toml(value: Any) -> str:
    """Strings, numbers and booleans are written in TOML as in JSON, but that TOML wants DEL escaped."""
    if isinstance(value, Mapping):  # a table inside a table
        return "{" + ", ".join(f"{_toml(key)} = {_toml(inner)}" for key, inner in value.items()) + "}"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(map(_toml, value)) + "]"
    if isinstance(value, float) and not isfinite(value):  # JSON has no such numbers, TOML has
        return repr(value)
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")


def _convert(kind: Any, value: Any, where: str, key: str) -> Any:
    if hasattr(kind, "from_json"):
        try:
            return kind.from_json(value)
        except (KeyError, TypeError, AttributeError):
            raise QuothError(f"{where}: {key} is {shown(value)}, which is not what Quoth writes there") from None
    if is_dataclass(kind) and isinstance(kind, type):
        return fill(kind, value, where, f"{key}.")
    if kind is Any:
        return value
    origin = get_origin(kind)
    if origin in (Union, UnionType):
        return _convert_union(get_args(kind), value, where, key)
    if origin is Literal:
        if value not in get_args(kind):
            choices = ", ".join(map(str, get_args(kind)))
            raise QuothError(f"{where}: {key} is {shown(value)}; one of {choices} is wanted")
        return value
    if origin is tuple:
        return tuple(
            _convert(get_args(kind)[0], v, where, key) for v in (value if isinstance(value, list) else [value])
        )
    if origin is dict and is_dataclass(get_args(kind)[1]) and isinstance(value, Mapping):
        return {name: _convert(get_args(kind)[1], inner, where, f"{key}.{name}") for name, inner in value.items()}
    plain = origin or kind
    if plain is float and type(value) is int and abs(value) <= sys.float_info.max:
        return float(value)
    if type(value) is not plain or (plain is float and not isfinite(value)):
        raise QuothError(f"{where}: {key} is {shown(value)}; {NAMES[plain]} is wanted")
    return value


def _convert_union(kinds: Sequence[Any], value: Any, where: str, key: str) -> Any:
    """The first alternative that takes the value; the error is that of the first one."""
    if value is None and NoneType in kinds:
        return None
    errors = []
    for kind in kinds:
        if kind is not NoneType:
            try:
                return _convert(kind, value, where, key)
            except QuothError as error:
                errors.append(error)
    raise errors[0]


Override = Callable[[dict[str, Any], str], None]


def read_table(path: str | Path, overrides: Sequence[str] = (), override: Override | None = None) -> dict[str, Any]:
    """The table of a TOML file, changed by overrides such as `optimisation.learning_rate=1e-4`.

    override: how one of them changes the table, by default `set_key`
    """
    try:
        with open_bytes(path) as file:
            table = _parse(read_bounded(file, str(path), LONGEST).decode("utf-8"))
    except FileNotFoundError:
        raise QuothError(f"{path}: no such recipe") from None
    except OSError as error:
        raise QuothError(f"{path}: cannot be read ({error.strerror})") from None
    except RecursionError:
        raise QuothError(f"{path}: not valid TOML (nested too deeply)") from None
    except ValueError as error:  # not TOML, not UTF-8, or a number of thousands of digits
        raise QuothError(f"{path}: not valid TOML ({error})") from None
    if nested_deeply(table):
        raise QuothError(f"{path}: not valid TOML (nested too deeply)")
    for one in overrides:
        (override or set_key)(table, one)
    for key, value in flat(table).items():
        _refuse_odd(value, f"{path}: {key}")
    return table


def _refuse_odd(value: Any, where: str) -> None:
    """Refuse what TOML has and no key takes: dates and times, which JSON lacks, nan, which is not equal to itself."""
    if isinstance(value, Mapping | list):
        for inner in value.values() if isinstance(value, Mapping) else value:
            _refuse_odd(inner, where)
    elif isinstance(value, date | time):
        raise QuothError(f"{where} is a date or a time, which no key takes; write it in quotes if it is a text")
    elif isinstance(value, float) and not isfinite(value):
        raise QuothError(f"{where} is {value}; a number is wanted")


def _parse(text: str) -> dict[str, Any]:
    """`tomllib.loads`, but that a key of thousands of parts, for which it takes memory by the square, is refused."""
    if DOTTED.search(text):
        raise RecursionError
    return tomllib.loads(text)


def set_key(table: dict[str, Any], override: str) -> None:
    """Change one key of a table of tables; the override is written key=value."""
    key, equals, text = override.partition("=")
    if not equals:
        raise QuothError(
            f"{shown(override)}: an override is written key=value, such as optimisation.learning_rate=1e-4"
        )
    try:
        value = _parse(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        value = text  # a text that needs no quotes: a path, a hub id
    except (RecursionError, ValueError):  # a number of thousands of digits
        raise QuothError(f"{shown(override)}: nested too deeply, or a number of too many digits") from None
    *path, last = key.split(".")
    if len(path) > LEVELS or nested_deeply(value):
        raise QuothError(f"{shown(override)}: nested too deeply")
    for name in path:
        inner = table.setdefault(name, {})
        if not isinstance(inner, dict):
            raise QuothError(f"{shown(override)}: {name} is not a table")
        table = inner
    table[last] = value


def overridden(table: Mapping[str, Any], layer: Mapping[str, Any]) -> dict[str, Any]:
    """A table with the keys of another in their place; tables inside likewise, but those that name a kind whole."""
    found = dict(table)
    for key, value in layer.items():
        inner = found.get(key)
        merged = isinstance(value, Mapping) and isinstance(inner, Mapping) and "kind" not in value
        found[key] = overridden(inner, value) if merged else deepcopy(value)  # type: ignore[arg-type]
    return found


def flat(table: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """A table of tables as one, its keys joined by dots."""
    found: dict[str, Any] = {}
    for key, value in table.items():
        inner = isinstance(value, Mapping) and bool(value)
        found.update(flat(value, f"{prefix}{key}.") if inner else {prefix + key: value})
    return found


def differences(one: Mapping[str, Any], other: Mapping[str, Any]) -> list[str]:
    """The keys in which two tables of tables differ, each with both values."""
    mine, theirs = flat(one), flat(other)
    keys = [*mine, *(key for key in theirs if key not in mine)]
    return [
        f"{key}: {shown(mine.get(key))}, {shown(theirs.get(key))}" for key in keys if mine.get(key) != theirs.get(key)
    ]


def shown(value: Any) -> str:
    """A value for a message of one line, cut where it is long; Python itself does not write numbers of any length."""
    if isinstance(value, int) and value.bit_length() > 4 * SHOWN:
        return f"a number of {value.bit_length()} bits"
    text = repr(value)
    return text if len(text) <= SHOWN else text[:SHOWN] + "…"


def check_value(good: bool, key: str, value: Any, wanted: str) -> None:
    """Refuse a value that is not good, saying what is wanted."""
    if not good:
        raise QuothError(f"recipe: {key} is {shown(value)}; it must be {wanted}")
