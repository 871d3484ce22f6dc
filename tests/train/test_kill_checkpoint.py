"""A kill at every call of the system while a checkpoint is written: the run goes on from the old one or the new one."""

import os
import shutil

import pytest

from quoth.train import training
from quoth.train.recipe import make_recipe
from quoth.train.training import Interrupted
from support.killing import die_at
from train.material import assert_same_weights, losses, stop_after, table, train

pytestmark = pytest.mark.slow


def dies_writing(recipe, run, limit):
    """Go on with a run in a process that dies at this call of its next checkpoint. Whether it did."""
    child = os.fork()
    if child == 0:
        status = 1
        try:
            write = training.write_checkpoint

            def write_and_die(*arguments):
                die_at(limit)
                write(*arguments)
                os._exit(0)  # all calls were made, so the last limit was the last call

            training.write_checkpoint = write_and_die
            train(recipe, run, device="cpu")
        finally:
            os._exit(status)
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    assert status in (0, 9), status
    return status == 9


def test_a_kill_at_any_call_of_a_checkpoint(material, tmp_path):
    recipe = make_recipe(table(material.model, material.train, checkpoints={"seconds": 0}))
    train(recipe, tmp_path / "whole", device="cpu")
    with pytest.raises(Interrupted):
        train(recipe, tmp_path / "begun", device="cpu", tell=stop_after(10))
    assert len(list((tmp_path / "begun/checkpoints").iterdir())) == 2  # the older one is removed when a third is there
    limit, begun_at, died = 0, set(), True
    while died:
        limit += 1
        run, told = tmp_path / "run", []
        shutil.copytree(tmp_path / "begun", run)
        died = dies_writing(recipe, run, limit)
        train(recipe, run, device="cpu", tell=told.append)
        begun_at.add(told[0])
        assert_same_weights(run / "model", tmp_path / "whole/model")
        assert losses(run) == losses(tmp_path / "whole")
        left = [path.name for path in run.rglob(".*") if path.name != ".lock"]
        assert not left, (limit, left)
        shutil.rmtree(run)
    print(f"{limit - 1} calls, each a kill")
    assert begun_at == {"going on from step 10 of 17", "going on from step 11 of 17"}
    assert limit > 20
