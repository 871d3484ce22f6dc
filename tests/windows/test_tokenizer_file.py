"""A `tokenizer.json` that would end or hang the process, or fill its memory, is one line before the library sees it."""

import base64
import copy
import json
import threading
from itertools import product

import pytest
import tokenizers as library
from tokenizers import AddedToken, decoders, models, normalizers, pre_tokenizers, processors

from quoth.embedded import embedded_folder
from quoth.errors import QuothError
from quoth.windows import tokenizer_file
from quoth.windows.charsmap import longest_entry
from quoth.windows.expressions import check_expression
from quoth.windows.tokenizer import Tokenizer
from quoth.windows.tokenizer_file import Bounded, check_tokenizer, guarded

REAL = json.loads((embedded_folder() / "tokenizer.json").read_text())
TEXT = "The quick brown fox, in 1851: caf\u00e9 \ufb01ne \u6771\u4eac!"

# Made by SentencePiece of five rules: U+FB01 to fi, U+FF11 to 1, U+FDFA to eighteen letters, A to a, U+FE0F to nothing.
CHARSMAP = (
    "AAQAAAAAAQBBDQAAAwAAgKwYAgCBBQAABQAAgLoFAAAIAACAjwUAAAAAAICRBQAAAQAAgA0AAAAMAAAADwAAAA4AAAARAAAAEAAA"
    "ABMAAAC8IAIAFQAAABQAAAAXAAAAuEACALeQAgAYAAAAGwAAABoAAAAdAAAAHAAAAB8AAAAeAAAAIQAAACAAAAAjAAAAIgAAACUA"
    "AAAkAAAAJwAAACYAAAApAAAAKAAAACsAAAAqAAAALQAAACwAAAAvAAAALgAAADEAAAAwAAAAMwAAADIAAAA1AAAANAAAADcAAAA2"
    "AAAAOQAAADgAAAA7AAAAOgAAAD0AAAA8AAAAPwAAAD4AAABBAAAAQAAAAEMAAABCAAAARQAAAEQAAABHAAAARgAAAEkAAABIAAAA"
    "SwAAAEoAAABNAAAATAAAAE8AAABOAAAAUQAAAFAAAABTAAAAUgAAAFUAAABUAAAAVwAAAFYAAABZAAAAWAAAAFsAAABaAAAAXQAA"
    "AFwAAABfAAAAXgAAAGEAAABgAAAAYwAAAGIAAABlAAAAZAAAAGcAAABmAAAAaQAAAGgAAABrAAAAagAAAG0AAABsAAAAbwAAAG4A"
    "AABxAAAAcAAAAHMAAAByAAAAdQAAAHQAAAB3AAAAdgAAAHkAAAB4AAAAewAAAHoAAAB9AAAAfAAAAH8AAAB+AAAAgQAAAIAAAACD"
    "AAAAggAAAIUAAACEAAAAhwAAAIYAAACJAAAAiAAAAIsAAACKAAAAjQAAAIwAAACPAAAAjgAAAJEAAACQAAAAkwAAAJIAAACVAAAA"
    "lAAAAJcAAACWAAAAmQAAAJgAAACbAAAAmgAAAJ0AAACcAAAAnwAAAJ4AAAChAAAAoAAAAKMAAACiAAAApQAAAKQAAACnAAAApgAA"
    "AKkAAACoAAAAqwAAAKoAAACtAAAArAAAAK8AAADvAAAAsQAAALAAAACzAAAAsgAAALUAAAC0AAAAtwAAALYAAAC5AAAAuAAAALsA"
    "AAC6AAAAvQAAALwAAAC/AAAAvgAAAMEAAADAAAAAwwAAAMIAAADFAAAAxAAAAMcAAADGAAAAyQAAAMgAAADLAAAAygAAAM0AAADM"
    "AAAAzwAAAM4AAADRAAAA0AAAANMAAADSAAAA1QAAANQAAADXAAAA1gAAANkAAADYAAAA2wAAANoAAADdAAAA3AAAAN8AAADeAAAA"
    "4QAAAOAAAADjAAAA4gAAAOUAAADkAAAA5wAAAOYAAADpAAAA6AAAAOsAAADqAAAA7QAAAOwAAADvAAAA7gAAAPEAAADwAAAA8wAA"
    "APIAAAD1AAAA9AAAAPcAAAD2AAAA+QAAAPgAAAD7AAAA+gAAAP0AAAD8AAAA/wAAAP4AAAAAMQBhAGZpANi12YTZiSDYp9mE2YTZ"
    "hyDYudmE2YrZhyDZiNiz2YTZhQA="
)


