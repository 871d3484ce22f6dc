"""Heads that are scored on their way: each point is what a shorter run would have ended with."""

import json
import os
import signal
import xml.etree.ElementTree as ElementTree
from types import SimpleNamespace

import pytest

from quoth.train.recipe import make_recipe
from quoth.train.training import Interrupted
from train.heads_material import HEADS, as_it_is, frozen_table, head_metrics
from train.material import assert_same_weights, log_lines, table, train

SOME = {name: HEADS[name] for name in ("lp", "noisy cnn", "dot")}  # with a constant learning rate and no warm-up
EVALUATE = [0.06, 0.5, 0.8, 1]


@pytest.fixture(scope="module")
def run(lively, tmp_path_factory):
    """Two stages, scored after 1, 8, 14 and 17 of 17 steps."""
    folder, told = tmp_path_factory.mktemp("curves") / "run", []
    made = frozen_table(lively, SOME, frozen={"evaluate": EVALUATE, "learning_rate": 1e-2})
    made["frozen"]["at"] = [0, 1]
    facts = train(make_recipe(made), folder, device="cpu", tell=told.append)
    return SimpleNamespace(folder=folder, facts=facts, told=told, made=made)


class TestTraining:
    def test_every_head_has_a_curve(self, run):
        for at in ("0", "1"):
            stage = run.facts["frozen"][at]
            for name in SOME:
                head = stage["heads"][name]
                assert [point["step"] for point in head["curve"]] == [1, 8, 14, 17]
                assert [point["epoch"] for point in head["curve"]] == [step / 17 for step in (1, 8, 14, 17)]
                assert head["curve"][-1] == {"step": 17, "epoch": 1.0, **head["quality"]}
                assert json.loads((run.folder / f"frozen/epoch-{at}/{name}/metrics.json").read_text()) == head
                assert len({json.dumps(scores(point)) for point in head["curve"]}) > 1  # it is trained
        assert "curve" not in run.facts["frozen"]["1"]["heads"]["encoder"]  # which does not

    @pytest.mark.parametrize("part", [0, 1, 2, 3])
    def test_a_point_is_a_run_that_ended_there(self, run, lively, tmp_path, part):
        """So the curve is also that of less data: an epoch over a random part of the windows."""
        made = as_it_is(lively, SOME, epochs=EVALUATE[part], learning_rate=1e-2)
        short = train(make_recipe(made), tmp_path / "run", device="cpu")["frozen"]["0"]
        assert short["steps"] == [1, 8, 14, 17][part]
        for name in SOME:
            assert scores(run.facts["frozen"]["0"]["heads"][name]["curve"][part]) == short["heads"][name]["quality"]
            assert "curve" not in short["heads"][name]  # one point is none
            if part == 3:  # evaluating has changed nothing
                assert_same_weights(
                    *(place / "frozen/epoch-0" / name / "model" for place in (run.folder, tmp_path / "run"))
                )

    def test_log_and_who_watches(self, run):
        lines = [line for line in log_lines(run.folder / "frozen/epoch-1") if "evaluation" in line]
        assert [line["step"] for line in lines] == [1, 8, 14, 17]
        assert [set(line["evaluation"]["heads"]) for line in lines] == [set(SOME)] * 3 + [{*SOME, "encoder"}]
        said = [news for news in run.told if isinstance(news, str)]
        assert said.count("epoch 0.47 of the heads") == 2
        assert said.count("epoch 1.00 of the heads") == 2

    @pytest.mark.slow
    @pytest.mark.parametrize("step", [1, 10])
    def test_interrupted(self, run, tmp_path, step):
        """Right after the first evaluation, and between two of them."""
        recipe = make_recipe({**run.made, "checkpoints": {"seconds": 0} if step == 1 else {}})
        tell = stop_at(10, 3) if step > 1 else kill_at("epoch 0.06 of the heads")
        with pytest.raises((Interrupted, KeyboardInterrupt)):
            train(recipe, tmp_path / "run", device="cpu", tell=tell)
        train(recipe, tmp_path / "run", device="cpu")
        for at in ("0", "1"):
            stages = [place / f"frozen/epoch-{at}" for place in (run.folder, tmp_path / "run")]
            assert head_metrics(stages[0]) == head_metrics(stages[1])
            for name in SOME:
                assert_same_weights(*(stage / name / "model" for stage in stages))

    def test_two_epochs_of_one_step_are_evaluated_once(self, lively, tmp_path):
        made = as_it_is(lively, {"lp": HEADS["lp"]}, evaluate=[0.5, 0.501, 0.01, 0.02], epochs=2.0)
        found = train(make_recipe(made), tmp_path / "run", device="cpu")["frozen"]["0"]["heads"]["lp"]["curve"]
        assert [point["step"] for point in found] == [1, 8, 9, 34]

    def test_without_evaluation_data(self, lively, tmp_path):
        made = as_it_is(lively, {"lp": HEADS["lp"]}, evaluate=[0.5])
        made["data"]["evaluate"] = ""
        found = train(make_recipe(made), tmp_path / "run", device="cpu")["frozen"]["0"]["heads"]["lp"]
        assert "curve" not in found
        assert found["quality"] == {}


