"""Plain text: which paragraphs are read, and the pairs that are made of them."""

import gzip

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from quoth import QuothError
from quoth.data.plain_text import read_paragraphs
from quoth.windows.nsp import NEXT, OTHER, make_neighbours
from quoth.windows.tokenizer import Tokenizer

LONG = "The lighthouse keeper at Cape Wrath recorded 212 storms."
OTHERS = "Copper roofs turn green because the metal reacts with damp air."


def write(path, content):
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


class TestReading:
    def test_blank_lines_part_paragraphs_and_lines_are_joined(self, tmp_path):
        text = f"\n\n{LONG}\n  and went\tto   bed\n \t \n\n\n{OTHERS}\r\n\r\n* * *\n\n42\n\n{'-' * 60}\n"
        assert read_paragraphs(write(tmp_path / "a.txt", text)) == [LONG + " and went to bed", OTHERS]

    def test_gzip_and_a_byte_order_mark(self, tmp_path):
        place = write(tmp_path / "A.TXT.gz", gzip.compress(b"\xef\xbb\xbf" + LONG.encode()))
        assert read_paragraphs(place) == [LONG]

    def test_form_feeds_are_white_space_and_other_scripts_are_text(self, tmp_path):
        japanese = "東京は日本の首都です。" * 5
        assert read_paragraphs(write(tmp_path / "a.txt", f"{LONG}\f\n\n{japanese}")) == [LONG, japanese]

    @pytest.mark.parametrize(
        ("name", "content", "reason"),
        [
            ("a.txt", "", "has no usable paragraph"),
            (
                "a.txt",
                "Too short.\n\nSo is this.\n",
                "at least 40 characters are wanted, with blank lines between them",
            ),
            ("a.txt", "1 2 3 4 5 6 7 8 9 " * 9, "has no usable paragraph"),
            ("a.txt", b"\xff\xfe\x00binary", "line 1: not UTF-8"),
            ("a.txt", LONG + "\n\x00\x01", "line 2: has the control character"),
            ("a.txt.gz", b"\x1f\x8bbroken", "broken gzip file"),
            ("a.json", LONG, "plain text is wanted, in a file named .txt or .txt.gz"),
        ],
    )
    def test_refusals_name_the_file(self, tmp_path, name, content, reason):
        with pytest.raises(QuothError, match=reason) as error:
            read_paragraphs(write(tmp_path / name, content))
        assert str(tmp_path / name) in str(error.value)
        assert "\n" not in str(error.value)

    def test_no_such_file(self, tmp_path):
        with pytest.raises(QuothError, match="no such file"):
            read_paragraphs(tmp_path / "none.txt")


WORDS = ["fox", "dog", "book", "town", "whales", "jumps", "quick", "brown", "seen", "lazy", "Nantucket", "wrote"]
paragraphs = st.lists(st.lists(st.sampled_from(WORDS), min_size=10, max_size=70).map(" ".join), min_size=2, max_size=12)


def pieces(windows, tokens, w):
    """A and B of a window, found by its frame alone."""
    ids = windows[w].ids.tolist()
    t = tokens.template
    inner = ids[len(t.prefix) : len(ids) - len(t.suffix)]
    types = windows[w].types.tolist()
    assert ids[: len(t.prefix)] == list(t.prefix)
    assert ids[-len(t.suffix) :] == list(t.suffix)
    at = next(i for i in range(len(inner)) if inner[i : i + len(t.middle)] == list(t.middle))
    a, b = inner[:at], inner[at + len(t.middle) :]
    kinds = [*t.prefix_types, *([t.question_type] * len(a)), *t.middle_types]
    assert types == [*kinds, *([t.passage_type] * len(b)), *t.suffix_types]
    return a, b


def within(piece, whole):
    """Where a row of tokens stands in another."""
    return [i for i in range(len(whole) - len(piece) + 1) if whole[i : i + len(piece)] == piece]


