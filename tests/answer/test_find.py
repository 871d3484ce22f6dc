"""Texts of any length: the same answer however they are cut, and what was read of them is told."""

import math
import re

import numpy as np
import pytest

from answer.planted import planted_reader
from quoth import QuothError
from quoth.answer import find as search
from quoth.answer.abstention import Abstention
from quoth.answer.confidence import Confidence, Outcome
from quoth.search import open_collection

FILLER = "The harbour was quiet, and nobody spoke of the weather. "


def long_text(characters, word, at):
    """So much filler, with the word in a sentence of its own at about this place."""
    before = FILLER * (at // len(FILLER))
    return before + f"They kept a {word} there. " + FILLER * ((characters - at) // len(FILLER))


@pytest.mark.parametrize("at", [0, 1990, 4100, 9000])
def test_blocks_give_the_answer_of_the_whole(minilm, monkeypatch, at):
    text = long_text(9000, "heron", at)
    reader = planted_reader(minilm, "heron")
    whole = reader.find("What?", [text], read=0)
    monkeypatch.setattr(search, "BLOCK", 2000)
    monkeypatch.setattr(search, "OVERLAP", 700)
    for step in (None, 64):
        found = reader.find("What?", [FILLER, text], read=0, step=step)
        assert [(hit.answer, hit.probability) for hit in found.hits] == [(h.answer, h.probability) for h in whole.hits]
        assert found.hits[0].document == 1
        assert found.hits[0].answer.start == text.index("heron")
        assert found.null_minus_best == whole.null_minus_best == -8.0


def test_a_span_is_compared_with_the_null_score_of_its_own_window(minilm):
    """A loop over windows, each with logits of its own: the least of null − best wins, not the highest score."""
    reader = planted_reader(minilm, "heron")
    planted, drawn = reader.runner, np.random.default_rng(0)

    def noisy(packed):
        start, end = planted(packed)
        for first, past in zip(packed.starts[:-1], packed.starts[1:]):
            shift, lift = drawn.normal(0, 5, 2)
            for logits in (start, end):
                logits[first:past] += shift
                logits[first] += lift
            rows.append((start[first] + end[first], start[first:past].max() + end[first:past].max()))
        return start, end

    noisy.budget = planted.budget
    reader.runner, rows = noisy, []
    texts = [long_text(4000, "heron", 2000), "A heron.", FILLER, long_text(3000, "heron", 100)]
    found = reader.find("What?", texts, top=3, threshold=math.inf, read=0)
    assert len(rows) > 6
    margins = [null - best for null, best in rows if best > null]  # elsewhere [CLS] itself is the largest
    assert found.null_minus_best == pytest.approx(min(margins), abs=1e-4)
    assert min(null for null, _ in rows) - max(best for _, best in rows) < found.null_minus_best - 1
    assert [hit.probability for hit in found.hits] == sorted((hit.probability for hit in found.hits), reverse=True)


def test_memory_is_bounded_by_blocks(minilm, monkeypatch):
    """No call of the tokenizer sees more than a block, its overlaps, and the characters before its cut."""
    monkeypatch.setattr(search, "BLOCK", 5000)
    monkeypatch.setattr("quoth.answer.read_passages.BLOCK", 5000)
    monkeypatch.setattr(search, "OVERLAP", 500)
    reader = planted_reader(minilm, "heron")
    seen, encode = [], reader.tokenizer.encode

    def watch(texts, *rest):
        seen.append(sum(map(len, texts)))
        return encode(texts, *rest)

    monkeypatch.setattr(reader.tokenizer, "encode", watch)
    reader.find("What?", [long_text(60_000, "heron", 30_000)] * 2, read=0)
    assert sum(seen) >= 120_000
    assert max(seen) < 5000 + 5000 + 2 * 500


def test_only_the_best_passages_are_read(minilm):
    text = long_text(200_000, "heron", 120_000)
    reader = planted_reader(minilm, "heron")
    found = reader.find("Which bird did they keep there?", [FILLER, text], read=3)
    assert (found.read, found.passages) == (3, pytest.approx(170, abs=15))
    (hit,) = found.hits
    assert (hit.document, hit.answer.start, hit.answer.text) == (1, text.index("heron"), "heron")
    assert reader.runner.tokens < 3 * 384, "a passage is a window"
    away = reader.find("Is the weather quiet?", [text], read=3)
    assert away.hits == [], "what is not read is not found"
    assert reader.find("Is the weather quiet?", [text], read=0).hits[0].answer.start == text.index("heron")


def test_title_and_headings_stand_in_front_and_are_no_answer(minilm, tmp_path):
    """The planted reader finds its word in a heading too; only what stands in the text is an answer."""
    filler = "\n\n".join(f"## Part {i}\n\n{long_text(900, 'quail', 450)}" for i in range(30))
    (tmp_path / "birds.md").write_text(f"# The heron book\n\n{filler}\n\n## The heron of the mill\n\nA quiet heron.\n")
    collection = open_collection([str(tmp_path)], use_index=False)
    text, seen = collection.document(0).text, []
    reader = planted_reader(minilm, "heron")
    encode = reader.tokenizer.encode
    reader.tokenizer.encode = lambda texts, *rest: seen.extend(texts) or encode(texts, *rest)
    found = reader.find("Which bird is at the mill?", collection, top=5, threshold=math.inf, read=25)
    assert any(one.startswith("The heron book, The heron of the mill. ") for one in seen)
    assert any(one.startswith("The heron book, Part 3. ") for one in seen)
    places = {hit.answer.start for hit in found.hits if hit.answer.text == "heron"}
    assert places == {place.start() for place in re.finditer("heron", text)} & places
    assert text.rindex("heron") in places


@pytest.mark.parametrize("code", ["x = {1: 'ab'}; ", "some usual words of English "])
def test_context_fits_into_one_window(minilm, tmp_path, code):
    """As many tokens as a window holds, whatever the text: a passage of 400 characters is one window."""
    parts = "\n\n".join(f"# Part {i}\n\n{code * (420 // len(code))}mill {i}." for i in range(40))
    (tmp_path / "a.md").write_text(parts)
    reader, counts = planted_reader(minilm, "heron"), []
    logits = reader.logits
    reader.logits = lambda windows: counts.extend(windows.lengths.tolist()) or logits(windows)
    found = reader.find("mill", open_collection([str(tmp_path)], use_index=False), top=2, read=25)
    assert len(counts) == found.read == 25
    assert sorted(counts)[12] > 250


def test_as_many_passages_as_there_are_is_all(minilm):
    text = long_text(9000, "heron", 5000)
    reader = planted_reader(minilm, "heron")
    found = reader.find("What?", [text], read=0)
    assert reader.find("What?", [text], read=found.passages) == found


def test_no_shared_word_is_no_error(minilm):
    found = planted_reader(minilm, "heron").find("Ωμέγα?", [long_text(20_000, "heron", 10)], read=2)
    assert found.read == 2
    assert found.hits[0].answer.text == "heron", "the first passages are read then"


def test_progress_rises_to_the_end(minilm, monkeypatch):
    monkeypatch.setattr("quoth.answer.read_passages.WINDOWS", 4)
    monkeypatch.setattr(search, "BLOCK", 3000)
    told = []
    texts = [long_text(9000, "heron", 5000), "A heron.", FILLER]
    planted_reader(minilm, "heron").find("What?", texts, read=0, progress=lambda *now: told.append(now))
    assert len(told) > 5
    assert told == sorted(told)
    done, total = told[-1]
    assert 0.99 * total <= done <= total


class TestAbstention:
    TEXT = "They kept a heron there."

    @pytest.mark.parametrize("null", [3.0, 8.0, 8.5, 30.0])
    @pytest.mark.parametrize("stored", [-5.0, 0.0, 0.5])
    def test_the_threshold(self, minilm, null, stored):
        reader = planted_reader(minilm, "heron", null, Abstention(stored, 2.0, 1.0))
        margin = null - 8.0
        for given in (None, -6.0, 1.0, math.inf):
            found = reader.find("What?", [self.TEXT], threshold=given)
            assert bool(found.hits) == (margin <= (stored if given is None else given))
            assert found.null_minus_best == margin
            assert found.no_answer == pytest.approx(1 / (1 + math.exp(-(margin - 1.0) / 2.0)))
            assert found.threshold == (stored if given is None else given)
            assert (found.rejected is None) == bool(found.hits)
            (hit,) = found.hits or [found.rejected]
            assert hit.answer.text == "heron"
            assert hit.probability == pytest.approx(1 - found.no_answer)

    def test_without_a_span_there_is_none(self, minilm):
        found = planted_reader(minilm, "heron").find("What?", [" \n "], threshold=math.inf)
        assert (found.hits, found.rejected, found.null_minus_best, found.no_answer) == ([], None, math.inf, 1.0)


def test_bad_settings(minilm):
    with pytest.raises(QuothError, match="read=-1"):
        planted_reader(minilm, "heron").find("What?", ["x"], read=-1)


@pytest.mark.parametrize(
    "text", ["東京は日本の首都です。" * 20_000, "中" * 200_000, FILLER * 4000], ids=["cjk", "one", "latin"]
)
def test_the_windows_that_are_read_do_not_depend_on_the_script(minilm, text):
    """A hundred passages are a hundred windows, or somewhat more, of any text."""
    reader = planted_reader(minilm, "heron")
    planted, windows = reader.runner, []

    def counted(packed):
        windows.append(len(packed.lengths))
        return planted(packed)

    counted.budget = planted.budget
    reader.runner = counted
    found = reader.find("What?", [text], read=20)
    assert found.read == 20 < found.passages
    assert 20 <= sum(windows) <= 40


class TestUntilSure:
    """The word is in the first of 60 passages, by their words; a calibration says how sure its span is."""

    TEXT = long_text(70_000, "heron", 30_000)
    QUESTION = "Which bird did they keep there?"

    def reader(self, minilm, sure):
        """P(right) is about `sure` for a margin of 8, whatever else is read."""
        right, none = Outcome((0.0,), math.log(sure / (1 - sure))), Outcome((0.0,), -30.0)
        return planted_reader(minilm, "heron", confidence=Confidence(1, ("margin",), (0.0,), (1.0,), right, none))

    def test_a_sure_answer_ends_the_reading(self, minilm):
        found = self.reader(minilm, 0.9).find(self.QUESTION, [self.TEXT])
        assert (found.read, found.hits[0].answer.start) == (search.FIRST, self.TEXT.index("heron"))
        assert found.hits[0].probability == pytest.approx(0.9)
        assert self.reader(minilm, 0.9).find(self.QUESTION, [self.TEXT], read=15).read == 15

    def test_an_unsure_one_does_not(self, minilm):
        found = self.reader(minilm, 0.3).find(self.QUESTION, [self.TEXT], read=45)
        assert (found.read, found.hits[0].answer.start) == (45, self.TEXT.index("heron"))
        assert self.reader(minilm, 0.9).find(self.QUESTION, [self.TEXT], read=45, min_score=0.95).read == 45

    def test_an_answer_that_was_not_the_best_before_does_not(self, minilm, monkeypatch):
        """The best of each round is another one until the fourth."""
        real, rounds = search.rank_by_confidence, []

        def moving(*arguments):
            rounds.append(arguments)
            ranking = real(*arguments)
            ranking.start[0] += min(len(rounds), 4)
            return ranking

        monkeypatch.setattr(search, "rank_by_confidence", moving)
        assert self.reader(minilm, 0.9).find(self.QUESTION, [self.TEXT]).read == 5 * search.ROUND

    def test_several_answers_are_those_of_all(self, minilm):
        assert self.reader(minilm, 0.9).find(self.QUESTION, [self.TEXT], top=2, read=45).read == 45
        assert self.reader(minilm, 0.9).find(self.QUESTION, [self.TEXT], threshold=0.0, read=45).read == 45


def test_a_collection_gives_the_same_places(minilm, tmp_path):
    """Whatever is read, by an index or in memory, the answer stands where it stands in the document."""
    (tmp_path / "a.txt").write_text(FILLER)
    (tmp_path / "b.txt").write_text(long_text(60_000, "heron", 41_000))
    for read in (0, 3, 100):
        for use_index in (True, False):
            collection = open_collection([str(tmp_path)], use_index=use_index)
            found = planted_reader(minilm, "heron").find("Which bird was kept there?", collection, read=read)
            document = collection.document(found.hits[0].document)
            answer = found.hits[0].answer
            assert document.name == str(tmp_path / "b.txt")
            assert document.text[answer.start : answer.end] == answer.text == "heron"
            assert found.passages == collection.passages
            assert 0 < found.read <= (min(read, collection.passages) or collection.passages)
