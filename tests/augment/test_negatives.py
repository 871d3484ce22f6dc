"""Unanswerable questions made from answerable ones: no answer is left, and only what was meant is changed."""

import json
import math
import os
import re
import subprocess
import sys
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from quoth.augment.entity import entity, kind, mentions
from quoth.augment.negation import negation
from quoth.augment.negatives import MAKERS, as_squad, make_negatives
from quoth.augment.passages import Bm25, lookalike, moved
from quoth.data import read
from quoth.data.dataset import Gold, Question
from quoth.data.normalise import normalise
from quoth.errors import QuothError

SHARED = os.environ.get("QUOTH_SHARED")


def ask(id, question, context, answer, title="Towns"):
    golds = (Gold(answer, context.index(answer)),) if answer else ()
    return Question(id, question, context, golds, not answer, title)


ARDEN = "The water mill at Arden was built by Thomas Hale in 1742. It is the oldest mill of the county."
SELLA = "Marble from the quarry at Sella was carried to Genoa by ox cart. The road of Sella was built in 1811."
SKYE = (
    "The ferry to Skye leaves from Mallaig at seven. A pier of Mallaig was built by Ada Winter for the ferry in 1902."
)
BELL = (
    "The bell of Saint Olaf weighs nine tons. It was cast in Trondheim by Otto Brandt, and was carried there in 1881."
)
TOWNS = [
    ask("arden-who", "Who built the mill at Arden?", ARDEN, "Thomas Hale"),
    ask("arden-when", "When was the mill at Arden built?", ARDEN, "1742"),
    ask("arden-what", "What is the oldest mill of the county?", ARDEN, "water mill at Arden"),
    ask("sella-where", "Where was the marble of Sella carried?", SELLA, "Genoa"),
    ask("sella-how", "What did marble leave the quarry at Sella by?", SELLA, "ox cart"),
    ask("sella-road", "What of Sella was built in 1811?", SELLA, "road"),
    ask("skye-where", "Where does the ferry to Skye leave from?", SKYE, "Mallaig"),
    ask("skye-who", "Who built the pier of Mallaig in 1902?", SKYE, "Ada Winter"),
    ask("skye-no", "Who paints the ferry to Skye?", SKYE, None),
    ask("bell-what", "What does the bell of Saint Olaf weigh?", BELL, "nine tons"),
    ask("bell-where", "Where was the bell of Saint Olaf cast?", BELL, "Trondheim"),
    ask("bell-who", "Who cast the bell that was carried to Trondheim in 1881?", BELL, "Otto Brandt"),
]
YEARS = {"1742": ARDEN, "1811": SELLA, "1902": SKYE, "1881": BELL}  # each seen often enough to be known
TOWNS += [
    ask(f"no-{year}-{who}", f"Which {who} came in {year}?", YEARS[year], None)
    for year in YEARS
    for who in ("boy", "cat")
]
BY_ID = {question.id: question for question in TOWNS}

# Passages and questions of a few words, so that answers and words of questions come again elsewhere.
LITTLE = "mill Arden Hale the oldest built Genoa 1742 1811 did was not first ferry A.B. Skye's née"
some_words = st.lists(
    st.sampled_from(LITTLE.split()),
    min_size=2,
    max_size=9,
).map(" ".join)


@st.composite
def datasets(draw):
    """A few passages with questions, answers cut out of the passage, some of them impossible."""
    questions = []
    for p in range(draw(st.integers(0, 5))):
        context = draw(some_words) + f" passage{p}."
        for q in range(draw(st.integers(0, 3))):
            text = f"Who {draw(some_words)}?"
            start = draw(st.integers(0, len(context) - 1))
            answer = context[start : start + draw(st.integers(0, 12))].strip()
            title = draw(st.sampled_from(["Towns", "", "_untitled", "Rivers"]))
            questions.append(ask(f"{p}-{q}", text, context, answer, title))
    return questions


