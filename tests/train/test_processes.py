"""Two processes that train together, started by torchrun, against one."""

import json
import os
import signal
import subprocess
import sys
import time
from types import SimpleNamespace

import pytest

from quoth.train.recipe import make_recipe
from train.material import (
    assert_same_weights,
    environment,
    farthest,
    log_lines,
    losses,
    table,
    train,
    weights,
)

HEADS = {"lp": "pool(learned) > linear", "compress": "compress(8) > skip > linear"}


def torchrun(*arguments):
    """Two processes of the command line, in a session of their own."""
    launcher = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2", "--standalone", "-m", "quoth"]
    return subprocess.Popen(
        [*launcher, *map(str, arguments)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        env=environment(),
    )


@pytest.fixture(scope="module")
def runs(material, tmp_path_factory):
    """The same recipe by two processes, by two that were stopped and went on, and by one.

    The model has a pooler, which gets no gradient from spans. adam_epsilon is Devlin's: with 1e-8 AdamW would make
    steps of the full learning rate of the biases whose gradients are rounding alone (see IDLE in test_loop.py).
    """
    folder = tmp_path_factory.mktemp("processes")
    optimisation = {"epochs": 3.0, "learning_rate": 1e-4, "adam_epsilon": 1e-6, "dropout": 0.0}
    frozen = {
        "heads": HEADS,
        "at": [0, 3],
        "batch_size": 6,
        "learning_rate": 1e-4,
        "adam_epsilon": 1e-6,
        "max_grad_norm": 1.0,
    }
    recipe = make_recipe(table(material.model, material.train, material.dev, optimisation=optimisation, frozen=frozen))
    path = folder / "recipe.toml"
    path.write_text(recipe.to_toml())
    whole = torchrun("train", path, "--json", "--out", folder / "two")
    one = train(recipe, folder / "one", device="cpu")
    told = whole.communicate(timeout=300)
    stopped = torchrun("train", path, "--out", folder / "stopped")
    while stopped.poll() is None and not (folder / "stopped/log.jsonl").exists():
        time.sleep(0.001)
    os.killpg(stopped.pid, signal.SIGTERM)
    stop = stopped.communicate(timeout=300)
    kept = max(path.name for path in (folder / "stopped/checkpoints").iterdir())
    last = torchrun("train", path, "--out", folder / "stopped")
    last_told = last.communicate(timeout=300)
    return SimpleNamespace(
        folder=folder,
        one=one,
        two=(whole.returncode, *told),
        stop=(stopped.returncode, *stop),
        kept=kept,
        last=(last.returncode, *last_told),
    )


@pytest.mark.slow
def test_two_processes_agree_with_one(runs):
    code, out, err = runs.two
    assert code == 0, err
    facts = json.loads(out)  # one of them prints
    assert (facts["processes"], runs.one["processes"]) == (2, 1)
    assert (facts["steps"], facts["windows"]) == (runs.one["steps"], runs.one["windows"]) == (51, 300)
    assert "pooler.weight" in weights(runs.folder / "two/model")
    print(f"farthest apart: {farthest(runs.folder / 'two/model', runs.folder / 'one/model'):.1e}")
    assert farthest(runs.folder / "two/model", runs.folder / "one/model") < 1e-5
    for (step, mine), (same, theirs) in zip(losses(runs.folder / "two"), losses(runs.folder / "one"), strict=True):
        assert step == same
        assert mine == pytest.approx(theirs, abs=1e-5)
    assert facts["quality"]["f1"] == runs.one["quality"]["f1"]


@pytest.mark.slow
@pytest.mark.parametrize("at", [0, 3])
@pytest.mark.parametrize("name", HEADS)
def test_heads_of_two_processes_agree_with_those_of_one(runs, at, name):
    two, one, stopped = (runs.folder / run / f"frozen/epoch-{at}" for run in ("two", "one", "stopped"))
    apart = farthest(two / name / "model", one / name / "model")
    print(f"farthest apart: {apart:.1e}")
    assert apart < 1e-5
    for mine, theirs in zip(log_lines(two), log_lines(one), strict=True):
        assert mine["step"] == theirs["step"]
        if "losses" in mine:
            assert mine["losses"] == pytest.approx(theirs["losses"], abs=1e-5)
    assert_same_weights(stopped / name / "model", two / name / "model")
    assert (two / name / "answers.jsonl.gz").exists()
    assert json.loads((two / "metrics.json").read_text())["steps"] == 17


@pytest.mark.slow
def test_stopped_they_resume_exactly(runs):
    code, _, err = runs.stop
    assert code != 0
    assert "the same command goes on from there" in err
    assert int(runs.kept.removeprefix("step-")) in (10, 20, 30, 40, 50)  # where processes agree to stop
    code, _, err = runs.last
    assert code == 0, err
    assert f"going on from step {int(runs.kept.removeprefix('step-'))} of 51" in err
    assert_same_weights(runs.folder / "stopped/model", runs.folder / "two/model")
    assert losses(runs.folder / "stopped") == losses(runs.folder / "two")
