"""Templates, ids and spans: against rules written out by hand, for every kind of tokenizer."""

import json
import os
import shutil
import unicodedata
from pathlib import Path

import numpy as np
import pytest
import tokenizers as library
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import models, pre_tokenizers, processors
from tokenizers.implementations import BertWordPieceTokenizer

from quoth.errors import QuothError
from quoth.windows.offsets import trim
from quoth.windows.pieces import harmless, pieces
from quoth.windows.tokenizer import Tokenizer

ODD = "aeéöZ09 .,'\"-\n\r\t\0\u0301\u0308\u200b\u200d\ufe0f\ufeff\ufffd\u3000\u00a0\u0085\u2028東京서울ßİﬁ"
ODD += "אבשלوم😀👍🏽👨\U000e0067\x1c[]</s>"
WORDS = [
    "the",
    "Fox",
    "café",
    "naïve",
    "x" * 120,
    "東京は",
    "서울은",
    "e\u0301",
    "😀",
    "[SEP]",
    "</s>",
    "<mask>",
]
WORDS += [
    "[CLS]",
    "\0",
    "\r\n",
    "  ",
    "\u3000",
    "'s",
    "U.S.A.",
    "١٢",
    "עברית",
    "\ufeff",
    "a\0b",
    "``",
    "\n\n",
]
odd_text = st.text(st.sampled_from(ODD), max_size=60)
mixed = st.lists(st.sampled_from(WORDS), max_size=30).map(" ".join)
loose = st.lists(st.one_of(st.sampled_from([*WORDS, " "]), st.text(max_size=3)), max_size=30).map("".join)
any_text = st.one_of(st.text(max_size=60), odd_text, mixed, loose)


def strip(text: str, start: int, end: int) -> tuple[int, int]:
    """What `trim` should give for one span, a character at a time."""
    while start < end and text[start].isspace():
        start += 1
    while end > start and text[end - 1].isspace():
        end -= 1
    return start, end


def test_templates(tokenizers):
    bert = Tokenizer(tokenizers["wordpiece"]).template
    assert (bert.prefix, bert.middle, bert.suffix) == ((2,), (3,), (3,))
    assert (bert.prefix_types, bert.middle_types, bert.suffix_types) == ((0,), (0,), (1,))
    assert (bert.question_type, bert.passage_type, bert.special) == (0, 1, 3)
    roberta = Tokenizer(tokenizers["bytelevel"]).template
    assert (roberta.prefix, roberta.middle, roberta.suffix) == ((0,), (2, 2), (2,))
    assert (roberta.question_type, roberta.passage_type, roberta.special) == (0, 0, 4)
    albert = Tokenizer(tokenizers["unigram"]).template
    assert (albert.prefix, albert.middle, albert.suffix, albert.passage_type) == ((0,), (1,), (1,), 1)
    without_types = Tokenizer(tokenizers["wordpiece"], types=False).template
    assert without_types.passage_type == 0
    assert without_types.suffix_types == (0,)


def test_template_learnt_when_the_placeholder_has_no_token():
    tokenizer = library.Tokenizer(models.BPE({"b": 0, "<s>": 1, "</s>": 2}, []))
    tokenizer.post_processor = processors.RobertaProcessing(("</s>", 2), ("<s>", 1))
    assert Tokenizer(tokenizer).template.middle == (2, 2)


def test_no_first_special_token_is_an_error(tmp_path):
    tokenizer = library.Tokenizer(models.WordLevel({"a": 0}, unk_token="a"))
    with pytest.raises(QuothError, match="no special token before the question"):
        Tokenizer(tokenizer)
    path = tmp_path / "tokenizer.json"
    tokenizer.save(str(path))
    with pytest.raises(QuothError, match=r"tokenizer\.json"):
        Tokenizer.load(path)