@pytest.mark.parametrize("maker", MAKERS.values(), ids=MAKERS)
class TestEveryMaker:
    def test_makes_unanswerable_questions_that_know_their_source(self, maker):
        made = maker(TOWNS, 100)
        assert made
        for one in made:
            asked, source = one.question, BY_ID[one.source]
            assert one.maker == maker.__name__
            assert asked.id == f"{source.id}-{one.maker}"
            assert (asked.impossible, asked.answers, asked.gold_texts) == (True, (), ())
            assert source.answers  # of an unanswerable question it is not known what to look for
            assert asked.context in {question.context for question in TOWNS}
            assert (asked.question, asked.context) != (source.question, source.context)
        assert len({one.question.id for one in made}) == len(made)

    def test_is_a_function_of_the_seed_and_fewer_are_the_beginning(self, maker):
        whole = maker(TOWNS, 100, 3)
        assert maker(list(TOWNS), 100, 3) == whole
        for count in range(len(whole)):
            assert maker(TOWNS, count, 3) == whole[:count]
        orders = {tuple(one.source for one in maker(TOWNS, 100, seed)) for seed in range(20)}
        assert len(orders) > 1

    def test_nothing_comes_of_nothing(self, maker):
        assert maker([], 10) == []
        assert maker(TOWNS, 0) == []
        assert maker([question for question in TOWNS if question.impossible], 10) == []

    def test_an_id_that_is_taken_is_left_out(self, maker):
        first = maker(TOWNS, 1)[0]
        again = [*TOWNS, ask(first.question.id, "Why?", "Because.", None, "Other")]
        assert first.question.id not in [one.question.id for one in maker(again, 100)]

    def test_what_was_asked_of_the_passage_is_left_out(self, maker):
        one = maker(TOWNS, 1)[0].question
        again = [*TOWNS, Question("same", one.question.upper(), one.context, (), True, one.title)]
        found = [(made.question.question, made.question.context) for made in maker(again, 100)]
        assert (one.question, one.context) not in found

    @settings(max_examples=60, deadline=None)
    @given(questions=datasets(), seed=st.integers(0, 9))
    def test_holds_for_any_questions(self, maker, questions, seed):
        made = maker(questions, 100, seed)
        assert made == maker(questions, 100, seed)
        assert len({one.question.id for one in made} | {q.id for q in questions}) == len(made) + len(questions)
        sources = {question.id: question for question in questions}
        for one in made:
            source, asked = sources[one.source], one.question
            assert asked.impossible
            if maker in (moved, lookalike):
                assert asked.question == source.question
                assert asked.context != source.context
                assert not any(normalise(gold) in normalise(asked.context) for gold in source.gold_texts)
            else:
                assert asked.context == source.context
                assert asked.question != source.question


class TestMoved:
    def test_stays_in_the_article(self):
        other = [
            ask(f"x{i}", f"Who sank boat {i}?", f"Boat {i} sank in May, by Karl{i}.", f"Karl{i}", "Boats")
            for i in range(4)
        ]
        titles = {question.id: question.title for question in [*TOWNS, *other]}
        made = moved([*TOWNS, *other], 100)
        assert {one.question.title for one in made} == {"Towns", "Boats"}
        assert all(titles[one.source] == one.question.title for one in made)

    @pytest.mark.parametrize("title", ["", " ", "_untitled"])
    def test_a_title_that_names_no_article(self, title):
        assert moved([Question(q.id, q.question, q.context, q.answers, q.impossible, title) for q in TOWNS], 9) == []

    def test_never_to_where_the_answer_stands_in_another_form(self):
        own = "Arden's mill: Thomas Hale built it."
        elsewhere = ["He met THE thomas-hale? No: Thomas  Hale!", "Hale came late.", "Nobody came to the river."]
        questions = [ask("q", "Who built the mill of Arden?", own, "Thomas Hale")]
        questions += [ask(f"o{i}", f"What {i}?", text, None) for i, text in enumerate(elsewhere)]
        for seed in range(8):
            (made,) = moved(questions, 9, seed)
            assert made.question.context == elsewhere[2]  # the first has the answer, the second half of its words

    def test_the_passage_must_lack_a_word_of_the_question(self):
        questions = [
            ask("q", "What did the committee decide?", "The committee did decide to leave.", "to leave"),
            ask("o", "Why?", "Another committee will decide on Monday.", None),
        ]
        assert moved(questions, 9) == []


