"""A `tokenizer.json` that is not trusted, checked before the native library sees it.

The library takes memory by the largest id, runs any regular expression, lets a normaliser multiply a text, and ends
the whole process (or panics, with a page of text) at some of what it cannot do. So a file is read here first, as JSON:

- parts are of types that are known here; there are few of them, and sequences of them at most `DEPTH` levels deep
- ids are below `IDS`; words are at most `WORD` characters; a vocabulary is not empty and has its unknown word
- normalisers together make at most `GROWTH` times as many characters of a text
- a regular expression is short, and a group that is repeated holds no repetition and no alternative, since trying all
  ways to split a text among such parts takes for ever; what is slow all the same ends at the time limit (`Bounded`)
- the compiled table of characters of SentencePiece leads nowhere outside itself

Real tokenizers (BERT, RoBERTa, ALBERT, MPNet, DeBERTa, XLM-R, GPT-2, ModernBERT …) pass. What is given to the library
is what was checked, written anew, so that both have read the same.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, TypeVar

import tokenizers as library

from quoth.config import shown
from quoth.errors import QuothError
from quoth.files import read_object
from quoth.limits import within
from quoth.windows.charsmap import longest_entry
from quoth.windows.expressions import check_expression

IDS = 4_000_000  # XLM-V, the largest that is in use, has 901,629
WORD = 1000  # characters of a token; GPT-2's longest has 256
LETTERS = 200  # of a word that WordPiece splits, in time by its square; BERT has 100
PARTS, DEPTH = 64, 4  # normalisers, pre-tokenizers or post-processors
ADDED = 100_000
GROWTH = 100  # the compiled table of XLM-R has an entry of 33 bytes for one character
SECONDS, PACE = 30.0, 5000  # any call may take so long, and for every so many characters a second more

NORMALIZERS = (
    "BertNormalizer", "ByteLevel", "Lowercase", "NFC", "NFD", "NFKC", "NFKD", "Nmt", "Precompiled", "Prepend",
    "Replace", "Strip", "StripAccents",
)  # fmt: skip
PRE_TOKENIZERS = (
    "BertPreTokenizer", "ByteLevel", "CharDelimiterSplit", "Digits", "Metaspace", "Punctuation", "Split",
    "UnicodeScripts", "Whitespace", "WhitespaceSplit",
)  # fmt: skip
PROCESSORS = ("BertProcessing", "ByteLevel", "RobertaProcessing", "TemplateProcessing")
FAILS = "the tokenizer fails: "
LISTS = {"normalizer": "normalizers", "pre_tokenizer": "pretokenizers", "post_processor": "processors"}

Table = Mapping[str, Any]
Given = TypeVar("Given")


def read_tokenizer(path: Path) -> library.Tokenizer:
    """The tokenizer of a `tokenizer.json`, or one line that says what is wrong with it."""
    value = read_object(path)
    try:
        check_tokenizer(value)
    except QuothError as error:
        raise QuothError(f"{path}: {error}") from None
    # Neither is used here: windows are cut by Quoth, and nothing is decoded.
    value.update(truncation=None, padding=None, decoder=None)
    try:
        return guarded(lambda: library.Tokenizer.from_str(json.dumps(value)), SECONDS)
    except QuothError as error:
        reason = str(error).removeprefix(FAILS)
        raise QuothError(f"{path}: not a tokenizer of the tokenizers library ({reason})") from None


def check_tokenizer(value: Table) -> None:
    """Refuse what would end or hang the process, or fill its memory."""
    _check_model(_table(value.get("model"), "model"))
    added = _list(value.get("added_tokens") or [], "added_tokens", ADDED)
    for token in added:
        _id(_table(token, "an added token").get("id"), "an added token")
        _word(token.get("content"))
    growth = 1.0
    for part in _parts(value, "normalizer", NORMALIZERS):
        growth *= _growth(part)
    if growth > GROWTH:
        raise QuothError(f"its normalisers make up to {growth:,.0f} characters of one; at most {GROWTH} are allowed")
    for part in _parts(value, "pre_tokenizer", PRE_TOKENIZERS):
        if part["type"] == "Split":
            _pattern(part)
    for part in _parts(value, "post_processor", PROCESSORS):
        _check_processor(part)


class Bounded:
    """A tokenizer of the library whose calls end in time, and whose failures are one line that names its source."""

    def __init__(self, tokenizer: library.Tokenizer, source: str = "") -> None:
        self._tokenizer, self._source = tokenizer, source

    def encode_batch(self, texts: list[str], add_special_tokens: bool = False) -> list[Any]:
        """As the library's."""
        return self._run(self._tokenizer.encode_batch, texts, add_special_tokens)

    def encode_batch_fast(self, texts: list[str], add_special_tokens: bool = False) -> list[Any]:
        """As the library's."""
        return self._run(self._tokenizer.encode_batch_fast, texts, add_special_tokens)

    def _run(self, encode: Callable[..., list[Any]], texts: list[str], special: bool) -> list[Any]:
        limit = SECONDS + sum(map(len, texts)) / PACE
        try:
            return guarded(lambda: encode(texts, add_special_tokens=special), limit)
        except QuothError as error:
            raise QuothError(f"{self._source}: {error}" if self._source else str(error)) from None