def changed(**parts):
    return {**REAL, **parts}


def model(**changes):
    return {**REAL, "model": {**REAL["model"], **changes}}


def words(**more):
    return model(vocab={**REAL["model"]["vocab"], **more})


def replace(pattern, content):
    return {"type": "Replace", "pattern": pattern, "content": content}


def normalizer(*several):
    return changed(normalizer={"type": "Sequence", "normalizers": list(several)})


def split(expression):
    pattern = {"Regex": expression}
    return changed(pre_tokenizer={"type": "Split", "pattern": pattern, "behavior": "Isolated", "invert": False})


def charsmap(data):
    return changed(normalizer={"type": "Precompiled", "precompiled_charsmap": base64.b64encode(data).decode()})


def template(**changes):
    return changed(post_processor={**REAL["post_processor"], **changes})


def added(**changes):
    plain = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": False}
    return changed(added_tokens=[*REAL["added_tokens"], {"id": 30522, "content": "zz", **plain, **changes}])


def deep(levels):
    part = {"type": "Lowercase"}
    for _ in range(levels):
        part = {"type": "Sequence", "normalizers": [part]}
    return changed(normalizer=part)


def unigram(vocab, unk_id=0):
    return changed(model={"type": "Unigram", "unk_id": unk_id, "vocab": vocab})


def bpe(**more):
    return changed(model={"type": "BPE", "vocab": {"e": 0, "[CLS]": 101, "[SEP]": 102}, "merges": [], **more})


ABORTS = {  # what ended or hung the process, took all memory, or gave a traceback
    "an id of 2**31": words(zzz=2**31),
    "an id of 2**32 - 1": words(zzz=2**32 - 1),
    "a negative id": words(zzz=-1),
    "an id that is a text": words(zzz="1"),
    "an id of 1e9 of an added token": added(id=10**9),
    "an added token that is a number": changed(added_tokens=[3]),
    "no words": model(vocab={}),
    "words that are a list": model(vocab=[]),
    "no unknown word": model(unk_token="nowhere-to-be-found"),
    "an unknown word that is a list": model(unk_token=[]),
    "a long word": words(**{"e" * 100_000: 5}),
    "words of any length": model(max_input_chars_per_word=2**40),
    "another model": model(type="Magic"),
    "a model that is null": changed(model=None),
    "a unigram model without words": unigram([], None),
    "a unigram model without an unknown word": unigram([["a", -1.0]], None),
    "an unknown word outside": unigram([["a", -1.0]], 5),
    "a score that is a text": unigram([["a", "x"]]),
    "an infinite score": unigram([["a", float("inf")]]),
    "a unigram entry that is short": unigram([["a"]]),
    "merges shorter than their prefix": bpe(merges=["e ##e"], continuing_subword_prefix="#######"),
    "merges that are numbers": bpe(merges=[3]),
    "merges out of the vocabulary": bpe(merges=["e z"]),
    "an absurd cache": bpe(cache_capacity=2**40),
    "a dropout of 7": bpe(dropout=7.0),
    "an unknown word that BPE lacks": bpe(unk_token="nope"),
    "a normaliser that explodes": normalizer(*[replace({"String": "e"}, "e" * 100)] * 6),
    "two that explode": normalizer(*[replace({"String": "e"}, "e" * 11)] * 2),
    "one that puts in words": normalizer(replace({"Regex": ""}, "e" * 500)),
    "one that replaces nothing": normalizer(replace({"String": ""}, "e")),
    "one with two patterns": normalizer(replace({"String": "a", "Regex": "b"}, "e")),
    "one without a pattern": normalizer(replace(None, "e")),
    "a long beginning": normalizer({"type": "Prepend", "prepend": "x" * 1_000_000}),
    "many normalisers": normalizer(*[{"type": "NFC"}] * 100),
    "deep normalisers": deep(50),
    "another normaliser": normalizer({"type": "Magic"}),
    "a normaliser that is a list": changed(normalizer=[]),
    "another pre-tokenizer": changed(pre_tokenizer={"type": "FixedLength", "length": 0}),
    "a catastrophic expression": split("(e+)+z"),
    "one that chooses": split("(?:e|e|ee)*z"),
    "a broken expression": split("("),
    "no table of characters": charsmap(b""),
    "a short table of characters": charsmap(b"ab"),
    "an absurd table of characters": charsmap((2**32 - 1).to_bytes(4, "little") + bytes(20)),
    "a table that leads outside": charsmap((8).to_bytes(4, "little") + bytes(20)),
    "another template": changed(post_processor={"type": "Magic"}),
    "a template without its tokens": template(special_tokens={}),
    "a template of absurd ids": template(special_tokens={"[CLS]": {"id": "[CLS]", "ids": [2**31], "tokens": ["x"]}}),
    "a template of absurd types": template(single=[{"Sequence": {"id": "A", "type_id": 2**32 - 1}}]),
    "a long template": template(pair=REAL["post_processor"]["pair"] * 1000),
    "a template of null": template(pair=None),
    "a pair of special tokens that is short": changed(post_processor={"type": "BertProcessing", "sep": [], "cls": []}),
    "a list": [],
    "null": None,
}