class TestLookalike:
    def test_takes_the_first_of_the_ranking_that_does_not_answer(self):
        contexts = list(dict.fromkeys(question.context for question in TOWNS))
        for one in lookalike(TOWNS, 100):
            source = BY_ID[one.source]
            scores = loop_scores(contexts, source.question) + loop_scores(contexts, source.context)
            order = [contexts[i] for i in np.argsort(-scores, kind="stable")]
            better = order[: order.index(one.question.context)]
            for context in better:
                words = set(re.findall(r"\w+", normalise(context)))
                gold = set(re.findall(r"\w+", normalise(source.gold_texts[0])))
                assert context == source.context or gold & words or self.all_there(source, context)

    def all_there(self, source, context):
        return all(word in context.lower() for word in re.findall(r"\w{6,}", source.question.lower()))

    def test_crosses_articles(self):
        own = "The bell of the church of Saint Olaf weighs nine tons."
        near = "The bell of the church of Saint Erik hangs low."
        far = "Ferries leave at noon."
        questions = [
            ask("q", "What does the bell of Saint Olaf weigh?", own, "nine tons", "Olaf"),
            ask("a", "When?", far, None, "Olaf"),
            ask("b", "How?", near, None, "_untitled"),
        ]
        (made,) = lookalike(questions, 9)
        assert (made.question.context, made.question.title) == (near, "_untitled")


def loop_scores(documents, query):
    """BM25 as in the book, word by word."""
    bags = [Counter(re.findall(r"\w+", document.lower())) for document in documents]
    mean = sum(sum(bag.values()) for bag in bags) / len(bags)
    asked = sorted(set(re.findall(r"\w+", query.lower())))
    scores = []
    for bag in bags:
        total = 0.0
        for word in asked:
            holders = sum(word in other for other in bags)
            idf = math.log(1 + (len(bags) - holders + 0.5) / (holders + 0.5))
            total += idf * bag[word] * 2.2 / (bag[word] + 1.2 * (0.25 + 0.75 * sum(bag.values()) / mean))
        scores.append(total / len(asked))
    return np.array(scores)


@settings(max_examples=80, deadline=None)
@given(documents=st.lists(some_words, min_size=1, max_size=6), query=some_words)
def test_bm25_equals_the_loop(documents, query):
    split = [re.findall(r"\w+", document.lower()) for document in documents]
    found = Bm25(split).scores(re.findall(r"\w+", query.lower()))
    np.testing.assert_allclose(found, loop_scores(documents, query), rtol=1e-12, atol=1e-12)


def test_bm25_of_nothing():
    assert Bm25([]).scores(["a"]).shape == (0,)
    assert Bm25([[], ["a"]]).scores([]).tolist() == [0, 0]
    assert Bm25([[], []]).scores(["b"]).tolist() == [0, 0]


