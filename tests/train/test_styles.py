"""`data.styles` and `data.layouts`: of training questions, negatives and pairs without a label; not of evaluation."""

import pytest

from quoth.augment import make_negatives, relayout, restyle
from quoth.data import read
from quoth.errors import QuothError
from quoth.tasks import SpanTask
from quoth.train.build import build_model
from quoth.train.recipe import make_recipe
from quoth.windows import span_labels
from quoth.windows.tokenizer import Tokenizer
from train.material import prepare, table

STYLES = {"no_mark": 0.5, "keywords": 0.25}
LAYOUTS = {"heading": 0.4, "markdown": 0.4}


def recipe(material, **data):
    made = table(material.model, material.train, material.dev)
    made["data"] |= {"styles": STYLES, "layouts": LAYOUTS, **data}
    return made


def span_task(material, seed=3, **data):
    return SpanTask.prepare(make_recipe(recipe(material, **data)).data, Tokenizer.load(material.model), None, seed, 30)


def test_questions_and_negatives_are_rewritten(material):
    task = span_task(material, negatives={"moved": 0.5})
    asked = read(material.train).trainable
    plain = [*asked, *(one.question for one in make_negatives(asked, {"moved": 0.5}, 3))]
    assert task.questions == relayout(restyle(plain, STYLES, 3), LAYOUTS, 3)
    assert [q.id for q in task.questions] == [q.id for q in plain]
    assert task.passages == [q.context for q in plain]
    changed = sum(old.question != new.question for old, new in zip(plain, task.questions, strict=True))
    assert changed == round(0.5 * len(plain)) + round(0.25 * len(plain))
    laid_out = sum(old.context != new.context for old, new in zip(plain, task.questions, strict=True))
    assert laid_out == 2 * round(0.4 * len(plain))
    assert (task.examples.labels == span_labels(task.examples.windows, task.questions)).all()
    assert task.dataset.questions == read(material.dev).questions  # what is evaluated stays as it is


def test_pairs_without_a_label(material, tmp_path):
    text = tmp_path / "new.txt"
    text.write_text("\n\n".join(f"The mill number {i} was built in {1700 + i} by the Hale family." for i in range(9)))
    pairs = {"moved": 0.5, "cloze": 0.2, "passages": [str(text)]}
    made = recipe(material, unlabelled=pairs) | {"teachers": ["x"]}
    task = SpanTask.prepare(make_recipe(made).data, Tokenizer.load(material.model), None, 3, 30)
    count = len(read(material.train).trainable)
    assert task.unlabelled["cloze"] == round(0.2 * count)
    last = task.questions[-sum(task.unlabelled.values()) :]
    assert not any(q.trainable for q in last)
    assert sum(not q.question.endswith("?") for q in last) >= len(last) / 2
    assert sum(new.context != old for new, old in zip(last, task.passages[-len(last) :])) > len(last) / 2


def test_a_passage_is_held_out_in_every_layout(material):
    whole = span_task(material)
    held = whole.hold_out(0.3, 20, 0)
    out = {q.id for q in held.dataset.questions}
    by_id = {q.id: passage for q, passage in zip(whole.questions, whole.passages, strict=True)}
    assert out
    assert {by_id[i] for i in out}.isdisjoint(held.passages)
    assert held.passages == [by_id[q.id] for q in held.questions]


def test_whether_there_is_an_answer(material):
    made = make_recipe(recipe(material, task="answerable") | {"head": {"kind": "class", "labels": 2}})
    whole = prepare(made, build_model(made))
    held = whole.hold_out(0.3, 20, 0)
    assert len(held.examples) + len(held.evaluation) == len(whole.examples)


@pytest.mark.parametrize(
    ("data", "line"),
    [
        ({"styles": {"no_mark": -0.1}}, "data.styles.no_mark is -0.1; it must be a fraction of the questions"),
        ({"styles": {"lower": 1.5}}, "data.styles.lower is 1.5"),
        ({"styles": {"lower": float("nan")}}, "data.styles.lower is nan"),
        ({"styles": {"no_mark": 0.6, "lower": 0.6}}, "data.styles is .*together are at most 1, not 1.2"),
        ({"styles": {"keyword": 0.1}}, "unknown key data.styles.keyword; did you mean data.styles.keywords"),
        ({"styles": 0.1}, "data.styles is 0.1, a table is wanted"),
        ({"layouts": {"list": 2}}, "data.layouts.list is 2.0"),
        ({"layouts": {"list": 0.7, "code": 0.4}}, "data.layouts is .*together are at most 1, not 1.1"),
        ({"layouts": {"lists": 0.1}}, "unknown key data.layouts.lists; did you mean data.layouts.list"),
        (
            {"styles": {}, "layouts": {"code": 0.1}, "task": "glue"},
            "data.layouts.code is 0.1; it must be 0 with data.task 'glue'",
        ),
        (
            {"styles": {"lower": 0.1}, "task": "pretrain"},
            "data.styles.lower is 0.1; it must be 0 with data.task 'pretrain'",
        ),
        ({"unlabelled": {"cloze": 1}}, "data.unlabelled.cloze is 1.0; it must be 0 without data.unlabelled.pass"),
        ({"unlabelled": {"new": 1}}, "data.unlabelled.new is 1.0; it must be 0 without data.unlabelled.pass"),
        (
            {"unlabelled": {"cloze": 101, "passages": "a.txt"}},
            "data.unlabelled.cloze is 101.0; it must be from 0 to 100",
        ),
        (
            {"unlabelled": {"passages": "a.txt"}},
            "data.unlabelled.new is 0.0; it must be above 0 with data.unlabelled.pass",
        ),
        ({"unlabelled": {"cloze": 1, "passages": "a.txt"}}, "data.unlabelled is .*empty without teachers"),
    ],
)
def test_mistakes(material, data, line):
    with pytest.raises(QuothError, match=line) as caught:
        make_recipe(recipe(material, **data))
    assert "\n" not in str(caught.value)