def test_stored_truncation_and_padding_are_switched_off(tmp_path, tokenizers):
    tokenizer = library.Tokenizer.from_str(tokenizers["wordpiece"].to_str())
    tokenizer.enable_truncation(4)
    tokenizer.enable_padding(length=32)
    tokenizer.save(str(tmp_path / "tokenizer.json"))
    tokens = Tokenizer.load(tmp_path)
    text = "the quick brown fox jumps over the lazy dog"
    plain = tokenizers["wordpiece"].encode(text, add_special_tokens=False).ids
    assert tokens.encode([text])[0].ids.tolist() == plain
    assert tokens.ids([text]) == [plain]
    assert tokens.template.special == 3


@pytest.mark.parametrize("lower", [True, False])
def test_vocabulary_only(tmp_path, tokenizers, lower):
    vocab = sorted(tokenizers["wordpiece-cased"].get_vocab().items(), key=lambda item: item[1])
    (tmp_path / "vocab.txt").write_text("".join(f"{word}\n" for word, _ in vocab), encoding="utf-8")
    if not lower:
        (tmp_path / "tokenizer_config.json").write_text('{"do_lower_case": false}')
    reference = BertWordPieceTokenizer(str(tmp_path / "vocab.txt"), lowercase=lower)
    text = "The Quick café [SEP] 東京 O'Neil"
    for path in (tmp_path, tmp_path / "vocab.txt"):
        tokens = Tokenizer.load(path)
        expected = reference.encode(text, add_special_tokens=False)
        encoded = tokens.encode([text])[0]
        assert encoded.ids.tolist() == expected.ids
        assert encoded.spans.tolist() == [list(pair) for pair in expected.offsets]
        pair = reference.encode("a", "b")
        assert pair.ids[0] == tokens.template.prefix[0]
        assert pair.type_ids[-1] == tokens.template.suffix_types[0] == 1


def test_vocabulary_of_mpnet(tmp_path, tokenizers):
    """BERT's words after four of its own: the same tokens, shifted by four, in a frame of <s> and </s>."""
    bert = sorted(tokenizers["wordpiece"].get_vocab().items(), key=lambda item: item[1])
    words = ["<s>", "<pad>", "</s>", "<unk>", *(word for word, _ in bert), "<mask>"]
    (tmp_path / "vocab.txt").write_text("".join(f"{word}\n" for word in words), encoding="utf-8")
    tokens, text = Tokenizer.load(tmp_path), "The Quick café 東京 O'Neil \u2603 fox"
    expected = tokenizers["wordpiece"].encode(text, add_special_tokens=False)
    found = tokens.encode([text])[0]
    assert (found.ids - 4).tolist() == expected.ids
    assert found.spans.tolist() == [list(pair) for pair in expected.offsets]
    frame = tokens.template
    assert (frame.prefix, frame.middle, frame.suffix) == ((0,), (2, 2), (2,))
    assert {*frame.prefix_types, *frame.middle_types, *frame.suffix_types, frame.passage_type} == {0}


@pytest.mark.skipif("QUOTH_MPNET" not in os.environ, reason="QUOTH_MPNET is not set: no tokenizer of MPNet to load")
def test_tokens_of_the_real_mpnet_align_with_those_of_bert(tmp_path, minilm):
    folder = Path(os.environ["QUOTH_MPNET"])
    mpnet, bert = Tokenizer.load(folder), Tokenizer.load(minilm)
    shutil.copyfile(folder / "vocab.txt", tmp_path / "vocab.txt")
    alone = Tokenizer.load(tmp_path)
    assert mpnet.template == alone.template
    texts = ["In 1851, naïve Zürich 東京 😀 wasn't here…", "The quick brown fox, O'Neil's; U.S.A. ١٢ עברית"]
    for one, other, again in zip(mpnet.encode(texts), bert.encode(texts), alone.encode(texts)):
        assert (one.ids - 4).tolist() == other.ids.tolist()
        assert one.spans.tolist() == other.spans.tolist() == again.spans.tolist()
        assert one.ids.tolist() == again.ids.tolist()


