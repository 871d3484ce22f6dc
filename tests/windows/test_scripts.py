"""Exact offsets with a Unigram tokenizer, as XLM-RoBERTa and CamemBERT have, in eleven scripts.

Truths: the pieces of the tokenizer itself, normalised text by Python, pairs as transformers encodes them.
"""

import re
import unicodedata

import numpy as np
import pytest
import torch
import transformers
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from quoth import Reader
from quoth.answer import decode
from quoth.data.dataset import Gold, Question
from quoth.runtime.logits import SpanLogits
from quoth.windows.labels import span_labels
from quoth.windows.questions import make_windows
from support.tokenizers_by_kind import SCRIPTS
from tiny import CONFIGS, STEMS

KINDS = ["multilingual", "multilingual-nfkc"]
WORDS = [word for text in SCRIPTS.values() for word in text.split()]
# Ligatures, wide and circled letters, presentation forms, letters of several characters, emoji.
ODD = ["ﬁnal", "ＡＢＣ", "①", "½", "ﷺ", "ﻻ", "\u0958", "가", "👨\u200d👩\u200d👧", "\u212b", "…", "x²"]
# What NFKC composes to one letter. The offset that the tokenizers library gives it is that of its first character.
COMPOSED = ["e\u0301te\u0301", "\u1100\u1161", "\uff76\uff9e", "\u0915\u093c"]
spaces = st.sampled_from([" ", "  ", "\n", "\t", "\u3000", "\u00a0"])


def texts(words):
    pairs = st.lists(st.tuples(st.sampled_from(words), spaces), min_size=1, max_size=25)
    return pairs.map(lambda found: "".join(word + space for word, space in found))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("script", SCRIPTS)
def test_a_text_is_its_tokens(all_tokens, tokenizers, kind, script):
    """Pieces and spans of a text that the tokenizer knows: they cover it, in order, without a gap but white space.

    A space put before a word may be a token of its own, and has the first character of the word.
    """
    text = SCRIPTS[script]
    encoded = all_tokens[kind].encode([text])[0]
    pieces = [tokenizers[kind].id_to_token(token) for token in encoded.ids.tolist()]
    found = [(piece, text[a:b]) for piece, (a, b) in zip(pieces, encoded.spans.tolist(), strict=True)]
    assert "".join(surface for piece, surface in found if piece != "▁") == re.sub(r"\s", "", text)
    for piece, surface in found:
        if piece != "▁":
            assert piece.removeprefix("▁") == (unicodedata.normalize("NFKC", surface) if "nfkc" in kind else surface)


@pytest.mark.parametrize("kind", KINDS)
@given(text=texts([*WORDS, *ODD]))
@settings(max_examples=60, deadline=None)
def test_spans_hold_their_pieces(all_tokens, tokenizers, kind, text):
    """The characters of a span, normalised, are its piece; pieces of one character each have all of it."""
    encoded = all_tokens[kind].encode([text])[0]
    spans = encoded.spans.tolist()
    for place, (token, (start, end)) in enumerate(zip(encoded.ids.tolist(), spans, strict=True)):
        piece = tokenizers[kind].id_to_token(token)
        surface = unicodedata.normalize("NFKC", text[start:end]) if "nfkc" in kind else text[start:end]
        shares = (place and spans[place - 1][1] > start) or (place + 1 < len(spans) and spans[place + 1][0] < end)
        if piece != "<unk>" and shares:
            assert piece.removeprefix("▁") in surface
        elif piece != "<unk>":
            assert piece.removeprefix("▁") == surface


@pytest.mark.parametrize("kind", KINDS)
@given(data=st.data())
@settings(max_examples=80, deadline=None)
def test_a_planted_answer_comes_back_to_the_character(all_tokens, kind, data):
    """Words of the text as gold answer, in windows of 60 tokens and of 200: the same characters are the answer."""
    text = data.draw(texts([*WORDS, *ODD] if "nfkc" in kind else [*WORDS, *ODD, *COMPOSED]))
    words = [match.span() for match in re.finditer(r"\S+", text)]
    first = data.draw(st.integers(0, len(words) - 1))
    last = data.draw(st.integers(first, min(first + 2, len(words) - 1)))
    start, end = words[first][0], words[last][1]
    asked = [Question("q", "Где 何 where?", text, (Gold(text[start:end], start),))]
    length = data.draw(st.sampled_from([60, 200]))
    spans = all_tokens[kind].encode([text])[0].spans
    tokens = int(((spans[:, 0] < end) & (spans[:, 1] > start)).sum())
    assume(tokens <= length - 8 - 4 - 10)  # question, special tokens, step: then a window holds all of the answer
    windows = make_windows(asked, all_tokens[kind], max_length=length, max_query_length=8, step=10)
    labels = span_labels(windows, asked)
    logits = SpanLogits(*np.full((2, len(windows.ids)), -9, np.float32))
    for window, (a, b) in enumerate(np.asarray(labels).tolist()):
        logits.start[windows.starts[window] + a] = logits.end[windows.starts[window] + b] = 9 if a else 0
    (answer,) = decode(windows, logits, [text], n_best=1, max_answer_tokens=100).answers(0)[:1]
    assert (answer.start, answer.end) == (start, end)
    assert text[answer.start : answer.end] == answer.text == text[start:end]


@pytest.mark.parametrize("family", ["xlm-roberta", "camembert"])
def test_a_model_of_the_family_answers_in_every_script(tmp_path, tokenizers, family):
    """A Hugging Face folder with random weights: windows and logits as transformers has them, exact answers."""
    backend = tokenizers["multilingual-nfkc"]
    theirs = transformers.PreTrainedTokenizerFast(tokenizer_object=backend, pad_token="<pad>")
    config = CONFIGS[family].to_dict() | {"vocab_size": backend.get_vocab_size()}
    torch.manual_seed(0)
    model = getattr(transformers, STEMS[family] + "ForQuestionAnswering")(type(CONFIGS[family])(**config)).eval()
    model.save_pretrained(tmp_path)
    theirs.save_pretrained(tmp_path)
    reader = Reader.load(tmp_path, device="cpu")
    question = "Когда 何年 when?"
    for text in SCRIPTS.values():
        windows = reader.windows([Question("q", question, text, ())])
        pair = theirs(question, text, return_tensors="pt")
        assert len(windows) == 1
        assert windows.ids.tolist() == pair["input_ids"][0].tolist()
        with torch.no_grad():
            expected = model(pair["input_ids"], attention_mask=pair["attention_mask"])
        assert np.allclose(reader.logits(windows).start, expected.start_logits[0].numpy(), atol=1e-4)
        for found in reader(question=question, context=text, top_k=5, align_to_words=False):
            assert text[found["start"] : found["end"]] == found["answer"] != ""
        hits = reader.search(question, [text], top=3, threshold=1e9)
        assert hits
        assert all(text[hit.answer.start : hit.answer.end] == hit.answer.text for hit in hits)
