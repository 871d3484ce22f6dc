"""Hypothesis strategies: valid content with hostile changes, of values (types, sizes, nesting) and of bytes.

They draw little, so that thousands of cases a minute are made, and shrink towards no change at all.
"""

from __future__ import annotations

import gzip
import json
import math
from collections.abc import Callable, Sequence
from typing import Any

from hypothesis import strategies as st

Draw = Callable[[Any], Any]

# Texts that become raw JSON after `json.dumps`: what no Python value can stand for.
RAW = {
    "@deep@": "[" * 100_000 + "]" * 100_000,
    "@objects@": '{"a":' * 5_000 + "1" + "}" * 5_000,
    "@digits@": "9" * 5_000,
    "@exponent@": "1e999999",
    "@twice@": '{"a": 1, "a": 2}',
}
TEXTS = (
    "",
    " ",
    "a",
    "\ud800",
    "\udfff\ud800",
    "\x1b[31m",
    "\x9b2J",
    "\0",
    "a\nb",
    "\r\n",
    "\u2028",
    "../x",
    "/etc/passwd",
    "C:\\x",
    "./.",
    "x" * 3000,
    "\u202egnp",
    "İ",
    "ﬀ",
    "e\u0301" * 20,
    "😀👍🏽",
    "nan",
    "%s%n{0}",
)
NUMBERS = (
    0,
    -1,
    1,
    2,
    2**31 - 1,
    2**31,
    2**32,
    2**63,
    2**64,
    10**30,
    10**400,
    -(10**400),
    0.5,
    -0.0,
    1e-320,
    1e308,
    -1e308,
    math.nan,
    math.inf,
    -math.inf,
)
OTHERS: tuple[Any, ...] = (
    None,
    True,
    False,
    [],
    {},
    [[]],
    {"": None},
    [None],
    ["a", 1, None],
    {"a": {"a": {}}},
    [0] * 50,
)
HOSTILE: tuple[Any, ...] = (*OTHERS, *NUMBERS, *TEXTS, *RAW)
values = st.sampled_from(HOSTILE)
names = st.sampled_from(TEXTS)
texts = names | st.text(max_size=30)


def _replace(draw: Draw, box: Any, key: Any) -> None:
    box[key] = json.loads(json.dumps(draw(values)))


def _remove(_: Draw, box: Any, key: Any) -> None:
    del box[key]


def _wrap(_: Draw, box: Any, key: Any) -> None:
    box[key] = [box[key]]


def _double(_: Draw, box: Any, key: Any) -> None:
    if isinstance(box, list):
        box.insert(key, box[key])
    else:
        box[f"{key}x"] = box[key]


def _as_text(_: Draw, box: Any, key: Any) -> None:
    box[key] = str(box[key])[:200]


def _number(draw: Draw, box: Any, key: Any) -> None:
    """A number near the one that is there: off by one, negative, much too large."""
    old = box[key] if type(box[key]) in (int, float) and abs(box[key]) < 1e300 else 0
    box[key] = draw(st.sampled_from((old + 1, old - 1, -old, old * 1000 + 7, old / 2, float(old), NUMBERS[4])))


def _add(draw: Draw, box: Any, key: Any) -> None:
    new = json.loads(json.dumps(draw(values)))
    if isinstance(box, list):
        box.append(new)
    else:
        box[draw(names)] = new


def _rename(draw: Draw, box: Any, key: Any) -> None:
    if isinstance(box, dict):
        box[draw(st.sampled_from((*TEXTS, f"{key}s", str(key).upper())))] = box.pop(key)


KINDS_OF_CHANGE = st.sampled_from((_replace, _remove, _number, _wrap, _double, _as_text, _add, _rename))


def spots(value: Any) -> list[tuple[Any, Any]]:
    """All places in a value that can be changed, as container and key, at most some hundred."""
    found: list[tuple[Any, Any]] = []
    left = [value]
    while left and len(found) < 400:
        box = left.pop(0)
        keys: Sequence[Any] = list(box) if isinstance(box, dict) else range(min(len(box), 12))
        for key in keys:
            found.append((box, key))
            if isinstance(box[key], dict | list) and box[key]:
                left.append(box[key])
    return found


def change(draw: Draw, value: Any) -> Any:
    """A value with one change somewhere."""
    places = spots(value) if isinstance(value, dict | list) else []
    place = draw(st.integers(0, len(places)))
    if place == len(places):  # the whole
        return json.loads(json.dumps(draw(values))) if draw(st.booleans()) else value
    draw(KINDS_OF_CHANGE)(draw, *places[place])
    return value


def changed(*bases: Any, most: int = 3) -> Any:
    """One of some values, with up to `most` changes."""
    starts, counts = st.sampled_from([json.dumps(base) for base in bases]), st.integers(0, most)

    @st.composite
    def one(draw: Draw) -> Any:
        value = json.loads(draw(starts))
        for _ in range(draw(counts)):
            value = change(draw, value)
        return value

    return one()


