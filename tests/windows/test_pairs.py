"""Sentences and pairs as windows, beside transformers' fast tokenizers: the same ids, types and cuts."""

import numpy as np
import pytest
import tokenizers as library
import transformers
from hypothesis import given, settings
from hypothesis import strategies as st

from quoth.data.dataset import Report, Sentences
from quoth.data.glue import read_glue
from quoth.errors import QuothError
from quoth.windows.sentences import make_pairs
from quoth.windows.tokenizer import Tokenizer

WORDS = [
    "the",
    "Fox",
    "café",
    "jumps",
    "over",
    "x" * 120,
    "東京は",
    "e\u0301",
    "😀",
    "[SEP]",
    "</s>",
    "U.S.A.",
    "\n",
    "  ",
]
texts = st.one_of(
    st.lists(st.sampled_from(WORDS), max_size=40).map(" ".join),
    st.text(st.characters(exclude_categories=["Cs"]), max_size=40),
)
rows = st.lists(st.tuples(texts, texts), min_size=1, max_size=4)


@pytest.fixture(scope="module")
def both(minilm, tokenizers):
    """Of each kind our tokens and transformers' tokenizer: BERT's own, and all tiny ones, RoBERTa's frame too."""
    found = {"minilm": (Tokenizer.load(minilm), transformers.AutoTokenizer.from_pretrained(minilm))}
    for name, tokenizer in tokenizers.items():
        copy = library.Tokenizer.from_str(
            tokenizer.to_str()
        )  # transformers sets truncation on the one that it is given
        found[name] = Tokenizer(tokenizer), transformers.PreTrainedTokenizerFast(tokenizer_object=copy)
    return found


def sentences(first, second=None):
    return Sentences("T", list(first), None if second is None else list(second), None, (), Report("here"))


def assert_same(windows, theirs):
    assert len(windows) == len(theirs["input_ids"])
    for w, (ids, types) in enumerate(zip(theirs["input_ids"], theirs["token_type_ids"], strict=True)):
        assert windows[w].ids.tolist() == ids
        assert windows[w].types.tolist() == types


def whole(theirs, first, second, max_length):
    """What transformers gives."""
    return theirs(
        list(first),
        None if second is None else list(second),
        truncation="longest_first",
        max_length=max_length,
        return_token_type_ids=True,
    )


@pytest.mark.parametrize("kind", ["minilm", "wordpiece", "bytelevel", "bytelevel-prefix", "unigram"])
class TestAsTransformers:
    @settings(max_examples=60, deadline=None)
    @given(given_rows=rows, max_length=st.integers(5, 60))
    def test_pairs(self, both, kind, given_rows, max_length):
        ours, theirs = both[kind]
        first, second = zip(*given_rows, strict=True)
        made = make_pairs(sentences(first, second), ours, max_length=max_length)
        assert_same(made, whole(theirs, first, second, max_length))
        assert made.lengths.max() <= max_length

    @settings(max_examples=40, deadline=None)
    @given(first=st.lists(texts, min_size=1, max_size=4), max_length=st.integers(3, 60))
    def test_single_sentences(self, both, kind, first, max_length):
        ours, theirs = both[kind]
        made = make_pairs(sentences(first), ours, max_length=max_length)
        assert_same(made, whole(theirs, first, None, max_length))

    def test_every_cut_of_some_lengths(self, both, kind):
        """Equal lengths, lengths that differ by one, one far longer, either empty: at every space from 1."""
        ours, theirs = both[kind]
        word = "dog "
        counts = [(a, b) for a in (0, 1, 2, 3, 6, 7, 15) for b in (0, 1, 2, 3, 6, 7, 15)]
        first, second = [word * a for a, _ in counts], [word * b for _, b in counts]
        for max_length in range(ours.template.special + 1, 40):
            made = make_pairs(sentences(first, second), ours, max_length=max_length)
            assert_same(made, whole(theirs, first, second, max_length))


def test_types_of_a_family_without_them(tokenizers):
    made = make_pairs(sentences(["the dog"], ["the fox"]), Tokenizer(tokenizers["wordpiece"], types=False))
    assert not made.types.any()


def test_columns(tokenizers):
    """`question` numbers the rows, and nothing is a passage."""
    made = make_pairs(sentences(["the dog", "", "a"], ["fox", "book", ""]), Tokenizer(tokenizers["wordpiece"]))
    assert made.question.tolist() == [0, 1, 2]
    assert made.starts.tolist() == [0, *np.cumsum(made.lengths)]
    assert made.spans.shape == (len(made.ids), 2)
    assert (made.spans == -1).all()
    assert (made.words == -1).all()
    assert made.passage.tolist() == [[0, 0]] * 3
    dtypes = {name: getattr(made, name).dtype for name in ("ids", "types", "spans", "words", "question", "passage")}
    assert set(dtypes.values()) == {np.dtype(np.int32)}
    assert made.starts.dtype == np.int64


def test_no_rows(tokenizers):
    made = make_pairs(sentences([], []), Tokenizer(tokenizers["wordpiece"]))
    assert len(made) == 0
    assert made.lengths.tolist() == []


@pytest.mark.parametrize(("kind", "single", "pair"), [("wordpiece", 2, 3), ("bytelevel", 2, 4)])
def test_no_room(tokenizers, kind, single, pair):
    tokens = Tokenizer(tokenizers[kind])
    with pytest.raises(QuothError, match=f"max_length is {pair}; {pair} special tokens leave no space"):
        make_pairs(sentences(["a"], ["b"]), tokens, max_length=pair)
    with pytest.raises(QuothError, match=f"{single} special tokens leave no space"):
        make_pairs(sentences(["a"]), tokens, max_length=single)
    assert make_pairs(sentences(["dog"]), tokens, max_length=single + 1).lengths.tolist() == [single + 1]


def test_rows_of_glue(tmp_path, minilm):
    path = tmp_path / "RTE/train.tsv"
    path.parent.mkdir()
    path.write_text("index\tsentence1\tsentence2\tlabel\n0\tA mill stood here.\tThere was a mill.\tentailment\n")
    made = make_pairs(read_glue(path), Tokenizer.load(minilm))
    theirs = transformers.AutoTokenizer.from_pretrained(minilm)(["A mill stood here."], ["There was a mill."])
    assert_same(made, theirs)
