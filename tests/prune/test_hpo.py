"""The search for γ, rate and steps: a study that goes on whatever happens to it, and `quoth prune --search`."""

import json
import math
import os
import signal
import sys
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest

from quoth.augment.negatives import make_negatives
from quoth.data import read
from quoth.errors import QuothError
from quoth.model.loading import load
from quoth.prune.gate_training import GateTraining
from quoth.prune.hpo import Search, open_study
from quoth.prune.recipe import make_prune_recipe, read_prune_recipe
from quoth.prune.trials import MOST, PART
from quoth.train.loop import Loop
from quoth.train.recipe import make_recipe
from quoth.train.training import Interrupted
from quoth.windows.labels import span_labels
from train.material import make_model, make_questions, prepare, prune, table, train


def numbers(words):
    """What the words say, by key."""
    return {key.removeprefix("gates."): float(value) for key, value in (word.split("=") for word in words)}


def peak(words):
    """A score that is highest at γ = 0.01, rate = 0.03 and 200 steps."""
    at = numbers(words)
    return -sum(
        abs(math.log(at[key] / best)) for key, best in (("gamma", 0.01), ("learning_rate", 0.03), ("steps", 200))
    )


def run_trials(study, count):
    found = {}
    for _ in range(count):
        number, words = study.ask()
        found[number] = words
        study.tell(number, peak(words))
    return found


class TestStudy:
    def test_words_lie_in_the_space_and_over_a_recipe(self, tmp_path):
        search = Search(gamma=(1e-5, 1e-4), learning_rate=(0.02, 0.02), steps=(7, 3))
        study = open_study(tmp_path, search, 0)
        for words in run_trials(study, 8).values():
            at = numbers(words)
            assert 1e-5 <= at["gamma"] <= 1e-4
            assert at["learning_rate"] == 0.02
            assert at["steps"] in (3, 7)
        (tmp_path / "r.toml").write_text('model = "m"\n[data]\ntrain = "x"\n[target]\nkeep = 0.5\n')
        gates = read_prune_recipe(tmp_path / "r.toml", words).gates
        assert {"gamma": gates.gamma, "learning_rate": gates.learning_rate, "steps": gates.steps} == at

    def test_the_best_is_the_best(self, tmp_path):
        study = open_study(tmp_path, Search(), 0)
        assert study.best is None
        found = run_trials(study, 20)
        scores = {number: peak(words) for number, words in found.items()}
        assert study.best["number"] == max(scores, key=scores.get)
        assert study.best["score"] == max(scores.values())
        assert [row["score"] for row in study.table()] == list(scores.values())
        early, late = (np.mean(list(scores.values())[part]) for part in (slice(0, 6), slice(12, 20)))
        assert late > early  # it learns where the peak is

    def test_asks_beside_each_other_differ(self, tmp_path):
        study = open_study(tmp_path, Search(), 0)
        run_trials(study, 7)  # past the trials that are drawn at random
        asked = dict(study.ask() for _ in range(5))
        assert len({numbers(words)["gamma"] for words in asked.values()}) == 5
        for number, words in reversed(asked.items()):
            study.tell(number, peak(words))
        assert study.done == 12

    def test_it_goes_on_as_it_would_have(self, tmp_path):
        """Opened anew for every ask and for every tell, as from outside: the same trials."""
        whole = run_trials(open_study(tmp_path / "a", Search(), 3), 10)
        parts = {}
        for _ in range(10):
            number, words = open_study(tmp_path / "b", Search(), 3).ask()
            parts[number] = words
            open_study(tmp_path / "b", Search(), 3).tell(number, peak(words))
        assert parts == whole
        assert open_study(tmp_path / "a", Search(), 3).table() == open_study(tmp_path / "b", Search(), 3).table()

    def test_killed_between_ask_and_tell(self, tmp_path):
        study = open_study(tmp_path, Search(), 0)
        run_trials(study, 3)
        left = [study.ask(), study.ask()]
        before = study.table()
        again = open_study(tmp_path, Search(), 0)
        assert again.table() == before
        assert again.done == again.over == 3
        assert [again.ask(), again.ask()] == left  # what nobody told comes again, what is complete does not
        new = again.ask()
        assert new[0] == 5
        assert new[1] not in [left[0][1], left[1][1]]
        again.tell_failed(left[0][0])
        again.tell(left[1][0], 1.0)
        assert [row["state"] for row in again.table()] == ["complete"] * 3 + ["failed", "complete", "running"]
        assert (again.done, again.over, again.best["number"]) == (4, 5, left[1][0])

    def test_killed_while_the_journal_was_written(self, tmp_path):
        """It ends anywhere in an ask: in a line, or between two. Complete trials stay, and two more can be run."""
        study, log = open_study(tmp_path, Search(), 0), tmp_path / "study.log"
        run_trials(study, 2)
        complete, before = study.table(), log.read_bytes()
        study.ask()
        whole = log.read_bytes()
        ends = [end for end in range(len(before), len(whole)) if end % 50 == 0 or whole[end - 1 : end] == b"\n"]
        for end in ends:
            log.write_bytes(whole[:end])
            run_trials(open_study(tmp_path, Search(), 0), 2)
            rows = open_study(tmp_path, Search(), 0).table()
            assert rows[:2] == complete
            assert [row["state"] for row in rows] == ["complete"] * 4

    def test_a_score_that_is_not_finite_fails(self, tmp_path):
        study = open_study(tmp_path, Search(), 0)
        study.tell(study.ask()[0], math.nan)
        assert (study.done, study.over, study.best) == (0, 1, None)