def scores(point):
    return {key: value for key, value in point.items() if key not in ("step", "epoch")}


def stop_at(step, times):
    """A `tell` that sends this process SIGTERM when a status of this step comes for the third time."""
    seen = []

    def tell(news):
        seen.append(getattr(news, "step", None))
        if seen[-1] == step and seen.count(step) == times:  # the encoder, the first stage, the second
            os.kill(os.getpid(), signal.SIGTERM)

    return tell


def kill_at(line):
    """A `tell` that breaks the run off, as a kill would, at the second time that it hears a line."""
    heard = []

    def tell(news):
        heard.append(news)
        if heard.count(line) == 2:
            raise KeyboardInterrupt

    return tell


class TestCommandLine:
    def test_json(self, run, cli):
        result = cli("analyse", "--curves", run.folder, "--json")
        assert result.returncode == 0, result.stderr
        stages = json.loads(result.stdout)["stages"]
        assert [stage["stage"] for stage in stages] == [str(run.folder / f"frozen/epoch-{at}") for at in ("0", "1")]
        for stage, at in zip(stages, ("0", "1"), strict=True):
            facts = run.facts["frozen"][at]["heads"]
            assert stage["metrics"] == ["f1", "best_f1"]
            assert stage["epochs"] == [1 / 17, 8 / 17, 14 / 17, 1]
            assert stage["heads"] == {name: facts[name]["curve"] for name in SOME}
            assert stage.get("encoder") == facts.get("encoder", {}).get("quality")

    def test_tables_and_plots(self, run, tmp_path, cli):
        stage = run.folder / "frozen/epoch-1"
        result = cli("analyse", stage, "--curves", "--plots", tmp_path / "plots")
        assert result.returncode == 0, result.stderr
        assert result.stdout.startswith(str(stage))
        rows = [line for line in result.stdout.splitlines() if line.startswith("│")]
        for metric, some in (("f1", rows[:4]), ("best_f1", rows[4:])):
            for row, name in zip(some, ("encoder", *SOME), strict=True):
                head = run.facts["frozen"]["1"]["heads"][name]
                values = [point[metric] for point in head.get("curve", [head["quality"]] * 4)]
                cells = [cell.strip() for cell in row.strip("│").split("│")]
                assert cells == ["the encoder's own" if name == "encoder" else name, *(f"{v:.2f}" for v in values)]
        assert "0.0588" in result.stdout
        assert result.stderr.strip() == f"1 plot in {tmp_path / 'plots'}"
        (path,) = (tmp_path / "plots").iterdir()
        assert path.name == "curves-epoch-1.svg"
        assert ElementTree.parse(path).getroot().tag == "{http://www.w3.org/2000/svg}svg"
        text = path.read_text()
        for words in ("noisy cnn", "the encoder's own", "F1 at the best threshold", "epochs of the heads"):
            assert words in text

    def test_a_stage_of_classes(self, lively, tmp_path, cli):
        """There are no answers to analyse, but scores of every moment."""
        made = table(lively.model, lively.train, lively.dev, head={"kind": "class", "labels": 2})
        made["data"]["task"] = "answerable"
        heads = {"plain": {"kind": "class", "labels": 2}}
        made["frozen"] = {"heads": heads, "batch_size": 6, "evaluate": [0.1], "at": [0, 1]}
        facts = train(make_recipe(made), tmp_path / "run", device="cpu")
        result = cli("analyse", tmp_path / "run", "--curves", "--json", "--plots", tmp_path / "plots")
        assert result.returncode == 0, result.stderr
        stages = json.loads(result.stdout)["stages"]
        assert [stage["metrics"] for stage in stages] == [["exact", "f1"]] * 2
        assert stages[1]["heads"]["plain"] == facts["frozen"]["1"]["heads"]["plain"]["curve"]
        assert len(stages[1]["heads"]["plain"]) == 2
        assert {path.name for path in (tmp_path / "plots").iterdir()} == {"curves-epoch-0.svg", "curves-epoch-1.svg"}

    def test_without_points(self, staged, cli):
        result = cli("analyse", "--curves", staged.folder)
        assert result.returncode == 2
        assert "epoch-0: its heads were scored once only; name epochs in frozen.evaluate" in result.stderr