def test_families_without_types(tmp_path, tokenizers):
    tokenizers["wordpiece"].save(str(tmp_path / "tokenizer.json"))
    config = tmp_path / "tokenizer_config.json"
    for content, passage_type in (
        ({"tokenizer_class": "DistilBertTokenizer"}, 0),
        ({"tokenizer_class": "MPNetTokenizer"}, 0),
        ({"model_input_names": ["input_ids", "attention_mask"]}, 0),
        ({"tokenizer_class": "ElectraTokenizer"}, 1),
        ({"model_input_names": ["input_ids", "token_type_ids", "attention_mask"]}, 1),
    ):
        config.write_text(json.dumps(content))
        assert Tokenizer.load(tmp_path).template.passage_type == passage_type


@pytest.mark.parametrize(
    ("name", "content", "says"),
    [
        ("tokenizer.json", "{}", "model is None, a table is wanted"),
        ("tokenizer.json", "[not json", "not valid JSON"),
        ("vocab.txt", "hello\nworld\n", r"no \[PAD\]"),
        ("other.txt", "", "no tokenizer.json and no vocab.txt"),
    ],
)
def test_bad_tokenizer_files(tmp_path, name, content, says):
    (tmp_path / name).write_text(content)
    with pytest.raises(QuothError, match=says):
        Tokenizer.load(tmp_path)


@given(text=any_text)
@settings(max_examples=60, deadline=None)
def test_spans_are_the_trimmed_offsets_of_the_tokenizer(kind, tokenizer, tokens, text):
    """Spans stay inside the text, never fall, and are those of `tokenizer.encode` on the whole text."""
    encoded = tokens.encode([text])[0]
    truth = tokenizer.encode(text, add_special_tokens=False)
    assert encoded.ids.tolist() == truth.ids
    # Where a space was put in that the text has not, RoBERTa's own trimming counts it as if it had.
    if "<" not in text and kind != "bytelevel-prefix":
        assert encoded.spans.tolist() == [list(strip(text, *pair)) for pair in truth.offsets]
    spans = encoded.spans
    assert ((spans >= 0) & (spans <= len(text))).all()
    assert (spans[:, 0] <= spans[:, 1]).all()
    assert (np.diff(spans, axis=0) >= 0).all()
    for start, end in spans.tolist():
        assert not text[start:end][:1].isspace()
        assert not text[start:end][-1:].isspace()


def normal(text: str, lowercase: bool) -> str:
    """BERT's normalisation, written out: no controls, and if uncased no accents and small letters."""
    kept = "".join(c for c in text if c in "\t\n\r" or not (unicodedata.category(c)[0] == "C" or c == "\ufffd"))
    if not lowercase:
        return kept
    bare = "".join(c for c in unicodedata.normalize("NFD", kept) if unicodedata.category(c) != "Mn")
    return "".join(c.lower() for c in bare)


assigned = st.text(st.characters(exclude_categories=["Cs", "Cn", "Co"]), max_size=40)


@pytest.mark.parametrize("name", ["wordpiece", "wordpiece-cased"])
@given(text=st.one_of(assigned, odd_text, mixed))
@settings(max_examples=100, deadline=None)
def test_wordpiece_spans_hold_their_token(tokenizers, all_tokens, name, text):
    """The characters of a span, normalised, are the token; letters of one character share its span."""
    tokenizer = tokenizers[name]
    encoded = all_tokens[name].encode([text])[0]
    spans = encoded.spans.tolist()
    for i, (token, (start, end)) in enumerate(zip(encoded.ids.tolist(), spans, strict=True)):
        word = tokenizer.id_to_token(token)
        before = spans[i - 1][1] if i else 0
        after = spans[i + 1][0] if i + 1 < len(spans) else len(text)
        assert end > start
        # Two tokens may share a character only if it decomposes, as a Hangul syllable does.
        assert start >= before or len(normal(text[start : start + 1], name == "wordpiece")) > 1
        if word in ("[CLS]", "[SEP]"):
            assert text[start:end] == word
        elif word != "[UNK]":
            surface = normal(text[start:end], name == "wordpiece")
            piece = word.removeprefix("##")
            assert piece == surface if start >= before and end <= after else piece in surface


