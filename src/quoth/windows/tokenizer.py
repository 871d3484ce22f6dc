"""`Tokenizer`: a tokenizer that gives ids and exact character spans, and knows how its family frames a pair."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, islice
from pathlib import Path
from typing import Any

import numpy as np
import tokenizers as library
from tokenizers import processors
from tokenizers.models import WordPiece
from tokenizers.normalizers import BertNormalizer
from tokenizers.pre_tokenizers import BertPreTokenizer

from quoth.config import shown
from quoth.data.source import read_source
from quoth.errors import QuothError
from quoth.files import read_object
from quoth.windows.offsets import spans_of
from quoth.windows.pieces import pieces
from quoth.windows.tokenizer_file import IDS, SECONDS, Bounded, guarded, read_tokenizer

PIECE = 100_000  # characters of a long text that are tokenised in one go
GROUP = 1_000_000  # characters whose `Encoding`s, much larger than our arrays, are held at a time
SURROGATES = re.compile("[\ud800-\udfff]")


@dataclass(frozen=True)
class Template:
    """What stands around question and passage: prefix, question, middle, passage, suffix.

    BERT has [CLS] q [SEP] p [SEP], RoBERTa <s> q </s></s> p </s>. Ids and types of each special token, and
    the type of all tokens of the question and of the passage.
    """

    prefix: tuple[int, ...]
    middle: tuple[int, ...]
    suffix: tuple[int, ...]
    prefix_types: tuple[int, ...]
    middle_types: tuple[int, ...]
    suffix_types: tuple[int, ...]
    question_type: int
    passage_type: int

    @property
    def special(self) -> int:
        """How many tokens of a window are neither question nor passage."""
        return len(self.prefix) + len(self.middle) + len(self.suffix)

    def framed(self, first: np.ndarray, second: np.ndarray | None = None) -> tuple[np.ndarray, np.ndarray]:
        """Ids and types, (n,) int32 each, of one text, prefix and suffix around it, or of two with all special tokens.

        The end of a single text is of the text's own type.
        """
        parts: list[tuple[Any, Any]] = [(self.prefix, self.prefix_types), (first, self.question_type)]
        if second is not None:
            parts += [(self.middle, self.middle_types), (second, self.passage_type)]
        parts.append((self.suffix, self.suffix_types if second is not None else self.question_type))
        ids = np.concatenate([np.asarray(part, np.int32) for part, _ in parts])
        return ids, np.concatenate([np.broadcast_to(np.asarray(kind, np.int32), len(part)) for part, kind in parts])


@dataclass(frozen=True)
class Encoded:
    """A text as n tokens: ids (n,) int32, spans (n, 2) int32 with the characters [start, end) of each.

    words: (n,) int32, the number of the word that each token is a part of, as the tokenizer splits words; they
    ascend, and a token that belongs to none has -1.
    """

    ids: np.ndarray
    spans: np.ndarray
    words: np.ndarray

    def __len__(self) -> int:
        return len(self.ids)


class Tokenizer:
    """A `tokenizers.Tokenizer`, used without its truncation and padding, and the template of its pairs.

    A special token typed by a user ("[SEP]" in a passage) becomes what the tokenizer makes of it by default,
    as in transformers: usually that token's id, with the span of the typed characters. It never changes the
    structure: which tokens are question and passage is known from the template alone.
    """

    def __init__(self, tokenizer: library.Tokenizer, types: bool = True, source: str = "") -> None:
        """Wrap a tokenizer, which is left as it is.

        types: False for a family without token types; source: where it came from, for messages
        """
        self.kept: Path | None = None  # a folder where windows are kept for other runs (`quoth.windows.stored`)
        self.backend = tokenizer
        bare = library.Tokenizer.from_str(tokenizer.to_str())
        bare.no_truncation()
        bare.no_padding()
        self.template = guarded(lambda: _template(bare, types), SECONDS)
        # The post-processor frames the pair, as we do, and trims offsets, which RoBERTa's gets wrong where a
        # space was put before a word after a typed special token. Without it the offsets are raw and exact.
        bare.post_processor = processors.Sequence([])
        self._bare = Bounded(bare, source)

    @classmethod
    def load(cls, path: str | Path) -> Tokenizer:
        """Load `tokenizer.json` (the file, or a folder that has it), else the folder's BERT `vocab.txt`."""
        path = Path(path)
        folder = path if path.is_dir() else path.parent
        file = folder / "tokenizer.json" if path.is_dir() else path
        settings = folder / "tokenizer_config.json"
        config = read_object(settings) if settings.exists() else {}
        vocabulary = path if path.name == "vocab.txt" else folder / "vocab.txt"
        if file.exists() and file != vocabulary:
            tokenizer = read_tokenizer(file)
        elif vocabulary.exists():
            tokenizer = _word_pieces(vocabulary, config)
        else:
            raise QuothError(f"{path}: no tokenizer.json and no vocab.txt there")
        try:
            return cls(tokenizer, _has_types(config), str(path))
        except QuothError as error:
            raise QuothError(f"{path}: {error}") from None

    @property
    def identity(self) -> str:
        """The sha256 of all that tokens depend on."""
        return hashlib.sha256(f"{self.template}{self.backend.to_str()}".encode()).hexdigest()

    def encode(self, texts: Sequence[str], piece: int = PIECE) -> list[Encoded]:
        """Tokens of each text, without special tokens around it.

        Spans are exact for any Unicode and never fall.
        - they neither begin nor end with white space: a token of nothing else has an empty span at its end
        - tokens that share a character (its bytes in byte-level BPE, the letters of a Hangul syllable) each
          have the whole character
        - a space that the tokenizer itself put before a word counts as the word's first character

        A text longer than `piece` characters is tokenised in pieces, with the same result and flat memory.
        """
        clean = [_clean(text) for text in texts]
        parts: list[list[Encoded]] = [[] for _ in clean]
        for group in self._groups(clean, piece):
            chunks = [clean[text][start:end] for text, start, end in group]
            found = self._bare.encode_batch(chunks, add_special_tokens=False)
            spans = spans_of(found, chunks)
            past = 0
            for (text, start, _), encoding in zip(group, found, strict=True):
                first, past = past, past + len(encoding)
                ids = np.array(encoding.ids, dtype=np.int32)
                parts[text].append(Encoded(ids, spans[first:past] + np.int32(start), _words(encoding)))
        return [_join(part) for part in parts]

    def ids(self, texts: Sequence[str]) -> list[list[int]]:
        """Only the token ids of each text: faster, for questions, whose spans are not needed."""
        found = self._bare.encode_batch_fast([_clean(text) for text in texts], add_special_tokens=False)
        return [encoding.ids for encoding in found]

    def _groups(self, texts: list[str], piece: int) -> Iterator[list[tuple[int, int, int]]]:
        """Pieces (text, start, past) of all texts in order, some `GROUP` characters of them at a time."""
        group: list[tuple[int, int, int]] = []
        size = 0
        for index, text in enumerate(texts):
            for start, past in pieces(self._bare, text, piece):
                group.append((index, start, past))
                size += past - start
                if size >= GROUP:
                    yield group
                    group, size = [], 0
        if group:
            yield group


