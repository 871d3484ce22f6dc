"""Quotes: where they stand, in every spelling; and the nearest sentence where they do not."""

import gzip
import json
import os
import random
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from quoth.errors import QuothError
from quoth.search.collection import TextCollection
from quoth.search.sentences import split_sentences
from quoth.serve import quotes
from quoth.serve.quotes import LONGEST, PLACES, find_quote, normalised, verify

TEXT = (
    "The harbour master is Ingrid Solberg. A mooring costs 25 euros a night, and 1.5 euros an hour.\n\n"
    "“We can’t say more,” she wrote — the well-known log of 2011–2013 ends there. It was −5 degrees.\n\n"
    "The eﬃcient trans- mission of data needs Beyonce\u0301’s caf\u00e9. The area is 10² metres."
)


def one(quote, text=TEXT):
    """The verdict on a quote, and the words of the text that it stands at or is nearest to."""
    found = verify(quote, TextCollection([text]))
    place = found.places[0] if found.places else found.nearest
    return found.verdict, text[place.start : place.end] if place else ""


EXACT = [
    "The harbour master is Ingrid Solberg.",
    "Ingrid Solberg",
    " harbour master\n",
    "“We can’t say more,” she wrote — the well-known log",
    "25 euros a night, and 1.5 euros an hour",
    "master is Ingrid Solberg. A mooring costs",
    "−5 degrees",
    "known log",
    '"The harbour master is Ingrid Solberg."',  # quotation marks of the one who quotes
]
RESPELLED = [
    ("The harbour\nmaster  is\tIngrid\u00a0Solberg.", "The harbour master is Ingrid Solberg."),
    ('hour. "We can\'t say more," she wrote', "hour.\n\n“We can’t say more,” she wrote"),
    ("``We can't say more,'' she", "“We can’t say more,” she"),
    ("she wrote -- the well-known", "she wrote — the well-known"),
    ("she wrote—the well\u2011known", "she wrote — the well-known"),
    ("the wellknown log", "the well-known log"),
    ("log of 2011-2013 ends", "log of 2011–2013 ends"),
    ("It was -5 degrees", "It was −5 degrees"),
    ("The efficient transmission of data", "The eﬃcient trans- mission of data"),
    ("efficient", "eﬃcient"),
    ("trans\u00admission of", "trans- mission of"),
    ("needs Beyonc\u00e9's cafe\u0301.", "needs Beyonce\u0301’s caf\u00e9."),
    ("har-\nbour master", "harbour master"),
    ("a night , and 1.5 euros an hour .", "a night, and 1.5 euros an hour."),
]
ALTERED = [  # "5 euros" is not in "25 euros"; meaning changes with each of these
    ("5 euros a night", "25 euros a night"),
    ("A mooring costs 2", "A mooring costs 25"),
    ("and 5 euros an hour", "and 1.5 euros an hour"),
    ("25 euros a night, and 1 euros", "25 euros a night, and 1.5 euros"),
    ("It was 5 degrees.", "It was −5 degrees."),
    ("5 degrees", "−5 degrees"),
    ("We can say more", "We can’t say more"),
    ("the harbour master is Ingrid Solberg.", "The harbour master is Ingrid Solberg."),
    ("The area is 102 metres.", "The area is 10² metres."),
    ("The harbour master is not Ingrid Solberg.", "The harbour master is Ingrid Solberg."),
    ("The harbour master is Ingrid Solberg!", "The harbour master is Ingrid Solberg."),
    ("the log of 20112013 ends", "the well-known log of 2011–2013 ends"),
]


