"""Tiny tokenizers of the three kinds, trained on the spot; the last one on text in eleven scripts."""

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
SCRIPTS = {
    "Latin": "The harbour of Valletta was built by the knights in 1566; naïve façades, Łódź and Þingvellir came later.",
    "Cyrillic": "Город Владивосток был основан в 1860 году на берегу залива Золотой Рог; позже построили порт и мост.",
    "Greek": "Η Θεσσαλονίκη ιδρύθηκε το 315 π.Χ. από τον Κάσσανδρο, και πήρε το όνομα της γυναίκας του.",
    "Arabic": "تأسست مدينة القاهرة سنة 969 على يد جوهر الصقلي، وهي اليوم عاصمة جمهورية مصر العربية.",
    "Hebrew": "העיר תל אביב נוסדה בשנת 1909 על ידי שישים ושש משפחות, צפונית לעיר יפו.",
    "Devanagari": "जयपुर शहर की स्थापना सन् 1727 में महाराजा सवाई जयसिंह ने की थी। यह राजस्थान की राजधानी है।",
    "Thai": "กรุงเทพมหานคร ก่อตั้งขึ้นในปี พ.ศ. 2325 โดยพระบาทสมเด็จพระพุทธยอดฟ้าจุฬาโลก",
    "Han": "南京是中国的古都之一， 明朝于 1368 年在此建都。 长江流经这座城市。",
    "Kana": "京都は七九四年に桓武天皇によって都とされた。 ラーメン と コーヒー も ゆうめい です。",
    "Hangul": "부산은 대한민국에서 두 번째로 큰 도시이며 1876 년에 항구를 열었다.",
    "Georgian": "თბილისი დაარსდა მეხუთე საუკუნეში მეფე ვახტანგ გორგასლის მიერ.",
}


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


def multilingual(normaliser: normalizers.Normalizer | None = None) -> library.Tokenizer:
    """As XLM-RoBERTa's and CamemBERT's, without the compiled table of characters."""
    tokenizer = library.Tokenizer(models.Unigram())
    if normaliser is not None:
        tokenizer.normalizer = normaliser
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.WhitespaceSplit(), pre_tokenizers.Metaspace()])
    special = ["<s>", "<pad>", "</s>", "<unk>", AddedToken("<mask>", lstrip=True)]
    trainer = trainers.UnigramTrainer(vocab_size=700, special_tokens=special, unk_token="<unk>", show_progress=False)
    tokenizer.train_from_iterator([*SCRIPTS.values()] * 4, trainer)
    tokenizer.post_processor = processors.TemplateProcessing(
        single="<s> $A </s>", pair="<s> $A </s> </s> $B </s>", special_tokens=[("<s>", 0), ("</s>", 2)]
    )
    return tokenizer


BUILDERS = {
    "wordpiece": wordpiece,
    "wordpiece-cased": lambda: wordpiece(lowercase=False),
    "bytelevel": bytelevel,
    "bytelevel-prefix": lambda: bytelevel(add_prefix_space=True),
    "bytelevel-untrimmed": lambda: bytelevel(trim_offsets=False),
    "unigram": unigram,
    "multilingual": multilingual,
    "multilingual-nfkc": lambda: multilingual(normalizers.NFKC()),
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