class TestRefused:
    @pytest.mark.parametrize(
        ("changes", "line"),
        [
            ({"trials": -1}, "hpo.trials is -1; it must be not negative"),
            ({"gamma": [0.1, 0.01]}, r"hpo.gamma is \[0.1, 0.01\].*low not above high"),
            ({"gamma": []}, r"hpo.gamma is \[\]; it must be \[low, high\]"),
            ({"learning_rate": [0, 0.1]}, "hpo.learning_rate .* above 0"),
            ({"learning_rate": 0.1}, r"hpo.learning_rate is \[0.1\]; it must be \[low, high\]"),
            ({"steps": []}, "hpo.steps .* at least one"),
            ({"steps": [0, 3]}, "hpo.steps .* at least 1"),
            ({"steps": [3, 3]}, "hpo.steps .* different"),
            ({"epochs": -0.5}, "hpo.epochs is -0.5"),
            ({"trails": 3}, "did you mean hpo.trials"),
        ],
    )
    def test_a_table(self, changes, line):
        made = {"model": "m", "data": {"train": "x"}, "target": {"keep": 0.5}, "hpo": changes}
        with pytest.raises(QuothError, match=line):
            make_prune_recipe(made)

    @pytest.mark.parametrize(
        "more", [{"method": "layers"}, {"ranking": "random"}, {"target": {}, "start": {"layers": 2}}]
    )
    def test_a_search_without_gates(self, more):
        made = {"model": "m", "data": {"train": "x"}, "target": {"keep": 0.5}, "hpo": {"trials": 3}, **more}
        with pytest.raises(QuothError, match=r"hpo.trials is 3; it must be 0 where no gates are trained"):
            make_prune_recipe(made)

    def test_tells(self, tmp_path):
        study = open_study(tmp_path, Search(), 0)
        with pytest.raises(QuothError, match="trial 4: the study has no such trial"):
            study.tell(4, 1.0)
        number = study.ask()[0]
        study.tell(number, 1.0)
        for again in (lambda: study.tell(number, 2.0), lambda: study.tell_failed(number)):
            with pytest.raises(QuothError, match=r"trial 0: was told already \(complete\)"):
                again()
        assert study.best["score"] == 1.0

    def test_another_space_or_no_study(self, tmp_path):
        open_study(tmp_path, Search(), 0)
        open_study(tmp_path, Search(trials=9, epochs=3.0), 0)  # of which the study knows nothing
        with pytest.raises(
            QuothError, match=r"holds another search \(there, here: steps: \[50, 100, 200, 400\], \[9\]"
        ):
            open_study(tmp_path, Search(steps=(9,)), 0)
        (tmp_path / "study.log").write_text("something\nelse\n")
        with pytest.raises(QuothError, match=r"study.log: is not a study"):
            open_study(tmp_path, Search(), 0)

    def test_without_optuna(self, tmp_path, monkeypatch):
        monkeypatch.setitem(sys.modules, "optuna", None)
        with pytest.raises(QuothError, match=r"needs optuna: pip install 'quoth\[hpo\]'"):
            open_study(tmp_path, Search(), 0)
        made = {"model": "m", "data": {"train": "x"}, "target": {"keep": 0.5}, "hpo": {"trials": 3}}
        with pytest.raises(QuothError, match="needs optuna"):
            prune(make_prune_recipe(made), tmp_path / "run", device="cpu")
        assert [path.name for path in (tmp_path / "run").iterdir()] == [".lock"]