def guarded(call: Callable[[], Given], seconds: float) -> Given:
    """What the library gives, or a `QuothError` if it fails or takes too long."""
    try:
        return within(seconds, call, f"the tokenizer takes more than {seconds:.0f} seconds, so it is given up")
    except QuothError:
        raise
    except BaseException as error:
        panic = type(error).__name__ == "PanicException"  # of Rust; it is no Exception, and has no place to import from
        if not panic and not isinstance(error, Exception):
            raise
        reason = (str(error).strip().splitlines() or [type(error).__name__])[0]
        raise QuothError(f"{FAILS}{reason}") from None


def _check_model(model: Table) -> None:
    kind, vocab = model.get("type"), model.get("vocab")
    if kind is None:  # files of the library before 0.9 do not say
        kind = "Unigram" if isinstance(vocab, list) else "BPE" if "merges" in model else "WordPiece"
    if kind == "Unigram":
        entries = _list(vocab, "vocab", IDS)
        if not all(isinstance(entry, list) and len(entry) == 2 for entry in entries):
            raise QuothError("vocab of a Unigram model is a list of [word, score]")
        for word, score in entries:
            _word(word)
            if type(score) not in (int, float) or not abs(score) < 1e6:
                raise QuothError(f"the score of {shown(word)} is {shown(score)}; a number is wanted")
        if not 0 <= _id(model.get("unk_id"), "unk_id") < len(entries):
            raise QuothError(f"unk_id {model['unk_id']} is not in its vocabulary of {len(entries)} words")
        return
    if kind not in ("WordPiece", "BPE", "WordLevel"):
        raise QuothError(f"its model is of type {shown(kind)}; known: WordPiece, BPE, Unigram, WordLevel")
    words = _table(vocab, "vocab")
    if not words:
        raise QuothError("its vocabulary is empty")
    for word, number in words.items():
        _id(number, _word(word))
    unknown = model.get("unk_token")
    if kind != "BPE" and not (isinstance(unknown, str) and unknown in words):
        raise QuothError(f"its unknown word {shown(unknown)} is not in its vocabulary")
    if _number(model, "max_input_chars_per_word", 100) > LETTERS:
        raise QuothError(f"max_input_chars_per_word is more than {LETTERS}, which takes too long")
    if kind == "BPE":
        _check_merges(model)


def _check_merges(model: Table) -> None:
    """Parts of a merge must not be shorter than the prefix that the library cuts off of the second."""
    prefix = model.get("continuing_subword_prefix") or ""
    merges = _list(model.get("merges") or [], "merges", IDS)
    for merge in merges:
        parts = merge.split(" ") if isinstance(merge, str) else merge
        if not isinstance(parts, list) or len(parts) != 2 or not all(isinstance(part, str) for part in parts):
            raise QuothError(f"merges has {shown(merge)}; two parts are wanted")
        if len(parts[1].encode("utf-8", "replace")) < len(_word(prefix).encode("utf-8", "replace")):
            raise QuothError(f"merges has {shown(merge)}, shorter than its prefix {shown(prefix)}")
    if _number(model, "cache_capacity", 0) > IDS:
        raise QuothError(f"cache_capacity is more than {IDS:,}")


