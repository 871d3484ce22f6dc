"""`data.negatives`: made of the training questions alone, from the seed, and the same after an interruption."""

from dataclasses import replace

import numpy as np
import pytest

from quoth.augment.negatives import make_negatives
from quoth.data import read
from quoth.errors import QuothError
from quoth.tasks import SpanTask
from quoth.tasks.seeds import sample
from quoth.train.build import build_model
from quoth.train.recipe import make_recipe
from quoth.train.training import Interrupted
from quoth.windows.tokenizer import Tokenizer
from train.material import assert_same_weights, checkpoint, losses, prepare, stop_after, table, train

PARTS = {"moved": 0.2, "lookalike": 0.2, "negation": 0.1}


def recipe(material, **data):
    made = table(material.model, material.train, material.dev)
    made["data"] |= {"negatives": PARTS, **data}
    return made


@pytest.mark.slow
def test_a_run_resumes_exactly_and_tells_how_many(material, tmp_path):
    made = make_recipe(recipe(material))
    with pytest.raises(Interrupted):
        train(made, tmp_path / "run", device="cpu", tell=stop_after(10))
    assert checkpoint(tmp_path / "run")["step"] == 10
    facts = train(made, tmp_path / "run", device="cpu")
    whole = train(made, tmp_path / "whole", device="cpu")
    assert_same_weights(tmp_path / "run/model", tmp_path / "whole/model")
    assert losses(tmp_path / "run") == losses(tmp_path / "whole")
    assert facts["negatives"] == whole["negatives"] == {"moved": 12, "lookalike": 12, "negation": 6}
    plain = train(make_recipe(recipe(material, negatives={})), tmp_path / "plain", device="cpu")
    assert "negatives" not in plain
    assert facts["windows"] > plain["windows"]
    assert facts["inference_windows"] == plain["inference_windows"]  # what is evaluated stays as it is


def span_task(data, tokens, seed):
    return SpanTask.prepare(data, tokens, None, seed, 30)


def test_examples_are_those_of_the_questions_and_then_the_new_ones(material):
    data, tokens = make_recipe(recipe(material, fraction=0.5)).data, Tokenizer.load(material.model)
    task = span_task(data, tokens, seed=4)
    without = span_task(replace(data, negatives=make_recipe(table("m", "t")).data.negatives), tokens, seed=4)
    found, plain = task.examples, without.examples
    questions = sample(read(material.train).trainable, 0.5, 4)
    made = make_negatives(questions, PARTS, 4)
    assert task.negatives == {"moved": 6, "lookalike": 6, "negation": 3}
    assert without.negatives == {}
    assert np.array_equal(found.windows.ids[: len(plain.windows.ids)], plain.windows.ids)
    assert np.array_equal(found.labels[: len(plain)], plain.labels)
    assert (found.labels[len(plain) :] == 0).all()  # "no answer"
    assert found.windows.question[-1] == len(questions) + len(made) - 1
    other = span_task(data, tokens, seed=5).examples
    assert not np.array_equal(found.windows.ids, other.windows.ids)


def test_whether_there_is_an_answer(material):
    made = recipe(material, task="answerable") | {"head": {"kind": "class", "labels": 2}}
    found = make_recipe(made)
    prepared = prepare(found, build_model(found))
    assert prepared.negatives == {"moved": 12, "lookalike": 12, "negation": 6}
    assert len(set(prepared.evaluation.windows.question)) == 20


@pytest.mark.parametrize(
    ("data", "line"),
    [
        (
            {"negatives": {"moved": -0.1}},
            "data.negatives.moved is -0.1; it must be a fraction of the questions, from 0 to 1",
        ),
        ({"negatives": {"entity": 2}}, "data.negatives.entity is 2.0"),
        ({"negatives": {"moves": 0.1}}, "unknown key data.negatives.moves; did you mean data.negatives.moved"),
        ({"negatives": {"moved": "all"}}, "data.negatives.moved is 'all'; a number is wanted"),
        ({"negatives": 0.1}, "data.negatives is 0.1, a table is wanted"),
        (
            {"negatives": {"moved": 0.1}, "task": "glue"},
            "data.negatives.moved is 0.1; it must be 0 with data.task 'glue'",
        ),
    ],
)
def test_mistakes(material, data, line):
    with pytest.raises(QuothError, match=line):
        make_recipe(recipe(material, **data))
