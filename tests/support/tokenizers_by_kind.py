"""Tiny tokenizers of the three kinds, trained on the spot."""

import pytest
import tokenizers as library
from tokenizers import AddedToken, models, normalizers, pre_tokenizers, processors, trainers

from quoth.windows.tokenizer import Tokenizer

CORPUS = [
    "The quick brown fox jumps over the lazy dog. Who wrote the book about the old town?",
    "In 1851, more than 200 whales (sperm whales!) were seen off Nantucket; café, naïve, Zürich, Übung.",
    "Mr. O'Neil's dog isn't here: it's \"gone\" -- to the U.S.A. and back, 3.14 times.",
    "東京は日本の首都です。 北京是中国的首都。 서울은 대한민국의 수도이다.",
    "Москва — столица России. Η Αθήνα είναι πρωτεύουσα. القاهرة عاصمة مصر. ירושלים היא בירה.",
    "emoji 😀 👍🏽 👨‍👩‍👧 and e\u0301 o\u0308 combining marks\r\nnew line\ttab",
] * 4


def wordpiece(lowercase: bool = True) -> library.Tokenizer:
    tokenizer = library.Tokenizer(models.WordPiece(unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.BertNormalizer(lowercase=lowercase)
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    tokenizer.train_from_iterator(
        CORPUS, trainers.WordPieceTrainer(vocab_size=600, special_tokens=special, show_progress=False)
    )
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]",
        pair="[CLS] $A [SEP] $B:1 [SEP]:1",
        special_tokens=[("[CLS]", 2), ("[SEP]", 3)],
    )
    return tokenizer


def bytelevel(add_prefix_space: bool = False, trim_offsets: bool = True) -> library.Tokenizer:
    tokenizer = library.Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=add_prefix_space)
    special = ["<s>", "<pad>", "</s>", "<unk>", AddedToken("<mask>", lstrip=True)]
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=500, special_tokens=special, initial_alphabet=alphabet, show_progress=False
    )
    tokenizer.train_from_iterator(CORPUS, trainer)
    tokenizer.post_processor = processors.RobertaProcessing(
        ("</s>", 2), ("<s>", 0), add_prefix_space=add_prefix_space, trim_offsets=trim_offsets
    )
    return tokenizer


def unigram() -> library.Tokenizer:
    """As ALBERT's, without the compiled table of characters."""
    tokenizer = library.Tokenizer(models.Unigram())
    tokenizer.normalizer = normalizers.Sequence(
        [
            normalizers.Replace("``", '"'),
            normalizers.NFKD(),
            normalizers.StripAccents(),
            normalizers.Lowercase(),
        ]
    )
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
    special = ["[CLS]", "[SEP]", "<unk>", "<pad>", "[MASK]"]
    trainer = trainers.UnigramTrainer(vocab_size=300, special_tokens=special, unk_token="<unk>", show_progress=False)
    tokenizer.train_from_iterator(CORPUS, trainer)
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]",
        pair="[CLS] $A [SEP] $B:1 [SEP]:1",
        special_tokens=[("[CLS]", 0), ("[SEP]", 1)],
    )
    return tokenizer


BUILDERS = {
    "wordpiece": wordpiece,
    "wordpiece-cased": lambda: wordpiece(lowercase=False),
    "bytelevel": bytelevel,
    "bytelevel-prefix": lambda: bytelevel(add_prefix_space=True),
    "bytelevel-untrimmed": lambda: bytelevel(trim_offsets=False),
    "unigram": unigram,
}
KINDS = list(BUILDERS)


@pytest.fixture(scope="session")
def tokenizers() -> dict[str, library.Tokenizer]:
    return {name: build() for name, build in BUILDERS.items()}


@pytest.fixture(params=KINDS, scope="session")
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="session")
def tokenizer(tokenizers: dict[str, library.Tokenizer], kind: str) -> library.Tokenizer:
    """Each kind in turn, for tests that hold for any."""
    return tokenizers[kind]


@pytest.fixture(scope="session")
def all_tokens(tokenizers: dict[str, library.Tokenizer]) -> dict[str, Tokenizer]:
    return {name: Tokenizer(tokenizer) for name, tokenizer in tokenizers.items()}


@pytest.fixture(scope="session")
def tokens(all_tokens: dict[str, Tokenizer], kind: str) -> Tokenizer:
    return all_tokens[kind]
