"""A sweep that is killed ten times at random moments comes to the same table, bit for bit but for times."""

import os
import random
import signal
import time
from contextlib import suppress

import pytest

from experiments.sweep_material import results, start_sweep, states, sweep, write_grid
from train.conftest import material as material

SEED = 22
GRID = """
seeds = [0, 1]
[runs.all]
[runs.heads]
tuning = {kind = "freeze", layers = 1}
frozen.heads.lp = "pool(learned) > linear"
"""


@pytest.mark.slow
def test_ten_kills(material, tmp_path):
    grid = write_grid(tmp_path, material, GRID, epochs=7.0, checkpoints={"seconds": 0.0})
    assert sweep(grid, "--out", tmp_path / "whole").returncode == 0
    out, drawn = tmp_path / "out", random.Random(SEED)
    finished, killed = [], 0
    while killed < 10 and (not finished or finished[-1] < 4):
        process = start_sweep(grid, "--out", out)
        time.sleep(drawn.uniform(2, 11))
        if process.poll() is None:
            killed += 1
        with suppress(ProcessLookupError):
            # only the sweep, not its runs: these end by themselves, since nobody holds their standard input
            os.kill(process.pid, signal.SIGKILL)
        process.communicate()
        finished.append(len(results(out)) if out.exists() else 0)
        assert finished == sorted(finished), "a finished run is never lost"
    assert killed == 10, "the sweep came to its end: there was too little to do"
    assert finished[-1] > 0, "some kills fell before the first run had finished, some after it"
    print(f"seed {SEED}: {killed} kills, finished after each: {finished}")
    last = sweep(grid, "--out", out)
    assert last.returncode == 0, last.stderr
    assert set(states(out).values()) == {"finished"}
    assert results(out) == results(tmp_path / "whole")
    left = [path.name for path in out.rglob(".*") if path.name != ".lock"]
    assert not left, "nothing half-written stays"