def _check_processor(part: Table) -> None:
    if part["type"] in ("BertProcessing", "RobertaProcessing"):
        for name in ("sep", "cls"):
            pair = part.get(name)
            if not isinstance(pair, list) or len(pair) != 2:
                raise QuothError(f"{name} of its post_processor is a list of a token and its id")
            _id(pair[1], name)
    if part["type"] != "TemplateProcessing":
        return
    special = _table(part.get("special_tokens"), "special_tokens")
    for name, entry in special.items():
        for number in _list(_table(entry, name).get("ids"), f"ids of {name}", PARTS):
            _id(number, name)
    for name in ("single", "pair"):
        for piece in _list(part.get(name), f"{name} of its post_processor", PARTS):
            kind = next(iter(_table(piece, name)), "")
            inner = _table(piece.get(kind), name)
            _id(inner.get("type_id"), f"type_id of {name}")
            if kind == "SpecialToken" and inner.get("id") not in list(special):
                raise QuothError(
                    f"{name} of its post_processor has {shown(inner.get('id'))}, which special_tokens lacks"
                )


def _parts(value: Table, name: str, known: tuple[str, ...]) -> list[Table]:
    """All parts of this sort, those of a sequence one by one."""
    found = list(_flat(value.get(name), name, DEPTH))
    for part in found:
        if part.get("type") not in known:
            raise QuothError(f"its {name} is of type {shown(part.get('type'))}; known: {', '.join(known)}")
    if len(found) > PARTS:
        raise QuothError(f"it has more than {PARTS} parts of sort {name}")
    return found


def _flat(part: Any, name: str, depth: int) -> Iterator[Table]:
    if part is None:
        return
    if _table(part, name).get("type") != "Sequence":
        yield part
        return
    if depth == 0:
        raise QuothError(f"its {name} has sequences inside each other, more than {DEPTH} levels deep")
    for inner in _list(part.get(LISTS[name]), LISTS[name], PARTS):
        yield from _flat(inner, name, depth - 1)


def _growth(part: Table) -> float:
    """How many times longer a text may become by a normaliser that its file defines; those of Unicode count as 1."""
    if part["type"] == "Precompiled":
        return max(1.0, float(longest_entry(part.get("precompiled_charsmap"))))
    if part["type"] == "Prepend":
        _word(part.get("prepend"))
    if part["type"] != "Replace":
        return 1.0
    content = _word(part.get("content"))
    kind, pattern = _pattern(part)
    if kind == "String" and not pattern:
        raise QuothError("a Replace normaliser replaces the empty text")
    # A regular expression may match nothing at all, between any two characters.
    return max(1.0, len(content) / len(pattern)) if kind == "String" else 1.0 + len(content)


def _pattern(part: Table) -> tuple[str, str]:
    table = _table(part.get("pattern"), f"pattern of {part['type']}")
    kind, pattern = next(iter(table.items()), ("", None))
    if len(table) != 1 or kind not in ("String", "Regex") or not isinstance(pattern, str):
        raise QuothError(f"the pattern of {part['type']} is {shown(dict(table))}; a String or a Regex is wanted")
    if kind == "Regex":
        check_expression(pattern)
    return kind, pattern


def _table(value: Any, name: str) -> Table:
    if not isinstance(value, dict):
        raise QuothError(f"{name} is {shown(value)}, a table is wanted")
    return value


def _list(value: Any, name: str, most: int) -> list[Any]:
    if not isinstance(value, list) or len(value) > most:
        raise QuothError(f"{name} is not a list of at most {most:,}")
    return value


def _word(value: Any) -> str:
    if not isinstance(value, str) or len(value) > WORD:
        raise QuothError(f"{shown(value)} is not a text of at most {WORD} characters")
    return value


def _id(value: Any, name: str) -> int:
    if type(value) is not int or not 0 <= value < IDS:
        raise QuothError(f"the id of {shown(name)} is {shown(value)}; it must be at least 0 and below {IDS:,}")
    return value


def _number(table: Table, name: str, default: int) -> int:
    value = table.get(name, default)
    if value is None:
        return default
    if type(value) is not int or value < 0:
        raise QuothError(f"{name} is {shown(value)}; it must be a whole number")
    return value