@given(words=st.lists(st.from_regex(r"[a-zA-Z]{1,8}|[0-9]{1,4}|[.,;!?]", fullmatch=True), max_size=20))
@settings(max_examples=60, deadline=None)
def test_surfaces_of_a_plain_text(tokenizers, all_tokens, words):
    text = "  ".join(words)
    tokenizer = tokenizers["wordpiece-cased"]
    encoded = all_tokens["wordpiece-cased"].encode([text])[0]
    assert "".join(text[a:b] for a, b in encoded.spans.tolist()) == "".join(words)
    assert (encoded.spans[1:, 0] >= encoded.spans[:-1, 1]).all()
    for token, (start, end) in zip(encoded.ids.tolist(), encoded.spans.tolist(), strict=True):
        assert tokenizer.id_to_token(token) in ("[UNK]", text[start:end], "##" + text[start:end])


def byte_of() -> dict[str, int]:
    """GPT-2's table of printable characters for bytes, inverted."""
    plain = [*range(33, 127), *range(161, 173), *range(174, 256)]
    table = {chr(b): b for b in plain}
    for n, b in enumerate(sorted(set(range(256)) - set(plain))):
        table[chr(256 + n)] = b
    return table


@pytest.mark.parametrize("name", ["bytelevel", "bytelevel-prefix", "bytelevel-untrimmed"])
@given(text=st.one_of(st.text(max_size=40), st.text(st.sampled_from(ODD.replace("<", "")), max_size=60)))
@settings(max_examples=60, deadline=None)
def test_bytelevel_spans_by_counting_bytes(tokenizers, all_tokens, name, text):
    """Each token is so many bytes of UTF-8; its span is the characters that own them, without white space."""
    tokenizer, bytes_of = tokenizers[name], byte_of()
    encoded = all_tokens[name].encode([text])[0]
    owner = [i for i, c in enumerate(text) for _ in c.encode()]
    raw = b"".join(bytes(bytes_of[c] for c in tokenizer.id_to_token(token)) for token in encoded.ids.tolist())
    extra = len(raw) - len(text.encode())
    assert raw == b" " * extra + text.encode()
    assert extra == (name == "bytelevel-prefix" and not text.startswith(" ") and text != "")
    at = -extra
    for token, span in zip(encoded.ids.tolist(), encoded.spans.tolist(), strict=True):
        past = at + len(tokenizer.id_to_token(token))
        own = owner[max(0, at) : past] or owner[:1]  # a space put in alone has the character it stands before
        assert tuple(span) == strip(text, own[0], own[-1] + 1)
        at = past


@given(spans=st.lists(st.tuples(st.integers(0, 12), st.integers(0, 12)).map(sorted)), data=st.data())
def test_trim(spans, data):
    text = data.draw(st.text(st.sampled_from("ab \n\u3000\x1c😀"), min_size=12, max_size=12))
    found = trim(np.array(spans, np.int32).reshape(-1, 2), text)
    for (a, b), (start, end) in zip(spans, found.tolist(), strict=True):
        solid = text[a:b].strip()
        assert text[start:end] == solid
        assert (start, end) == ((a + text[a:b].index(solid), end) if solid else (b, b))


def test_typed_special_tokens(tokenizer, tokens):
    """They become what the tokenizer makes of them; their spans are the typed characters."""
    text = "fox [SEP] dog </s> [CLS] <s> <mask> end"
    encoded = tokens.encode([text])[0]
    truth = tokenizer.encode(text, add_special_tokens=False)
    assert encoded.ids.tolist() == truth.ids
    for token, (start, end) in zip(encoded.ids.tolist(), encoded.spans.tolist(), strict=True):
        word = tokenizer.id_to_token(token)
        if word in ("[SEP]", "[CLS]", "</s>", "<s>", "<mask>"):
            assert text[start:end] == word
    assert encoded.spans[-1, 1] == len(text)