@pytest.mark.parametrize("value", ABORTS.values(), ids=ABORTS)
def test_is_refused(tmp_path, value, capfd):
    (tmp_path / "tokenizer.json").write_text(json.dumps(value))
    with pytest.raises(QuothError) as caught:
        Tokenizer.load(tmp_path).encode(["e" * 30 + " \ufffe zq\u20ac"])
    assert str(caught.value).startswith(f"{tmp_path}")
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 1000
    assert "panicked" not in capfd.readouterr().err


class TestExpressions:
    REAL = (
        r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+",  # GPT-2
        r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+",
        r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}++|\p{N}{1,3}+| ?[^\s\p{L}\p{N}]++[\r\n]*+|\s++$|\s+(?!\S)|\s",
        r"[^\r\n\p{L}]?[\p{Lu}\p{Lt}\p{M}]*[\p{Ll}\p{Lm}]+(?i:'s|'t|'re)?|\p{N}{1,3}| ?[^\s\p{L}]+[\r\n/]*",  # GPT-4o
        r"<\|startoftext\|>|<\|endoftext\|>|'s|'t|[\p{L}]+|[\p{N}]|[^\s\p{L}\p{N}]+",  # CLIP
        r" ?[^(\s|[.,!?])]+",  # BLOOM
        " {2,}",  # ALBERT, DeBERTa
        r"[]a]+[^]b]*",
    )
    SLOW = (
        r"(a+)+", r"(a*)*b", r"(a|aa)+$", r"(\w+\s?)+", r"((a+)b)+", r"(a{1,9}){1,9}", r"(?:x+x+)+y", r"(a)\1+",
        r"a{5000}",
        r"a)", r"(.*a){20}", r"(?:(?:a?b)*c)*", r"a**", r"(a?){30}a{30}", r"([a]+)+", r"(?<n>a+)+", r"(?i)(a+)+",
        r"(?i:a+)*", r"\k<n>", "a" * 2000,
    )  # fmt: skip

    @pytest.mark.parametrize("text", REAL)
    def test_of_real_tokenizers(self, text):
        check_expression(text)
        library.Tokenizer.from_str(json.dumps(split(text)))

    @pytest.mark.parametrize("text", SLOW)
    def test_slow_ones(self, text):
        with pytest.raises(QuothError):
            check_expression(text)


class TestTime:
    def test_a_call_that_does_not_end(self, monkeypatch):
        monkeypatch.setattr(tokenizer_file, "SECONDS", 0.05)

        class Stuck:
            def encode_batch(self, texts, add_special_tokens):
                threading.Event().wait()

        with pytest.raises(QuothError, match="the tokenizer takes more than 0 seconds"):
            Bounded(Stuck()).encode_batch(["x"])

    def test_longer_texts_may_take_longer(self, monkeypatch):
        seen = []
        monkeypatch.setattr(tokenizer_file, "within", lambda seconds, call, late: seen.append(seconds) or [])
        Bounded(library.Tokenizer(models.BPE())).encode_batch(["x" * 1_000_000, "y" * 1_000_000])
        assert seen == [30 + 400]

    def test_a_panic_is_one_line(self):
        class PanicException(BaseException):
            pass

        def panic():
            raise PanicException("retry-limit-in-match over\nmore")

        with pytest.raises(QuothError, match=r"the tokenizer fails: retry-limit-in-match over$"):
            guarded(panic, 10)
        with pytest.raises(KeyboardInterrupt):
            guarded(lambda: (_ for _ in ()).throw(KeyboardInterrupt()), 10)


