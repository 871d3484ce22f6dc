"""Stages that are stopped or killed resume and end with the very same heads."""

import multiprocessing
import os
import random
import signal
import time
from contextlib import suppress

import pytest

from quoth.errors import QuothError
from quoth.train.recipe import make_recipe
from quoth.train.training import Interrupted
from train.heads_material import AT, HEADS, answers, as_it_is, frozen_table, head_losses, head_metrics
from train.material import assert_same_weights, change_state, stop_after, train


def assert_same_runs(run, whole):
    """Encoder, snapshots, every head of every stage with its losses and answers: the same; and nothing is left over."""
    assert_same_weights(run / "model", whole / "model")
    assert_same_weights(run / "snapshots/epoch-0.5", whole / "snapshots/epoch-0.5")
    for at in AT:
        mine, theirs = run / f"frozen/epoch-{at}", whole / f"frozen/epoch-{at}"
        for name in HEADS:
            assert_same_weights(mine / name / "model", theirs / name / "model")
            assert answers(mine / name) == answers(theirs / name)
            assert head_losses(mine, name) == head_losses(theirs, name)
        assert head_metrics(mine) == head_metrics(theirs)
    left = [path.name for path in run.rglob(".*") if path.name != ".lock"]
    assert not left, "nothing half-written stays"
    assert not list(run.rglob("checkpoints"))
    assert not (run / "tuned.json").exists()


class TestInterrupted:
    @pytest.mark.slow
    def test_sigterm_in_every_part(self, lively, staged, tmp_path):
        recipe = make_recipe(frozen_table(lively, HEADS))
        place = tmp_path / "run"
        with pytest.raises(Interrupted, match="stopped at step 10 of 17"):
            train(recipe, place, device="cpu", tell=stop_after(10))
        assert (place / "checkpoints/step-00000010").exists()
        for at in AT:
            with pytest.raises(Interrupted, match="stopped at step 10 of 17"):
                train(recipe, place, device="cpu", tell=stop_after(10, f"epoch {at}"))
            assert not (place / "checkpoints").exists()
            assert (place / "tuned.json").exists()
            assert [path.name for path in (place / f"frozen/epoch-{at}/checkpoints").iterdir()] == ["step-00000010"]
        train(recipe, place, device="cpu")
        assert_same_runs(place, staged.folder)

    @pytest.mark.slow
    def test_sigterm_at_the_last_step_of_a_part(self, lively, staged, tmp_path):
        """The part at hand is finished, and the next one stops at its first step."""
        recipe = make_recipe(frozen_table(lively, HEADS))
        place = tmp_path / "run"
        with pytest.raises(Interrupted, match="stopped at step 1 of 17"):
            train(recipe, place, device="cpu", tell=stop_after(17))
        assert [path.name for path in (place / "frozen/epoch-0/checkpoints").iterdir()] == ["step-00000001"]
        train(recipe, place, device="cpu")
        assert_same_runs(place, staged.folder)

    def test_another_encoder_below_is_refused(self, lively, tmp_path):
        recipe = make_recipe(as_it_is(lively, {"lp": HEADS["lp"]}))
        with pytest.raises(Interrupted):
            train(recipe, tmp_path / "run", device="cpu", tell=stop_after(10))
        change_state(tmp_path / "run/frozen/epoch-0/checkpoints/step-00000010", encoder="0" * 64)
        with pytest.raises(QuothError, match="the encoder has changed since it was written; use another --out"):
            train(recipe, tmp_path / "run", device="cpu")


@pytest.fixture(scope="module")
def processes():
    """Processes that are forked from one that has imported torch already, with one thread."""
    before = os.environ.get("OMP_NUM_THREADS")
    os.environ["OMP_NUM_THREADS"] = "1"
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["quoth.train"])
    yield context
    if before is None:
        del os.environ["OMP_NUM_THREADS"]
    else:
        os.environ["OMP_NUM_THREADS"] = before


SEED = 20261115


@pytest.mark.slow
def test_kills_in_every_part(lively, staged, tmp_path, processes):
    """SIGKILL while the encoder is trained, while heads are, while they are saved, and between two stages."""
    recipe = make_recipe({**frozen_table(lively, HEADS), "checkpoints": {"seconds": 0}})
    place, drawn = tmp_path / "run", random.Random(SEED)
    stages = [place / f"frozen/epoch-{at}" for at in AT]
    moments = [
        ("the encoder", lambda: kept(place, 4)),
        ("the first stage", lambda: kept(stages[0], 9)),
        ("saving heads", lambda: stages[0].glob("*/*model*")),  # the folder, or the part that will be it
        ("between stages", lambda: stages[0].glob("metrics.json")),
        ("the second stage", lambda: kept(stages[1], 6)),
        ("the last stage", lambda: kept(stages[2], 2)),
        ("the end", lambda: stages[2].glob("*/*model*")),
    ]
    for what, found in moments:
        training = what not in ("saving heads", "between stages", "the end")
        before = set(found()) if training else set()
        process = processes.Process(target=train, args=(recipe, place), kwargs={"device": "cpu"})
        process.start()
        while process.is_alive() and not set(found()) - before:
            time.sleep(0.0005)
        time.sleep(drawn.uniform(0, 0.05) if training else 0)
        with suppress(ProcessLookupError):
            os.kill(process.pid, signal.SIGKILL)
        process.join()
        print(f"{what}: {process.exitcode}, {[path.name for stage in (place, *stages) for path in kept(stage)]}")
        assert process.exitcode == -signal.SIGKILL or what == "the end"  # where a moment later there is nothing to kill
    train(recipe, place, device="cpu")
    assert_same_runs(place, staged.folder)


def kept(folder, least=0):
    """The checkpoints from step `least` on."""
    return [path for path in (folder / "checkpoints").glob("step-*") if int(path.name[5:]) >= least]