@pytest.mark.parametrize("text", ["\ud800", "a\udfff b", "the \ud83d fox"])
def test_half_surrogates_keep_the_count_of_characters(tokens, text):
    encoded = tokens.encode([text])[0]
    truth = tokens.encode(["".join("\ufffd" if "\ud800" <= c <= "\udfff" else c for c in text)])[0]
    assert encoded.ids.tolist() == truth.ids.tolist()
    assert encoded.spans.tolist() == truth.spans.tolist()
    assert len(tokens.ids([text])) == 1


@given(text=any_text.flatmap(lambda t: st.integers(1, 6).map(lambda n: t * n)), size=st.integers(1, 40))
@settings(max_examples=60, deadline=None)
def test_pieces_give_the_tokens_of_the_whole(tokens, text, size):
    whole, parts = tokens.encode([text])[0], tokens.encode([text], piece=size)[0]
    assert parts.ids.tolist() == whole.ids.tolist()
    assert parts.spans.tolist() == whole.spans.tolist()


@given(text=any_text, size=st.integers(1, 40))
@settings(max_examples=30, deadline=None)
def test_pieces_cover_the_text(tokenizer, text, size):
    found = list(pieces(tokenizer, text, size))
    assert "".join(text[a:b] for a, b in found) == text
    assert all(a < b for a, b in found) or not text


def test_a_plain_text_is_really_cut(tokenizer):
    """Flat memory: every kind of tokenizer allows cuts in running text, so no piece is above the size."""
    text = "The quick brown fox, 3.14 times; it's gone.\nWho wrote the book?\r\n" * 40
    sizes = [b - a for a, b in pieces(tokenizer, text, 200)]
    assert max(sizes) <= 200
    assert min(sizes[:-1]) >= 100


def test_chinese_without_spaces_is_cut_for_wordpiece_only(tokenizers):
    text = "東京は日本の首都です。" * 100
    assert max(b - a for a, b in pieces(tokenizers["wordpiece"], text, 200)) <= 200
    # SentencePiece sees one long word: no cut would be exact.
    assert list(pieces(tokenizers["unigram"], text, 200)) == [(0, len(text))]


def test_a_cut_that_changes_tokens_is_refused(tokenizers):
    assert not harmless(tokenizers["wordpiece"], "the quick brown", 6)
    assert not harmless(tokenizers["wordpiece"], "a" + "\0" * 500 + "b", 100)  # one word, "ab", to BERT
    assert harmless(tokenizers["wordpiece"], "the quick brown", 9)
    assert harmless(tokenizers["bytelevel"], "the quick brown", 9)
    assert not harmless(tokenizers["bytelevel"], "the quick brown", 10)  # the word owns its space
    assert harmless(tokenizers["unigram"], "the quick brown", 9)


def test_metaspace_without_split_is_never_cut():
    tokenizer = library.Tokenizer(models.Unigram([("<unk>", 0.0), ("▁", -1.0), ("a", -1.0), ("a▁a", -0.5)], 0))
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(split=False)
    assert list(pieces(tokenizer, "a a a a a a a a", 4)) == [(0, 15)]


def test_words_are_the_tokenizers_own(tokens: Tokenizer) -> None:
    """In one piece or in many, neighbouring tokens share a number exactly where the tokenizer sees one word."""
    text = "The unaffable fox, jumping over lazy-dogs in Zürich. " * 40
    whole = np.array(tokens.backend.encode(text, add_special_tokens=False).word_ids)
    (one,), (many,) = tokens.encode([text]), tokens.encode([text], piece=90)
    assert np.array_equal(one.words, whole)
    assert np.array_equal(np.diff(many.words) == 0, np.diff(whole) == 0)
    assert (np.diff(many.words) >= 0).all()