class TestStands:
    @pytest.mark.parametrize("quote", EXACT)
    def test_exactly(self, quote):
        assert one(quote) == ("exact", quote.strip().strip('"'))

    @pytest.mark.parametrize(("quote", "there"), RESPELLED)
    def test_in_another_spelling(self, quote, there):
        assert one(quote) == ("normalised", there)

    @pytest.mark.parametrize(("quote", "there"), ALTERED)
    def test_not_if_its_words_or_numbers_differ(self, quote, there):
        assert one(quote) == ("altered", there)

    @pytest.mark.parametrize("quote", ["lbour", "arbour master", "ngrid Solberg", "s 25 euros", "Solber", "can"])
    def test_not_where_it_would_cut_a_word(self, quote):
        assert one(quote)[0] in ("altered", "absent")

    def test_after_a_word_with_a_hyphen_at_its_end(self):
        assert one("and  post-war", "pre- and post-war years") == ("normalised", "and post-war")
        assert one("years of pre-  and", "years of pre- and post-war") == ("normalised", "years of pre- and")

    def test_not_where_it_would_cut_what_is_one_word_to_the_eye(self):
        assert one("0 euros", "25\u200b0 euros") == ("altered", "25\u200b0 euros")
        assert one("mission", "trans\u00admission") == ("absent", "")

    def test_in_scripts_without_spaces(self):
        text = "東京は日本の首都です。\n大阪は 西日本の都市です。"
        assert one("日本の首都", text) == ("exact", "日本の首都")
        assert one("大阪は西日本の都市です。", text) == ("normalised", "大阪は 西日本の都市です。")
        assert one("京都は日本の首都です。", text)[0] == "altered"
        assert one("ＡＢＣ順", "それはABC順です") == ("normalised", "ABC順")
        assert one("ABC順", "それはＡＢＣ順です") == ("normalised", "ＡＢＣ順")

    def test_every_place_is_found_and_exact_ones_come_first(self):
        texts = ["A  heron. No.", "Nothing.", "A heron. A heron, and A\nheron."]
        found = verify("A heron", TextCollection(texts))
        places = [
            (place.document, texts[place.document][place.start : place.end], place.exact) for place in found.places
        ]
        same = [(2, "A heron", True)] * 2
        assert places == [*same, (0, "A  heron", False), (2, "A\nheron", False)]
        assert not found.more

    def test_many_places_are_cut_off_and_said_so(self):
        found = verify("a heron", TextCollection(["a heron. " * (PLACES + 1)]))
        assert (len(found.places), found.more) == (PLACES, True)
        assert not verify("a heron", TextCollection(["a heron. " * PLACES])).more

    @pytest.mark.parametrize("quote", ["", "  \n", "—", "“”", "..."])
    def test_without_words_it_is_an_error(self, quote):
        with pytest.raises(QuothError, match="the quote has no words"):
            verify(quote, TextCollection([TEXT]))

    def test_too_long_it_is_an_error(self):
        with pytest.raises(QuothError, match="10,003 characters"):
            verify("a" * (LONGEST + 3), TextCollection([TEXT]))


PIECES = st.sampled_from(
    [*"afilst A5,.", "  ", "\n", "-", "- ", "–", "—", "--", "\u00ad", "\u200b", "ﬁ", "ﬀ", "ﬆ", "’", "'", '"', "“", "''",
     "`", "é", "e\u0301", "日", "本", " 本", "ａ", "５", "²", "\u00a0", "…"]
)  # fmt: skip
TEXTS = st.lists(PIECES, max_size=40).map("".join)


class TestAnyText:
    @given(TEXTS, st.data())
    @settings(max_examples=400, deadline=None)
    def test_a_part_of_it_between_words_stands_there(self, text, data):
        start = data.draw(st.integers(0, len(text)))
        end = data.draw(st.integers(start, len(text)))
        part = text[start:end]
        if any(char.isalnum() for char in part) and quotes._whole(text, start, end):
            places = find_quote(part, text, 1000)
            assert all(text[first:past] == part for first, past, exact in places if exact)
            assert any(first < end and start < past for first, past, _ in places)

    @given(TEXTS, st.lists(PIECES, min_size=1, max_size=6).map("".join))
    @settings(max_examples=800, deadline=None)
    def test_the_search_for_its_longest_word_loses_nothing(self, text, part):
        if not any(char.isalnum() for char in part):
            return
        short = find_quote(part.strip(), text, 1000)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(quotes, "_chunks", lambda _, text: [(0, len(text))])
            assert short == find_quote(part.strip(), text, 1000)

    @given(TEXTS)
    def test_what_is_normalised_stays_as_it_is_in_words(self, text):
        once = normalised(text)
        assert normalised(once).split() == once.split() or normalised(normalised(once)) == normalised(once)


WORDS = st.text("abcdefgh", min_size=2, max_size=7)