@pytest.fixture(scope="module")
def material(minilm, tmp_path_factory):
    folder = tmp_path_factory.mktemp("search")
    questions = make_questions(folder / "train.json", seed=1, passages=3)
    base = make_model(folder / "base", minilm, initializer_range=0.2)
    train(make_recipe(table(base, questions, optimisation={"epochs": 0.3})), folder / "tuned", device="cpu")
    return SimpleNamespace(model=folder / "tuned/model", train=questions)


def recipe(material, trials=3, **data):
    return make_prune_recipe(
        {
            "model": str(material.model),
            "data": {**table("", material.train)["data"], **data},
            "target": {"keep": [0.8, 0.6], "embeddings": False},
            "gates": {"batch_size": 8},
            "recovery": {"epochs": 0.2, "batch_size": 8},
            "hpo": {"trials": trials, "steps": [2, 3], "epochs": 0.1},
        }
    )


class TestHoldOut:
    def test_passages_are_parted(self, material):
        made, model = recipe(material), load(material.model)
        whole = prepare(made, model)
        held = whole.hold_out(PART, MOST, made.seed)
        assert len(held.dataset) == 10  # one passage of three
        assert len({q.context for q in held.dataset.questions}) == 1
        assert len(held.examples) + len(held.evaluation.windows) == len(whole.examples)
        # the windows of the passage still belong to its questions: the same answers are found in them
        judged = held.evaluation.windows
        answers = span_labels(judged, held.dataset.questions)
        assert answers.any()
        pairs = [
            (windows.ids[windows.starts[i] : windows.starts[i + 1]].tobytes(), tuple(found[i]))
            for windows, found in ((judged, answers), (held.examples.windows, held.examples.labels))
            for i in range(len(windows))
        ]
        w = whole.examples.windows
        everything = [
            (w.ids[w.starts[i] : w.starts[i + 1]].tobytes(), tuple(whole.examples.labels[i])) for i in range(len(w))
        ]
        assert sorted(pairs) == sorted(everything)
        assert whole.hold_out(PART, MOST, made.seed).examples.identity == held.examples.identity

    def test_made_questions_are_learnt_and_judge_nothing(self, material):
        made, model = recipe(material, negatives={"moved": 0.5}), load(material.model)
        whole = prepare(made, model)
        held = whole.hold_out(PART, MOST, made.seed)
        asked = read(str(material.train)).questions
        (passage,) = {question.context for question in held.dataset.questions}
        assert {q.id for q in held.dataset.questions} == {q.id for q in asked if q.context == passage}
        number = whole.negatives["moved"]
        added = make_negatives([q for q in asked if q.trainable], {"moved": 0.5})
        elsewhere = sum(one.question.context != passage for one in added)
        assert 0 < elsewhere < number == len(added)
        assert len(np.unique(held.examples.windows.question)) == len(asked) - len(held.dataset) + elsewhere

    def test_rows_of_classes(self, material):
        made, model = recipe(material, task="answerable"), load(material.model)
        whole = prepare(made, model)
        held = whole.hold_out(PART, MOST, made.seed)
        rows = held.evaluation.windows.question
        labels = [held.evaluation.labels[rows == row] for row in range(rows[-1] + 1)]
        # A question has an answer if any of its windows holds it, and the windows of the others are all "no answer".
        assert [int(found.all()) for found in labels] == held.evaluation.classes.tolist()
        assert (held.name, held.evaluation.classes.tolist().count(1), len(labels)) == ("answerable", 2, 10)
        assert len(held.examples) + len(held.evaluation) == len(whole.examples)

    def test_too_little(self, material, tmp_path):
        made = recipe(SimpleNamespace(model=material.model, train=make_questions(tmp_path / "one.json", 1, passages=1)))
        with pytest.raises(QuothError, match=r"one\.json: too little to hold a part out"):
            prune(made, tmp_path / "run", device="cpu")