class TestEntity:
    def test_names_and_numbers_of_a_text(self):
        text = "When did Mr. J. K. Hale's mill in New York, the Bank of the West and U.S. ships burn in May 1742?"
        found = [mention.text for mention in mentions(text)]
        assert found == ["Mr. J. K. Hale", "New York", "Bank of the West", "U.S.", "May 1742"[:3], "1742"]
        assert [mention.before for mention in mentions(text)] == ["did", "in", "the", "and", "in", "may"]

    @pytest.mark.parametrize(
        ("name", "wanted"),
        [("1742", "year"), ("1990s", "decade"), ("21st", "ordinal"), ("9,000.5", "number"), ("7b", "other"),
         ("May", "month"), ("Sunday", "day"), ("U.S.", "acronym"), ("BBC", "acronym"),
         ("Mongols", "plural"), ("Genoa", "name")],
    )  # fmt: skip
    def test_kinds(self, name, wanted):
        assert kind(name) == wanted

    def test_swaps_one_name_for_one_of_its_kind_that_the_passage_has_not(self):
        made = entity(TOWNS, 100)
        assert made
        for one in made:
            old, new = BY_ID[one.source].question, one.question.question
            gone, come = swap(old, new)
            assert kind(gone) == kind(come)
            assert re.search(rf"\b{re.escape(gone)}\b", one.question.context)
            assert come not in one.question.context
            assert any(come in question.context or come in question.question for question in TOWNS)

    @pytest.mark.parametrize(
        ("context", "year", "good"),
        [
            ("From 1900 to 1950 the mill of 1930 ran.", "1940", False),
            ("From 1900 to 1950 the mill of 1930 ran.", "1960", False),  # "from 1900" on
            ("The mill of 1930 ran 1900–50.", "1920", False),
            ("The mill of 1930 ran 1900–50.", "1960", True),
            ("The mill ran in 1930.", "1940", True),
        ],
    )
    def test_a_year_in_a_span_of_the_passage_is_not_taken(self, context, year, good):
        questions = [ask("q", "Who ran the mill of 1930?", context + " Hale did.", "Hale", "a")]
        questions += [ask(f"o{i}", f"Who came in {year}?", f"In {year} nobody came {i}.", None, "b") for i in range(3)]
        assert [one.question.question for one in entity(questions, 9)] == (
            [f"Who ran the mill of {year}?"] if good else []
        )

    def test_what_the_answer_goes_with_is_left_alone(self):
        asked = ["Besides Genoa, what burnt?", "What other town than Genoa burnt?", "What Genoa burnt?"]
        questions = [ask(f"{i}", text, "Genoa and Sella burnt.", "Sella", "a") for i, text in enumerate(asked)]
        questions += [ask(f"o{i}", "Where?", f"It was in Arden, not in Lyon {i}.", None, "a") for i in range(5)]
        assert entity(questions, 9) == []


def swap(old, new):
    """The words that differ between two texts, from the first to the last."""
    mine, theirs = re.findall(r"\w+|\W", old), re.findall(r"\w+|\W", new)
    low = 0
    while mine[low] == theirs[low]:
        low += 1
    high = 0
    while mine[-1 - high] == theirs[-1 - high]:
        high += 1
    return "".join(mine[low : len(mine) - high]), "".join(theirs[low : len(theirs) - high])


class TestNegation:
    @pytest.mark.parametrize(
        ("old", "new"),
        [
            ("What is the largest mill?", "What is the smallest mill?"),
            ("Who was first to come?", "Who was last to come?"),
            ("What is the most famous mill?", "What is the least famous mill?"),
            ("What did Hale build?", "What didn't Hale build?"),
            ("What was built by Hale?", "What wasn't built by Hale?"),
            ("Who built the mill?", "Who never built the mill?"),
            ("Who did not come?", "Who did come?"),
            ("What can't Hale do?", "What can Hale do?"),
        ],
    )
    def test_edits(self, old, new):
        (made,) = negation([ask("q", old, "Hale built a mill.", "Hale")], 9)
        assert made.question.question == new

    @pytest.mark.parametrize(
        "old",
        [
            "Who was the mill named after?",  # two words that belong together
            "What is for most mills?",  # nearly all
            "What is the Largest Mill?",  # a name
            "When was it built?",
            "How many mills were built?",
            "What does MH stand for?",
            "What is a mill?",
            "What is not only a mill?",
            "What took an older turn and a younger one?",  # the opposite is there already
        ],
    )
    def test_what_is_left_alone(self, old):
        assert negation([ask("q", old, "Hale built a mill.", "Hale")], 9) == []

    @pytest.mark.parametrize(
        ("old", "context"),
        [
            ("What is the largest mill?", "Hale has the largest mill, Abel the smallest."),
            ("What did Hale build?", "Hale built a mill, but not a house."),
            ("What did Hale build?", "Hale built a mill and refused to build a house."),
        ],
    )
    def test_not_where_the_passage_may_say_so(self, old, context):
        assert negation([ask("q", old, context, "Hale")], 9) == []