def _join(parts: list[Encoded]) -> Encoded:
    if len(parts) == 1:
        return parts[0]
    words, count = [], 0
    for part in parts:  # each piece counts its words from 0
        words.append(np.where(part.words < 0, part.words, part.words + np.int32(count)))
        count += int(part.words.max(initial=-1)) + 1
    ids, spans = ([getattr(part, name) for part in parts] for name in ("ids", "spans"))
    return Encoded(np.concatenate(ids), np.concatenate(spans), np.concatenate(words))


def _words(encoding: Any) -> np.ndarray:
    numbers = (-1 if word is None else word for word in encoding.word_ids)
    return np.fromiter(numbers, dtype=np.int32, count=len(encoding))


def _clean(text: str) -> str:
    """The text with half surrogate pairs, which UTF-8 cannot hold, as U+FFFD: a character for a character."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return SURROGATES.sub("\ufffd", text)
    return text


def _template(tokenizer: library.Tokenizer, types: bool) -> Template:
    """Find the template by a pair of placeholders: what belongs to neither sequence is the frame."""
    for word in chain(["a"], islice(tokenizer.get_vocab(), 1000)):
        pair = tokenizer.encode(word, word)
        owner = [2 if sequence is None else sequence for sequence in pair.sequence_ids]
        if 0 in owner and 1 in owner:
            break
    else:
        raise QuothError("the tokenizer gives no token for any word of its vocabulary")
    q, q_past = owner.index(0), len(owner) - owner[::-1].index(0)
    p, p_past = owner.index(1), len(owner) - owner[::-1].index(1)
    if not 0 < q < q_past <= p:
        raise QuothError("the tokenizer puts no special token before the question; Quoth needs one, as [CLS] or <s>")
    kinds = pair.type_ids if types else [0] * len(owner)
    ids = [tuple(pair.ids[a:b]) for a, b in ((0, q), (q_past, p), (p_past, None))]
    frame = [tuple(kinds[a:b]) for a, b in ((0, q), (q_past, p), (p_past, None))]
    return Template(ids[0], ids[1], ids[2], frame[0], frame[1], frame[2], kinds[q], kinds[p])


def _has_types(config: dict[str, Any]) -> bool:
    """Whether the family has token types; DistilBERT has none, though its tokenizer.json is BERT's, nor has MPNet."""
    names = config.get("model_input_names")
    if isinstance(names, list):
        return "token_type_ids" in names
    return not any(name in str(config.get("tokenizer_class", "")) for name in ("DistilBert", "MPNet"))


