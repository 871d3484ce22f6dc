"""How the index cuts documents into passages, and which words of a question it looks for."""

from itertools import pairwise

from hypothesis import given, settings
from hypothesis import strategies as st

from quoth.search import Document, Heading
from quoth.search.index_passages import OVERLAP, SHORT, STOP_WORDS, cut_passages, match_expression
from quoth.search.retrieve import ONE_WIDE, SIZE, WIDTH
from search.test_index import texts


def test_the_words_of_a_question():
    assert match_expression("What is the Answer to THE answer?") == '"answer"'
    assert match_expression("Who are you?") == '"who" OR "are" OR "you"'
    assert match_expression("東京?") == '"東" OR "京"'
    assert match_expression("?!") == ""
    assert all(word == word.lower() for word in STOP_WORDS)


class TestPassages:
    def size(self, text):
        return len(text) + (WIDTH - 1) * len(ONE_WIDE.findall(text))

    odd = st.text(alphabet="ab. \n\r!?é😀東。", max_size=60)
    pieces = st.lists(
        st.one_of(odd, texts, st.sampled_from(["x" * 3000, "東" * 700, "word " * 500])), min_size=1, max_size=6
    )

    @settings(deadline=None)
    @given(pieces, st.lists(st.integers(0, 400), max_size=8))
    def test_they_cover_the_text_in_order(self, pieces, places):
        text = "\n".join(pieces)
        headings = tuple(Heading(at, 1, "h") for at in sorted({at for at in places if at < len(text)}))
        passages = cut_passages(Document("a", text, headings=headings))
        assert passages[0][0] == 0
        assert passages[-1][1] == len(text)
        for begin, past in passages:
            assert 0 <= begin <= past <= len(text)
            assert self.size(text[begin:past]) <= SIZE
        for (begin, past), (after, end) in pairwise(passages):
            assert begin < after <= past < end
            assert self.size(text[after:past]) <= OVERLAP

    def test_sentences_stay_whole(self):
        text = " ".join(f"Sentence {i} costs 3.5 e.g. to Dr. Smith." for i in range(300))
        for begin, past in cut_passages(Document("a", text)):
            assert text[begin:past].startswith("Sentence")
            assert text[begin:past].rstrip().endswith("Smith.")

    def test_a_heading_begins_a_passage_unless_the_section_before_is_short(self):
        long, short = "A long section has words. " * 25, "Short.\n"
        text = "".join([long, long, short, short, long])
        places = [0, len(long), 2 * len(long), 2 * len(long) + len(short), 2 * (len(long) + len(short))]
        document = Document("a", text, headings=tuple(Heading(at, 1, "h") for at in places))
        assert len(long) > SHORT
        assert [begin for begin, _ in cut_passages(document)] == places[:3]