class TestNearest:
    @given(st.lists(WORDS, min_size=4, max_size=12, unique=True), st.lists(WORDS, max_size=30), st.data())
    @settings(max_examples=200, deadline=None)
    def test_one_other_word_is_the_difference(self, sentence, others, data):
        place = data.draw(st.integers(0, len(sentence) - 1))
        asked = [*sentence[:place], "zzz", *sentence[place + 1 :]]
        text = " ".join(["Xx", *others, "xx.", "Yy", *sentence, "yy."])
        found = verify(" ".join(asked), TextCollection([text]))
        near = found.nearest
        assert found.verdict == "altered"
        assert [(one.quote, one.document) for one in near.differences] == [("zzz", sentence[place])]
        assert text[near.start : near.end] == " ".join(sentence)
        assert near.similarity == pytest.approx(1 - 1 / len(sentence))

    def test_words_left_out_and_put_in(self):
        found = verify("The harbour is not Ingrid Solberg.", TextCollection([TEXT])).nearest
        assert [(one.quote, one.document) for one in found.differences] == [("", "master"), ("not", "")]

    def test_several_sentences(self):
        quote = "The harbour master is Ingrid Solberg. A mooring costs 35 euros a night, and 1.5 euros an hour."
        found = verify(quote, TextCollection(["Nothing of it. " * 50, TEXT])).nearest
        assert TEXT[found.start : found.end] == quote.replace("35", "25")
        assert [(one.quote, one.document) for one in found.differences] == [("35", "25")]

    def test_what_is_not_like_any_sentence_has_none(self):
        assert one("Herons eat fish in the reeds of the lake.") == ("absent", "")

    def test_a_common_word_far_away_is_left_out(self):
        text = "The storm of the year came at night. Nobody saw it, and the old north pier cost a lot."
        found = verify("A north pier cost a lot.", TextCollection([text])).nearest
        assert text[found.start : found.end] == "old north pier cost a lot."
        assert [(one.quote, one.document) for one in found.differences] == [("A", "old")]


HOSTILE = [  # each took minutes or more before it was bounded
    ("a b c " * 1600 + "z", "b a c a " * 20_000),
    ("a b. " * 1900 + "z", "a b c. " * 20_000),
    ("e\u0301" * 3000, "e" + "\u0301" * 500_000),
    ("a" + " " * 9000 + "b", "a" + " " * 500_000 + "c"),
    ("a-" * 4000 + "b", "a- " * 100_000),
    ("a — b", ("x" + " " * 50_000) * 5),
    ("x" * 9990, "x" * 500_000),
]


@pytest.mark.parametrize(("quote", "text"), HOSTILE, ids=[repr(quote[:5]) for quote, _ in HOSTILE])
def test_hostile_texts_take_no_longer_than_others(quote, text):
    assert not verify(quote, TextCollection([text])).places


SHARED = os.environ.get("QUOTH_SHARED")


@pytest.mark.skipif(not SHARED, reason="QUOTH_SHARED names no folder with SQuAD")
class TestSquad:
    """The sentences of real articles: as they are, in other spellings, and with one word of another sentence."""

    @pytest.fixture(scope="class")
    @classmethod
    def material(cls):
        with gzip.open(Path(SHARED) / "data/squad/validation.json.gz") as file:
            articles = json.load(file)["data"][:12]
        texts = ["\n\n".join(dict.fromkeys(part["context"] for part in one["paragraphs"])) for one in articles]
        spans = [(number, *span) for number, text in enumerate(texts) for span in split_sentences(text)]
        chosen = [span for span in spans if 40 < span[2] - span[1] < 400]
        return TextCollection(texts), texts, random.Random(20).sample(chosen, 60)

    def test_as_they_are(self, material):
        collection, texts, chosen = material
        for number, start, end in chosen:
            found = verify(texts[number][start:end], collection)
            assert found.verdict == "exact"
            assert any((one.document, one.start, one.end) == (number, start, end) for one in found.places)

    def test_in_other_spellings(self, material):
        collection, texts, chosen = material
        for number, start, end in chosen:
            quote = texts[number][start:end].replace(" ", "\n ").replace("'", "’").replace("–", "-")
            found = verify(quote, collection)
            assert found.verdict == "normalised"
            assert any((one.document, one.start, one.end) == (number, start, end) for one in found.places)

    def test_with_one_other_word(self, material):
        collection, texts, chosen = material
        for number, start, end in chosen:
            words = texts[number][start:end].split(" ")
            words[len(words) // 2] = "xyzzy"
            found = verify(" ".join(words), collection)
            assert found.verdict == "altered"
            assert found.nearest.document == number
            assert start <= found.nearest.start < found.nearest.end <= end
            assert "xyzzy" in " ".join(one.quote for one in found.nearest.differences)