def _switch(config: dict[str, Any], name: str, default: bool | None) -> bool | None:
    value = config.get(name, default)
    if value is not default and not isinstance(value, bool):
        raise QuothError(f"tokenizer_config.json: {name} is {shown(value)}; true or false is wanted")
    return value


def _word_pieces(vocabulary: Path, config: dict[str, Any]) -> library.Tokenizer:
    """BERT's own tokenizer from its vocabulary, with the defaults of transformers' BertTokenizer.

    MPNet's has BERT's words after four of its own: <s> and </s>, two between question and passage, frame a pair.
    """
    words = [word.rstrip("\r") for word in read_source(vocabulary).split("\n")]
    if words and not words[-1]:
        words.pop()
    if len(words) > IDS:
        raise QuothError(f"{vocabulary}: has more than {IDS:,} words")
    vocab = {word: index for index, word in enumerate(words)}
    mpnet = words[:1] == ["<s>"]
    special = ["<s>", "<pad>", "</s>", "[UNK]", "<mask>"] if mpnet else ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    missing = [token for token in special if token not in vocab]
    if missing:
        raise QuothError(f"{vocabulary}: not a BERT vocabulary, it has no {missing[0]}")
    tokenizer = library.Tokenizer(WordPiece(vocab, unk_token="[UNK]"))
    tokenizer.normalizer = BertNormalizer(
        clean_text=True,
        handle_chinese_chars=_switch(config, "tokenize_chinese_chars", True) is True,
        strip_accents=_switch(config, "strip_accents", None),
        lowercase=_switch(config, "do_lower_case", True) is True,
    )
    tokenizer.pre_tokenizer = BertPreTokenizer()
    first, last = ("<s>", "</s>") if mpnet else ("[CLS]", "[SEP]")
    tokenizer.post_processor = processors.TemplateProcessing(
        single=f"{first} $A {last}",
        pair=f"{first} $A {last} {last} $B {last}" if mpnet else f"{first} $A {last} $B:1 {last}:1",
        special_tokens=[(token, vocab[token]) for token in (first, last)],
    )
    tokenizer.add_special_tokens(special)
    return tokenizer
