"""Runs without their models: what stays can be compared, moved to another machine, and gone on with."""

import os
import shutil
import signal
import threading
import time
from dataclasses import asdict, replace

import pytest
from benchmarks.pack_runs import pack, unpack

from experiments.sweep_material import states, sweep, write_grid
from quoth.errors import QuothError
from quoth.experiments.grid import read_grid
from quoth.experiments.model_folders import remove_models
from quoth.experiments.run_results import read_results
from quoth.experiments.sweep import sweep as run_sweep
from quoth.experiments.sweep_record import merge_runs
from quoth.train.guard import Stop
from train.conftest import material as material

GRID = """
[runs.heads]
tuning = {kind = "freeze", layers = 1}
evaluation.snapshots = [0.5]
frozen.heads.lp = "pool(learned) > linear"
"""


@pytest.fixture(scope="module")
def done(material, tmp_path_factory):
    """A sweep of one run with a head, its models kept."""
    folder = tmp_path_factory.mktemp("models")
    grid = write_grid(folder, material, GRID)
    said = sweep(grid, "--out", folder / "out")
    assert said.returncode == 0, said.stderr
    return grid, folder / "out"


def weights(folder):
    return sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*.safetensors"))


def facts(folder):
    """All that `quoth compare` reads, but for where it lies."""
    found, _ = read_results([folder])
    return [
        asdict(replace(one, folder=one.folder.relative_to(folder), answers=one.answers.read_bytes())) for one in found
    ]


def test_models_go_and_the_comparison_stays(done, tmp_path):
    grid, out = done
    here = shutil.copytree(out, tmp_path / "out")
    assert len(weights(here)) == 3
    before = facts(here)
    assert all(one["costs"]["bytes"] > 0 for one in before)
    again = run_sweep(read_grid(grid), here, device="cpu", keep_models=False)
    assert [run.state for run in again] == ["finished"], "the runs that have finished are not repeated"
    assert weights(here) == []
    assert facts(here) == before


def test_what_is_not_ours_stays(done, tmp_path):
    run = shutil.copytree(done[1] / "heads-seed0", tmp_path / "run")
    (run / "model/notes.txt").write_text("mine")
    remove_models(run)
    assert (run / "model/notes.txt").exists()
    assert weights(run) == [f"model/{path.name}" for path in sorted((run / "model").glob("*.safetensors"))]
    (run / "metrics.json").unlink()
    remove_models(run)
    assert weights(run), "a run that has not finished keeps its models"


def test_a_packed_sweep_goes_on_elsewhere(done, tmp_path):
    """In parts that are small enough, finished runs alone; the paths of the machine are in no file."""
    grid, out = done
    here = shutil.copytree(out, tmp_path / "here/sweep")
    (here / "begun").mkdir()
    (here / "begun/log.jsonl").write_text("{}")
    files = pack(here, tmp_path / "packed", largest=6_000)
    assert len(files) > 1
    unpack(files, tmp_path / "there")
    there = tmp_path / "there/sweep"
    assert not weights(there)
    assert not (there / "begun").exists()
    assert facts(there) == facts(out)
    assert [run.state for run in merge_runs(there, read_grid(grid))] == ["finished"]
    with pytest.raises(QuothError, match="and no sweep"):
        pack(tmp_path, tmp_path / "packed")


@pytest.mark.slow
def test_no_models_on_the_command_line(material, tmp_path):
    grid = write_grid(tmp_path, material, GRID)
    said = sweep(grid, "--out", tmp_path / "out", "--no-models")
    assert said.returncode == 0, said.stderr
    assert states(tmp_path / "out") == {"heads-seed0": "finished"}
    assert weights(tmp_path / "out") == []


def test_two_signals_at_once_are_one():
    """`timeout` sends its signal to the process and to its group: the run must still write its checkpoint."""
    known = []

    def twice():
        for _ in range(2):
            os.kill(os.getpid(), signal.SIGTERM)
            time.sleep(0.02)

    before = signal.signal(signal.SIGTERM, lambda number, _: known.append(number))
    try:
        with Stop() as stop:
            sender = threading.Thread(target=twice)
            sender.start()
            sender.join()
            time.sleep(0.3)
            assert (stop.signal, known) == (signal.SIGTERM, [])
            os.kill(os.getpid(), signal.SIGTERM)
            time.sleep(0.01)
            assert known == [signal.SIGTERM], "a second request is passed on"
    finally:
        signal.signal(signal.SIGTERM, before)