class TestPairs:
    @given(paragraphs, st.integers(12, 60), st.integers(0, 3))
    @settings(max_examples=40, deadline=None)
    def test_b_follows_a_or_is_of_another_paragraph(self, texts, max_length, seed):
        tokens = MADE["bert"]
        texts = [f"{text} {number}" for number, text in enumerate(texts)]
        windows, labels = make_neighbours(texts, tokens, max_length=max_length, seed=seed)
        sources = tokens.ids(texts)
        assert windows.lengths.max() <= max_length
        for w in range(len(windows)):
            a, b = pieces(windows, tokens, w)
            assert a
            assert b
            follows = any(i + len(a) in within(b, whole) for whole in sources for i in within(a, whole))
            homes = [{p for p, whole in enumerate(sources) if within(piece, whole)} for piece in (a, b)]
            if labels[w] == NEXT:
                assert follows
            else:
                assert len(homes[0] | homes[1]) > 1
        assert (labels == OTHER).sum() <= max(2, len(labels) // 2)

    def test_half_of_many_windows_have_the_b_of_another_paragraph_and_every_b_is_used_once(self):
        tokens = MADE["bert"]
        texts = [f"{' '.join(np.roll(WORDS, n))} {n}" for n in range(40)]
        windows, labels = make_neighbours(texts, tokens, max_length=60, seed=5)
        assert len(windows) == 40
        assert (labels == OTHER).sum() == 20
        whole = sorted(tuple(a + b) for a, b in (pieces(windows, tokens, w) for w in np.flatnonzero(labels == NEXT)))
        assert whole == sorted(tuple(tokens.ids([texts[w]])[0]) for w in np.flatnonzero(labels == NEXT))
        parts = [piece for w in range(40) for piece in pieces(windows, tokens, w)]
        assert sum(map(len, parts)) == sum(len(ids) for ids in tokens.ids(texts))

    def test_words_are_those_of_the_tokenizer(self):
        tokens = MADE["bert"]
        windows, _ = make_neighbours([" ".join(WORDS * 3), " ".join(WORDS[::-1] * 3)], tokens, max_length=40)
        for w in range(len(windows)):
            here = slice(windows.starts[w], windows.starts[w + 1])
            names = [tokens.backend.id_to_token(int(i)) for i in windows.ids[here]]
            words = windows.words[here].tolist()
            for i, name in enumerate(names):
                if name in ("[CLS]", "[SEP]"):
                    assert words[i] == -1
                else:  # a continuation is of the word before it, all else begins one
                    assert name.startswith("##") == (words[i] == words[i - 1])

    def test_is_a_function_of_its_arguments(self):
        tokens = MADE["bert"]
        texts = [f"{' '.join(np.roll(WORDS, n))} {n}" for n in range(12)]
        (one, first), (two, second), (three, _) = (make_neighbours(texts, tokens, seed=s) for s in (1, 1, 2))
        assert np.array_equal(one.ids, two.ids)
        assert np.array_equal(first, second)
        assert not np.array_equal(one.ids, three.ids)

    @pytest.mark.parametrize("kind", ["bert", "roberta"])
    def test_every_family_frames_its_pairs(self, kind):
        tokens = MADE[kind]
        windows, labels = make_neighbours([" ".join(WORDS * 2), " ".join(WORDS[::-1] * 2)], tokens, max_length=50)
        for w in range(len(windows)):
            pieces(windows, tokens, w)
        assert len(windows) == len(labels)

    @pytest.mark.parametrize("texts", [[], ["dog"], [" ".join(WORDS * 30)], [" ".join(WORDS), "dog"]])
    def test_two_paragraphs_are_wanted(self, texts):
        with pytest.raises(QuothError, match=r"usable paragraph\(s\); at least 2 are wanted"):
            make_neighbours(texts, MADE["bert"], max_length=64)

    def test_too_short_windows(self):
        with pytest.raises(QuothError, match="max_length is 10; it must be at least 11"):
            make_neighbours(WORDS, MADE["bert"], max_length=10)


@pytest.fixture(scope="module", autouse=True)
def made():
    """Tokenizers for tests that hypothesis runs, which take no fixtures that change."""
    from support.tokenizers_by_kind import bytelevel, wordpiece

    bpe = bytelevel()
    MADE.update(bert=Tokenizer(wordpiece()), roberta=Tokenizer(bpe, types=False))


MADE: dict[str, Tokenizer] = {}