class TestTogether:
    def test_parts_of_the_questions(self):
        made = make_negatives(TOWNS, {"negation": 0.1, "moved": 0.3})
        assert [one.maker for one in made] == ["moved"] * 6 + ["negation"] * 2
        assert make_negatives(TOWNS, {"moved": 0.0}) == make_negatives([], {"moved": 1.0}) == []
        assert len(make_negatives(TOWNS, {"moved": 1.0})) < len(TOWNS)  # some of them have no answer

    @pytest.mark.parametrize(
        ("parts", "line"),
        [
            ({"moves": 0.1}, "'moves' is unknown; choose from moved"),
            ({"moved": 1.5}, "moved is 1.5"),
            ({"entity": math.nan}, "nan"),
        ],
    )
    def test_mistakes(self, parts, line):
        with pytest.raises(QuothError, match=line):
            make_negatives(TOWNS, parts)

    def test_a_file_reads_back(self, tmp_path):
        made = make_negatives(TOWNS, dict.fromkeys(MAKERS, 1.0))
        path = tmp_path / "n.json"
        path.write_text(json.dumps(as_squad(made)))
        back = read(path)
        assert sorted(back.questions, key=lambda q: q.id) == sorted((one.question for one in made), key=lambda q: q.id)
        assert back.version == "2.0"


class TestCommand:
    @pytest.fixture
    def old(self, tmp_path):
        """SQuAD 1.1: no version, nothing impossible."""
        answered = [question for question in TOWNS if question.answers]
        contexts = dict.fromkeys(question.context for question in answered)
        paragraphs = [
            {
                "context": context,
                "qas": [
                    {
                        "id": q.id,
                        "question": q.question,
                        "answers": [{"text": g.text, "answer_start": g.start} for g in q.answers],
                    }
                    for q in answered
                    if q.context == context
                ],
            }
            for context in contexts
        ]
        path = tmp_path / "train.json"
        path.write_text(json.dumps({"data": [{"title": "Towns", "paragraphs": paragraphs}]}))
        return path

    def test_writes_and_tells(self, old, tmp_path, cli):
        out = tmp_path / "new/negatives.json"
        words = ("negatives", old, "--moved", 0.5, "--negation", 0.3, "--seed", 1, "--out", out)
        result = cli(*words, "--json", "--show", 2)
        facts = json.loads(result.stdout)
        assert (facts["questions"], facts["made"], facts["file"]) == (11, {"moved": 6, "negation": 3}, str(out))
        assert [len(some) for some in facts["examples"].values()] == [2, 2]
        dataset = read(out)
        assert all(question.impossible for question in dataset.questions)
        kept = [qa for a in json.loads(out.read_text())["data"] for p in a["paragraphs"] for qa in p["qas"]]
        assert Counter(qa["maker"] for qa in kept) == {"moved": 6, "negation": 3}
        assert {qa["source"] for qa in kept} <= set(BY_ID)
        before = out.read_bytes()
        text = cli(*words, "--show", 1).stdout
        assert out.read_bytes() == before
        assert "moved: 6 new questions from 11" in text
        assert "(was: " in text

    @pytest.mark.parametrize(
        ("words", "line"),
        [
            ((), "nothing to make: give --moved"),
            (("--moved", "2"), "moved is 2.0; it must be a fraction of the questions"),
        ],
    )
    def test_mistakes_are_one_line(self, old, cli, words, line):
        result = cli("negatives", old, *words)
        assert result.returncode == 2
        assert line in result.stderr.splitlines()[-1]


def test_neither_torch_nor_anything_new_is_imported():
    code = "import sys, quoth.augment.negatives; print(sorted({'torch', 'scipy', 'tokenizers'} & set(sys.modules)))"
    told = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert told.strip() in ("[]", "['tokenizers']")


@pytest.mark.skipif(not SHARED, reason="QUOTH_SHARED is not set: no real data to read")
@pytest.mark.slow
def test_real_data():
    dataset = read(Path(SHARED or ".") / "data/squad/train.json.gz")
    sources = {question.id: question for question in dataset.questions}
    for maker in (moved, lookalike, negation):
        made = maker(dataset.questions, 300)
        assert len(made) == 300
        for one in made:
            if maker is not negation:
                golds = sources[one.source].gold_texts
                assert not any(normalise(gold) in normalise(one.question.context) for gold in golds)