class TestReal:
    """Each kind of tokenizer that is in use loads, and gives what the library alone gives."""

    def same(self, made, tmp_path):
        made.save(str(tmp_path / "tokenizer.json"))
        loaded = Tokenizer.load(tmp_path)
        assert loaded.encode([TEXT])[0].ids.tolist() == made.encode(TEXT, add_special_tokens=False).ids
        return loaded

    def test_every_kind(self, tokenizer, tmp_path):
        self.same(tokenizer, tmp_path)

    def test_the_embedded_one(self, tmp_path):
        self.same(library.Tokenizer.from_file(str(embedded_folder() / "tokenizer.json")), tmp_path)

    def test_gpt_2_with_the_settings_of_roberta(self, tokenizers, tmp_path):
        made = copy.deepcopy(tokenizers["bytelevel"])
        made.decoder = decoders.ByteLevel()
        made.enable_truncation(512)
        made.enable_padding(pad_id=1, pad_token="<pad>", length=600)
        made.save(str(tmp_path / "tokenizer.json"))
        assert len(Tokenizer.load(tmp_path).encode(["the dog"])[0]) < 10

    def test_mpnet(self, tokenizers, tmp_path):
        made = copy.deepcopy(tokenizers["wordpiece"])
        made.post_processor = processors.RobertaProcessing(("[SEP]", 3), ("[CLS]", 2))
        assert self.same(made, tmp_path).template.middle == (3, 3)

    @pytest.mark.parametrize("family", ["albert", "xlm-r", "deberta"])
    def test_sentencepiece(self, tokenizers, tmp_path, family):
        made = copy.deepcopy(tokenizers["unigram"])
        spaces = normalizers.Replace(library.Regex(" {2,}"), " ")
        quotes = [normalizers.Replace("``", '"'), normalizers.Replace("''", '"'), normalizers.NFKD()]
        compiled = normalizers.Precompiled(base64.b64decode(CHARSMAP))
        made.normalizer = normalizers.Sequence(
            {
                "albert": [*quotes, normalizers.StripAccents(), normalizers.Lowercase(), compiled, spaces],
                "xlm-r": [compiled, spaces],
                "deberta": [normalizers.Strip(), compiled, spaces],
            }[family]
        )
        made.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.WhitespaceSplit(), pre_tokenizers.Metaspace()])
        made.add_special_tokens([AddedToken("<mask>", lstrip=True)])
        self.same(made, tmp_path)

    def test_vocabularies_of_many_languages(self):
        """As many words as XLM-V has."""
        check_tokenizer(unigram([[f"w{i}", -1.0] for i in range(901_629)]))


class TestTableOfCharacters:
    def test_the_longest_replacement(self):
        assert longest_entry(CHARSMAP) == 33

    def test_any_flipped_bit_is_refused_or_harmless(self):
        """The library follows what is accepted; it panics if that leads outside."""
        data = base64.b64decode(CHARSMAP)
        texts = ["".join(map(chr, range(1, 0x3000))), "A\ufb01\uff11\ufdfa\ufe0f" * 3, "\U0001f600\U0010ffff"]
        refused = 0
        for place, bit in product(range(0, len(data), 7), (0, 3, 6)):
            odd = bytearray(data)
            odd[place] ^= 1 << bit
            try:
                longest_entry(base64.b64encode(odd).decode())
            except QuothError:
                refused += 1
                continue
            for text in texts:
                normalizers.Precompiled(bytes(odd)).normalize_str(text)
        assert refused > 10


def test_vocab_txt(tmp_path):
    (tmp_path / "vocab.txt").write_text("")
    with pytest.raises(QuothError, match=r"not a BERT vocabulary, it has no \[PAD\]"):
        Tokenizer.load(tmp_path)
    (tmp_path / "vocab.txt").write_text("\n".join(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "the"]))
    for name in ("do_lower_case", "strip_accents", "tokenize_chinese_chars"):
        (tmp_path / "tokenizer_config.json").write_text(json.dumps({name: "x"}))
        with pytest.raises(QuothError, match=f"{name} is 'x'; true or false is wanted"):
            Tokenizer.load(tmp_path)
    (tmp_path / "tokenizer_config.json").write_text("[]")
    with pytest.raises(QuothError, match="a JSON object is wanted"):
        Tokenizer.load(tmp_path)
