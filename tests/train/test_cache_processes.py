"""Cached stages that are killed, and that two processes share."""

import multiprocessing
import os
import signal
import subprocess
import sys
import time
from contextlib import suppress

import pytest

from quoth.train.recipe import make_recipe
from train.cache_material import HEADS, assert_same_stages, recipe
from train.material import environment, farthest, train


@pytest.mark.slow
def test_kills(lively, cached, tmp_path, monkeypatch):
    """SIGKILL while the file is written, while heads are trained on it, and while they are saved."""
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    processes = multiprocessing.get_context("forkserver")
    processes.set_forkserver_preload(["quoth.train"])
    made = make_recipe({**recipe(lively), "checkpoints": {"seconds": 0}})
    place = tmp_path / "run"
    stage = place / "frozen/epoch-0"
    moments = [
        lambda: stage.glob(".cache.*.part/states.bin"),
        lambda: stage.glob("checkpoints/step-0000001*"),
        lambda: stage.glob("*/*model*"),
    ]
    for found in moments:
        process = processes.Process(target=train, args=(made, place), kwargs={"device": "cpu"})
        process.start()
        while process.is_alive() and not list(found()):
            time.sleep(0.0005)
        with suppress(ProcessLookupError):
            os.kill(process.pid, signal.SIGKILL)
        process.join()
        assert process.exitcode == -signal.SIGKILL
    train(made, place, device="cpu")
    assert_same_stages(stage, cached.stage)
    assert not [path for path in place.rglob(".*") if path.name != ".lock"]


@pytest.mark.slow
def test_two_processes(lively, tmp_path):
    """One computes the states, both read them: the heads of one process, but for the order of sums."""
    heads = {name: head for name, head in HEADS.items() if name != "noisy"}  # dropout differs by process
    made = make_recipe(recipe(lively, heads, learning_rate=1e-4, adam_epsilon=1e-6))
    path = tmp_path / "recipe.toml"
    path.write_text(made.to_toml())
    launcher = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2", "--standalone", "-m", "quoth"]
    words = [*launcher, "train", path, "--out", tmp_path / "two"]
    result = subprocess.run(words, capture_output=True, text=True, timeout=300, check=False, env=environment())
    assert result.returncode == 0, result.stderr
    assert (result.stdout + result.stderr).count("computing the states of 133 windows once") == 1
    train(made, tmp_path / "one", device="cpu")
    for name in heads:
        model = f"frozen/epoch-0/{name}/model"
        assert farthest(tmp_path / "one" / model, tmp_path / "two" / model) < 1e-5
    assert not (tmp_path / "two/frozen/epoch-0/cache").exists()