@pytest.mark.slow
def test_a_search_that_is_killed_goes_on(material, tmp_path, monkeypatch):
    """Killed after a trial, and stopped by a signal inside another: scores stay, nothing is tried twice."""
    told, made, run = [], recipe(material), tmp_path / "run"

    def kill(news):
        if str(news).startswith("trial 1 of 3"):
            raise KeyboardInterrupt

    advance = Loop.advance

    def signalled(loop):
        advance(loop)
        if isinstance(loop.objective, GateTraining) and loop.step == 1:
            os.kill(os.getpid(), signal.SIGTERM)

    with pytest.raises(KeyboardInterrupt):
        prune(made, run, device="cpu", tell=kill)
    first = json.loads((run / "hpo.json").read_text())["trials"]
    assert [row["state"] for row in first] == ["complete"]
    with monkeypatch.context() as patched:
        patched.setattr(Loop, "advance", signalled)
        with pytest.raises(Interrupted, match="step 1 of"):
            prune(made, run, device="cpu", tell=told.append)
    assert (run / "hpo/trial-1/rounds/01/gates/checkpoints/step-00000001").is_dir()
    asked = open_study(run, made.hpo).table()
    assert [row["state"] for row in asked] == ["complete", "running"]
    assert not (run / "recipe.toml").exists()

    facts = prune(made, run, device="cpu", tell=told.append)
    assert [news.split(":")[0] for news in told if str(news).startswith("trial ")] == ["trial 2 of 3", "trial 3 of 3"]
    search = facts["hpo"]
    assert json.loads((run / "hpo.json").read_text()) == search
    assert search["trials"][0] == first[0]
    assert {**search["trials"][1], "score": None, "state": "running"} == asked[1]
    assert [row["number"] for row in search["trials"]] == [0, 1, 2]
    found = max(search["trials"], key=lambda row: row["score"])
    assert search["best"] == found["number"]
    ran = read_prune_recipe(run / "recipe.toml")
    assert (ran.gates.gamma, ran.gates.learning_rate, ran.gates.steps) == (
        found["gamma"],
        found["learning_rate"],
        found["steps"],
    )
    assert ran == replace(made, gates=ran.gates, hpo=replace(made.hpo, trials=0))
    assert facts["targets"]["keep-0.6"]["steps"]["gates"] == found["steps"]
    assert {path.name for path in (run / "hpo").iterdir()} == {"recipe.toml"}
    assert prune(made, run, device="cpu") == facts
    with pytest.raises(QuothError, match=r"another recipe \(there, here: hpo.trials: 3, 4\)"):
        prune(recipe(material, trials=4), run, device="cpu")


@pytest.mark.slow
def test_trials_that_fail(material, tmp_path, monkeypatch):
    """The second of three fails and the search goes on; if all do, the search says why."""
    advance, seen = Loop.advance, []

    def failing(loop):
        gates = isinstance(loop.objective, GateTraining)
        if gates and loop.step == 0:
            seen.append(loop)
        if gates and len(seen) in failed:
            raise QuothError("the loss is nan at step 1")
        advance(loop)

    monkeypatch.setattr(Loop, "advance", failing)
    failed, told = (2,), []
    facts = prune(recipe(material), tmp_path / "run", device="cpu", tell=told.append)
    assert [row["state"] for row in facts["hpo"]["trials"]] == ["complete", "failed", "complete"]
    assert any("failed, the loss is nan" in str(news) for news in told)
    seen, failed = [], range(9)
    with pytest.raises(QuothError, match="all 3 trials of the search failed; the loss is nan"):
        prune(recipe(material), tmp_path / "other", device="cpu")


@pytest.mark.slow
def test_the_command(material, tmp_path, cli):
    run = ("prune", material.model, "--keep", 0.7, "--data", material.train, "--search", 3, "--out", tmp_path / "run")
    words = ("gates.batch_size=8", "recovery.batch_size=8", "recovery.epochs=0.1", "hpo.steps=[2, 3]", "hpo.epochs=0.1")
    done = cli(*run, *words)
    assert done.returncode == 0, done.stderr
    assert done.stderr.count("trial ") == 3
    assert "trial 3 of 3: γ " in done.stderr
    assert "F1 at the best threshold" in done.stdout
    again = cli(*run, *words, "--json")
    assert again.returncode == 0, again.stderr
    assert "trial" not in again.stderr
    assert [row["number"] for row in json.loads(again.stdout)["hpo"]["trials"]] == [0, 1, 2]