def dump(value: Any) -> str:
    """JSON, with what `RAW` stands for put in."""
    text = json.dumps(value)
    if "@" in text:
        for word, raw in RAW.items():
            text = text.replace(f'"{word}"', raw)
    return text


def _utf8(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")


ENCODINGS: tuple[Callable[[str], bytes], ...] = (
    _utf8,
    lambda text: b"\xef\xbb\xbf" + _utf8(text),
    lambda text: text.encode("utf-16", "surrogatepass"),
    lambda text: text.encode("latin-1", "replace"),
    lambda text: text.encode("utf-32", "surrogatepass"),
)
PIECES = (b"\0", b"\xff", b"\xed\xa0\x80", b"\n", b"{", b"]", b'"', b",", b"\x1f\x8b", b"\xef\xbb\xbf", b" " * 64)


FATES = st.integers(0, 9)
KINDS = st.sampled_from(("flip", "end", "out", "in", "none"))
INSERTED = st.sampled_from(PIECES) | st.binary(max_size=8)


def damage(draw: Draw, data: bytes, most: int = 2) -> bytes:
    """Bytes with up to `most` of them flipped, or a part cut out, put in, or cut off."""
    for _ in range(draw(st.integers(0, most))):
        place, kind = draw(st.integers(0, len(data))), draw(KINDS)
        if kind == "flip" and place < len(data):
            data = data[:place] + bytes([data[place] ^ (1 << draw(st.integers(0, 7)))]) + data[place + 1 :]
        elif kind == "end":
            data = data[:place]
        elif kind == "out":
            data = data[:place] + data[place + draw(st.integers(1, 40)) :]
        elif kind == "in":
            data = data[:place] + draw(INSERTED) + data[place:]
    return data


def encode(draw: Draw, text: str, *, zipped: bool = False) -> bytes:
    """A text as bytes: nearly always UTF-8; sometimes of another encoding, damaged, or gzipped (and then damaged)."""
    fate = draw(FATES)
    data = (ENCODINGS[draw(st.integers(1, len(ENCODINGS) - 1))] if fate == 8 else _utf8)(text)
    if fate in (6, 7, 9):
        data = damage(draw, data)
    if zipped and fate in (5, 9):
        data = damage(draw, gzip.compress(data, 1, mtime=0))
    return data


def json_file(*bases: Any, most: int = 3, zipped: bool = False) -> Any:
    """The bytes of a JSON file that is one of `bases`, with changes."""
    values = changed(*bases, most=most)

    @st.composite
    def one(draw: Draw) -> bytes:
        return encode(draw, dump(draw(values)), zipped=zipped)

    return one()


def json_lines(*bases: Any, most: int = 3, zipped: bool = False) -> Any:
    """The bytes of a file of JSON lines: `bases`, or some of them in any order, one of them with changes."""
    some, each = st.lists(st.sampled_from(bases), max_size=4), [changed(base, most=most) for base in bases]
    ends = st.sampled_from(("\n", "\n", "\r\n", "\n\n", "\u2028", ""))

    @st.composite
    def one(draw: Draw) -> bytes:
        whole = draw(st.integers(0, 2)) < 2
        lines = [dump(base) for base in (bases if whole else draw(some))]
        other = draw(st.integers(0, len(bases) - 1))
        if whole and draw(st.booleans()):
            lines[other] = dump(draw(each[other]))
        elif not whole:
            lines.insert(draw(st.integers(0, len(lines))), dump(draw(each[other])))
        end = draw(ends)
        return encode(draw, end.join(lines) + end, zipped=zipped)

    return one()


def toml(value: Any) -> str:
    """Any table as TOML, as far as TOML can have it; what cannot be written is written wrongly."""
    if not isinstance(value, dict):
        return f"value = {_toml(value)}\n"
    plain = {key: inner for key, inner in value.items() if not isinstance(inner, dict)}
    tables = {key: inner for key, inner in value.items() if isinstance(inner, dict)}
    lines = [f"{_key(key)} = {_toml(inner)}" for key, inner in plain.items()]
    for name, table in tables.items():
        lines += [f"[{_key(name)}]", *(f"{_key(key)} = {_toml(inner)}" for key, inner in table.items())]
    return "\n".join(lines) + "\n"


def _key(key: str) -> str:
    return json.dumps(key)


def _toml(value: Any) -> str:
    if isinstance(value, dict):
        return "{" + ", ".join(f"{_key(key)} = {_toml(inner)}" for key, inner in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(_toml, value)) + "]"
    if isinstance(value, str) and value in RAW:
        return {"@objects@": "{a=" * 500 + "1" + "}" * 500, "@deep@": "[" * 5000 + "]" * 5000}.get(value, RAW[value])
    if isinstance(value, float):
        return "nan" if math.isnan(value) else "inf" if value == math.inf else repr(value)
    return "null" if value is None else json.dumps(value, ensure_ascii=not isinstance(value, str))
