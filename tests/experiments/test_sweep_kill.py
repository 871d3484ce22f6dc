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
    drawn, killed, folders = random.Random(SEED), 0, 0
    while killed < 10:  # on a fast machine a sweep ends before it was killed ten times; then another one is killed
        killed += kill_until_it_ends(grid, tmp_path / f"out-{folders}", drawn, 10 - killed)
        assert results(tmp_path / f"out-{folders}") == results(tmp_path / "whole")
        folders += 1
    print(f"seed {SEED}: {killed} kills in {folders} sweeps")


def kill_until_it_ends(grid, out, drawn, most):
    """Kill a sweep at random moments, at least so often that a run has finished; then let it end. How many kills."""
    finished, killed = [], 0
    while (killed < most or not finished[-1]) and killed < 40:
        process = start_sweep(grid, "--out", out)
        time.sleep(drawn.uniform(2, 11))
        ended = process.poll() is not None
        with suppress(ProcessLookupError):
            # only the sweep, not its runs: these end by themselves, since nobody holds their standard input
            os.kill(process.pid, signal.SIGKILL)
        process.communicate()
        if ended:
            break
        killed += 1
        finished.append(len(results(out)) if out.exists() else 0)
        assert finished == sorted(finished), "a finished run is never lost"
    assert any(finished), "no run had finished before the last kill"
    last = sweep(grid, "--out", out)
    assert last.returncode == 0, last.stderr
    assert set(states(out).values()) == {"finished"}
    left = [path.name for path in out.rglob(".*") if path.name != ".lock"]
    assert not left, "nothing half-written stays"
    return killed
