"""The two parts of the user's questions: whole articles or passages, written and read again."""

from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from quoth.data import Dataset, Gold, Question, Report, read
from quoth.errors import QuothError
from quoth.experiments.advise_data import HELD_OUT, TRAIN, identity, split, write_split


def questions(sizes):
    """sizes: of each article, how many questions each of its passages has."""
    found = []
    for a, passages in enumerate(sizes):
        for p, count in enumerate(passages):
            context = f"Passage {p} of article {a} says seven."
            gold = (Gold("seven", context.index("seven")),)
            found += [Question(f"{a}-{p}-{q}", f"Question {q}?", context, gold, title=f"T{a}") for q in range(count)]
    return found


def dataset(found):
    return Dataset(found, Report("x"), "2.0")


@settings(deadline=None)
@given(st.lists(st.lists(st.integers(1, 9), min_size=1, max_size=4), min_size=5, max_size=30), st.integers(0, 99))
def test_no_article_is_in_both_parts(sizes, seed):
    asked = questions(sizes)
    found = split(asked, "x", seed)
    assert sorted(found.train + found.held_out) == list(range(len(asked)))
    assert found.train
    assert found.held_out
    of = (lambda q: q.title) if found.by == "articles" else (lambda q: q.context)
    out = {of(asked[i]) for i in found.held_out}
    assert not out & {of(asked[i]) for i in found.train}
    assert len(out) == found.groups


def test_a_fifth_is_held_out_and_at_most_a_thousand():
    few = split(questions([[10]] * 50), "x")
    assert (few.by, few.groups, len(few.held_out)) == ("articles", 10, 100)
    many = split(questions([[100]] * 90), "x")
    assert (many.groups, len(many.held_out)) == (10, 1000)


def test_an_article_with_most_of_the_questions_is_trained_on():
    """As "_untitled" in some files."""
    asked = questions([[400], *[[10]] * 20])
    for seed in range(10):
        found = split(asked, "x", seed)
        assert found.by == "articles"
        assert not {asked[i].title for i in found.held_out} & {"T0"}


def test_few_articles_are_split_by_passages():
    asked = questions([[5] * 20])
    found = split(asked, "x")
    assert (found.by, found.groups, len(found.held_out)) == ("passages", 4, 20)


def test_so_are_articles_that_are_all_too_large():
    """Of 12,500 questions 1,000 are wanted, at most 2,000, and each article has 2,500."""
    found = split(questions([[5] * 500] * 5), "x")
    assert (found.by, found.groups, len(found.held_out)) == ("passages", 200, 1000)


def test_of_two_passages_one_is_held_out():
    found = split(questions([[6, 4]]), "x")
    assert (found.by, found.groups, len(found.held_out)) == ("passages", 1, 4)


@pytest.mark.parametrize("sizes", [[[1]], [[50]]])
def test_one_passage_cannot_be_split(sizes):
    with pytest.raises(QuothError, match=r"^my\.json: .*one passage"):
        split(questions(sizes), "my.json")


def test_what_cannot_be_trained_on_is_not_enough():
    lost = [Question(f"{i}", "Who?", f"Passage {i}.", (), title=f"T{i}", gold_texts=("gone",)) for i in range(10)]
    with pytest.raises(QuothError, match="too few questions"):
        split(lost, "my.json")


def test_the_parts_are_read_as_they_were(tmp_path):
    asked = questions([[3, 2], [4], [1], [2], [5], [2, 2]])
    asked[0] = Question("n", "Is it?", asked[1].context, (), impossible=True, title="T0")
    context = asked[7].context
    several = (Gold("seven", context.index("seven")), Gold("article", context.index("article")))
    asked[7] = Question("s", "Which?", context, several, title="T1", gold_texts=("seven", "nowhere", "article"))
    found = split(asked, "x", seed=3)
    paths = write_split(dataset(asked), found, tmp_path / "parts")
    assert [path.name for path in paths] == [TRAIN, HELD_OUT]
    for path, numbers in zip(paths, (found.train, found.held_out)):
        again = read(path)
        wanted = {asked[i].id: asked[i] for i in numbers}
        assert again.version == "2.0"
        assert Counter(q.id for q in again.questions) == Counter(wanted.keys())
        for one in again.questions:
            assert one == wanted[one.id]


@pytest.mark.parametrize(
    "other",
    [
        {"question": "Other?"},
        {"title": "Other"},
        {"impossible": True, "answers": (), "gold_texts": ()},
        {"gold_texts": ("seven", "7")},
    ],
)
def test_identity_depends_on_all_that_is_asked(other):
    asked = questions([[2], [2]])
    fields = {name: getattr(asked[0], name) for name in Question.__slots__}
    changed = [Question(**{**fields, **other}), *asked[1:]]
    assert identity(dataset(asked)) == identity(dataset(questions([[2], [2]])))
    assert identity(dataset(asked)) != identity(dataset(changed))
