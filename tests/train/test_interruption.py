"""Signals, full disks, and what a run folder refuses."""

import json
import os
import resource
import shutil
import signal
import time
from contextlib import contextmanager
from types import SimpleNamespace

import pytest
from safetensors.torch import load_file, save_file

from quoth.errors import QuothError
from quoth.train.guard import Stop
from quoth.train.log import Log, Status
from quoth.train.recipe import make_recipe, read_recipe
from quoth.train.run_folder import RunFolder
from quoth.train.training import Interrupted
from train.material import (
    assert_same_weights,
    change_state,
    checkpoint,
    log_lines,
    losses,
    make_questions,
    make_recipe_file,
    quoth,
    start,
    stop_after,
    table,
    train,
    write_state,
)


@contextmanager
def small_disk(size):
    """No file may grow beyond `size` bytes. Python turns what the system then says into an OSError."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


@pytest.fixture(scope="module")
def story(material, tmp_path_factory):
    """A run that was stopped with SIGTERM and went on, beside one that was not, through the real command line."""
    folder = tmp_path_factory.mktemp("story")
    made = table(material.model, material.train, material.dev, optimisation={"epochs": 12.0}, evaluation={"at": [1, 4]})
    recipe, run = make_recipe_file(folder / "recipe.toml", made), folder / "run"
    first = start("train", recipe, "--out", run)
    while first.poll() is None and not ((run / "log.jsonl").exists() and log_lines(run)):
        time.sleep(0.001)
    with pytest.raises(QuothError) as beside:
        train(make_recipe(made), run, device="cpu")
    os.kill(first.pid, signal.SIGTERM)
    told = first.communicate(timeout=300)
    state = checkpoint(run)
    undisturbed = start("train", recipe, "--out", folder / "whole")
    threads = quoth("train", recipe, "--out", run, env={"OMP_NUM_THREADS": "2"})
    kept = checkpoint(run)
    last = quoth("train", recipe, "--out", run)
    assert undisturbed.wait(timeout=300) == 0
    undisturbed.communicate()
    return SimpleNamespace(
        recipe=recipe,
        run=run,
        whole=folder / "whole",
        beside=str(beside.value),
        stopped=(first.returncode, *told),
        state=state,
        threads=threads,
        kept=kept,
        last=last,
    )


@pytest.mark.slow
class TestTerminated:
    def test_it_says_so(self, story):
        code, out, err = story.stopped
        assert (code, out) == (143, "")
        assert 10 <= story.state["step"] < 204
        assert err.splitlines()[-1] == (
            f"quoth: stopped at step {story.state['step']} of 204; the same command goes on from there"
        )

    def test_the_same_command_goes_on_to_the_same_weights(self, story):
        assert story.last.returncode == 0
        assert story.last.stderr.splitlines()[0] == f"going on from step {story.state['step']} of 204"
        assert_same_weights(story.run / "model", story.whole / "model")
        assert losses(story.run) == losses(story.whole)
        assert [step for step, _ in losses(story.run)] == [*range(10, 204, 10), 204]
        scores = [[line for line in log_lines(run) if "evaluation" in line] for run in (story.run, story.whole)]
        for mine, theirs in zip(*scores, strict=True):
            del mine["evaluation"]["seconds"], theirs["evaluation"]["seconds"]
            assert mine == theirs
        assert not (story.run / "checkpoints").exists()

    def test_another_number_of_threads_is_refused(self, story):
        assert story.threads.returncode == 2
        (line,) = story.threads.stderr.splitlines()
        assert "was written with threads = 1, and this run has 2" in line
        assert "set OMP_NUM_THREADS=1" in line
        assert story.kept == story.state  # and the checkpoint is as it was

    def test_a_second_process_is_refused(self, story, cli):
        assert story.beside == (f"{story.run}: another process is training there; wait for it, or choose another --out")

    def test_a_finished_run_tells_again_and_trains_nothing(self, story, cli):
        before = {path: path.stat().st_mtime_ns for path in story.run.rglob("*") if path.name != ".lock"}
        result = cli("train", story.recipe, "--out", story.run, "--json")
        assert result.returncode == 0
        assert json.loads(result.stdout) == json.loads((story.run / "metrics.json").read_text())
        assert {path: path.stat().st_mtime_ns for path in before} == before

    def test_another_recipe_is_refused(self, story, cli):
        result = cli("train", story.recipe, "optimisation.learning_rate=2e-3", "--out", story.run)
        assert result.returncode == 2
        assert result.stderr == (
            f"quoth: {story.run}: holds a run of another recipe "
            "(there, here: optimisation.learning_rate: 0.001, 0.002); choose another --out, or remove it\n"
        )


TUNINGS = [
    ({"kind": "full"}, {"kind": "span"}, {"gradient_accumulation_steps": 2}),
    pytest.param(
        {"kind": "adapters", "size": 4},
        {"kind": "span"},
        {"schedule": "cosine", "restarts": 1},
        marks=pytest.mark.slow,
    ),
    pytest.param(
        {"kind": "freeze", "layers": 1, "norms": "above"},
        {"kind": "cacnn", "width": 3, "filters": 8},
        {"batch_tokens": 333},
        marks=pytest.mark.slow,
    ),
    pytest.param({"kind": "lora", "rank": 2}, {"kind": "span"}, {"precision": "bf16"}, marks=pytest.mark.slow),
]


class TestStopped:
    """The same inside one process, for all kinds of runs."""

    @pytest.mark.parametrize(("tuning", "head", "optimisation"), TUNINGS)
    def test_every_kind_of_run_resumes_exactly(self, material, tmp_path, tuning, head, optimisation):
        made = table(material.model, material.train, material.dev, tuning=tuning, head=head)
        made["optimisation"] |= {"epochs": 1.5, **optimisation}
        if "batch_tokens" in optimisation:
            del made["optimisation"]["batch_size"]
        recipe = make_recipe(made)
        for moment in (10, 20):
            with pytest.raises(Interrupted, match=f"stopped at step {moment} of "):
                train(recipe, tmp_path / "run", device="cpu", tell=stop_after(moment))
            assert checkpoint(tmp_path / "run")["step"] == moment
        facts = train(recipe, tmp_path / "run", device="cpu")
        whole = train(recipe, tmp_path / "whole", device="cpu")
        assert_same_weights(tmp_path / "run/model", tmp_path / "whole/model")
        assert losses(tmp_path / "run") == losses(tmp_path / "whole")
        assert (facts["windows"], facts["quality"]) == (whole["windows"], whole["quality"])

    def test_between_two_lines_of_the_log_too(self, material, tmp_path):
        """The loss since the last line is kept in the checkpoint."""
        recipe = make_recipe(table(material.model, material.train, material.dev, evaluation={"at": [0.2, 0.8]}))
        for _ in range(2):  # an evaluation is told of at steps 3 and 14
            with pytest.raises(Interrupted):
                train(recipe, tmp_path / "run", device="cpu", tell=_at_evaluation)
        assert checkpoint(tmp_path / "run")["step"] == 14
        train(recipe, tmp_path / "run", device="cpu")
        train(recipe, tmp_path / "whole", device="cpu")
        assert losses(tmp_path / "run") == losses(tmp_path / "whole")
        assert_same_weights(tmp_path / "run/model", tmp_path / "whole/model")

    @pytest.mark.usefixtures("interruptible")
    def test_ctrl_c(self, material, tmp_path, cli, monkeypatch):
        recipe = make_recipe_file(tmp_path / "r.toml", table(material.model, material.train))
        monkeypatch.setattr("quoth.cli.train._line", lambda status: str(os.kill(os.getpid(), signal.SIGINT)))
        monkeypatch.setattr("quoth.cli.train.PAUSE", 0.0)
        result = cli("train", recipe, "--out", tmp_path / "run")
        assert result.returncode == 130
        assert "stopped at step 10 of 17" in result.stderr

    @pytest.fixture
    def interruptible(self):
        """SIGINT as in a foreground job: a background one may ignore it."""
        before = signal.signal(signal.SIGINT, signal.default_int_handler)
        yield
        signal.signal(signal.SIGINT, before)

    @pytest.mark.usefixtures("interruptible")
    def test_a_second_signal_ends_at_once(self):
        stop = Stop()

        def twice():
            with stop:
                os.kill(os.getpid(), signal.SIGINT)
                assert stop.signal == signal.SIGINT
                os.kill(os.getpid(), signal.SIGINT)

        with pytest.raises(KeyboardInterrupt):
            twice()
        assert signal.getsignal(signal.SIGINT) is signal.default_int_handler

    def test_a_signal_that_is_ignored_stays_so(self):
        """`nohup quoth train … &`: who started the job wants it left alone."""
        before = signal.signal(signal.SIGINT, signal.SIG_IGN)
        try:
            with Stop() as stop:
                os.kill(os.getpid(), signal.SIGINT)
                assert stop.signal == 0
            assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN
        finally:
            signal.signal(signal.SIGINT, before)

    def test_at_the_last_step_it_just_ends(self, material, tmp_path):
        recipe = make_recipe(table(material.model, material.train))
        assert train(recipe, tmp_path / "run", device="cpu", tell=stop_after(17))["steps"] == 17


def _at_evaluation(news):
    if isinstance(news, str) and news.startswith("epoch"):
        os.kill(os.getpid(), signal.SIGTERM)


class TestFullDisk:
    @pytest.fixture
    def recipe(self, material, tmp_path):
        made = table(material.model, material.train, material.dev, checkpoints={"seconds": 0})
        return make_recipe_file(tmp_path / "r.toml", made)

    @pytest.fixture
    def run(self, recipe, tmp_path):
        """A run that stands at step 10."""
        with pytest.raises(Interrupted):
            train(read_recipe(recipe), tmp_path / "run", device="cpu", tell=stop_after(10))
        return tmp_path / "run"

    def goes_on(self, recipe, run, cli):
        assert cli("train", recipe, "--out", run).returncode == 0
        train(read_recipe(recipe), run.parent / "whole", device="cpu")
        assert_same_weights(run / "model", run.parent / "whole/model")
        assert losses(run) == losses(run.parent / "whole")
        assert not list(run.rglob(".*.part"))

    @pytest.mark.parametrize(  # a checkpoint has 12 MB
        "size",
        [pytest.param(100_000, marks=pytest.mark.slow), 4_000_000, pytest.param(11_000_000, marks=pytest.mark.slow)],
    )
    def test_no_room_for_a_checkpoint(self, recipe, run, cli, size):
        with small_disk(size):
            result = cli("train", recipe, "--out", run)
        assert result.returncode == 2
        assert result.stdout == ""
        told, line = result.stderr.splitlines()
        assert told == "going on from step 10 of 17"
        assert f"{run}/checkpoints/step-00000011: could not be written (" in line
        assert "File too large" in line
        assert checkpoint(run)["step"] == 10  # the last good one, and nothing beside it
        assert not list(run.rglob(".*.part"))
        self.goes_on(recipe, run, cli)

    def test_no_room_for_the_model(self, material, tmp_path, cli):
        recipe = make_recipe_file(tmp_path / "r.toml", table(material.model, material.train, material.dev))
        with small_disk(1_000_000):
            result = cli("train", recipe, "--out", tmp_path / "run")
        assert result.returncode == 2
        assert f"{tmp_path}/run/model/model.safetensors: could not be written (" in result.stderr.splitlines()[-1]
        assert not (tmp_path / "run/metrics.json").exists()
        assert not (tmp_path / "run/model").exists()
        self.goes_on(recipe, tmp_path / "run", cli)

    def test_no_room_for_the_log(self, tmp_path):
        log = Log(tmp_path, 0)
        log.status(Status(10, 20, 0.5, 1.0, 1e-3, 100.0, 1.0))
        with (
            small_disk((tmp_path / "log.jsonl").stat().st_size + 30),
            pytest.raises(OSError, match="too large") as raised,
        ):
            log.status(Status(20, 20, 1.0, 1.0, 1e-3, 100.0, 2.0))
        assert raised.value.filename == str(tmp_path / "log.jsonl")
        Log(tmp_path, 20)  # the line that was cut short is dropped when the run resumes
        assert [line["step"] for line in log_lines(tmp_path)] == [10]


ODD = {
    "null": None,
    "a list": [],
    "step is missing": {"step": ...},
    "windows is missing": {"windows": ...},
    "loss_steps is missing": {"loss_steps": ...},
    "step is a text": {"step": "10"},
    "step is negative": {"step": -1},
    "another step": {"step": 9},
    "windows is 1.5": {"windows": 1.5},
    "loss_steps is null": {"loss_steps": None},
    "seconds is a text": {"seconds": "x"},
    "evaluations is a number": {"evaluations": 3},
    "an evaluation without a step": {"evaluations": [{"epoch": 1.0}]},
    "an evaluation that is null": {"evaluations": [None]},
}


class TestRefused:
    """What would not go on exactly does not go on."""

    @pytest.fixture
    def place(self, material, tmp_path):
        """A run of adapters that stands at step 10, with model and data of its own."""
        shutil.copytree(material.model, tmp_path / "model")
        shutil.copyfile(material.train, tmp_path / "train.json")
        made = table(tmp_path / "model", tmp_path / "train.json", tuning={"kind": "adapters", "size": 4})
        recipe = make_recipe_file(tmp_path / "r.toml", made)
        with pytest.raises(Interrupted):
            train(read_recipe(recipe), tmp_path / "run", device="cpu", tell=stop_after(10))
        return SimpleNamespace(
            recipe=recipe, run=tmp_path / "run", command=("train", recipe, "--out", tmp_path / "run")
        )

    def refused(self, place, cli, culprit):
        before = checkpoint(place.run)
        result = cli(*place.command)
        assert result.returncode == 2
        (line,) = result.stderr.splitlines()
        assert culprit in line
        assert checkpoint(place.run) == before

    def test_other_data(self, place, cli, tmp_path):
        kept = (tmp_path / "train.json").read_text()
        make_questions(tmp_path / "train.json", seed=3)
        self.refused(place, cli, "step-00000010: the data has changed since it was written; use another --out")
        (tmp_path / "train.json").write_text(kept)
        assert cli(*place.command).returncode == 0

    def test_another_model_below(self, place, cli, tmp_path):
        path = tmp_path / "model/model.safetensors"
        weights = load_file(path)
        weights["encoder.layer.0.intermediate.dense.weight"][0, 0] += 1
        save_file(weights, path, metadata={"format": "pt"})
        self.refused(place, cli, "step-00000010: the model has changed since it was written; use another --out")

    @pytest.mark.parametrize("name", ["state.safetensors", "state.json", "hashes.json"])
    def test_a_flipped_bit_in_the_only_checkpoint(self, place, cli, name):
        path = place.run / "checkpoints/step-00000010" / name
        kept = bytearray(path.read_bytes())
        kept[len(kept) // 2] ^= 1
        path.write_bytes(kept)
        result = cli(*place.command)
        assert result.returncode == 2
        assert f"{path.parent}: damaged" in result.stderr
        assert f"remove {path.parent.parent} to begin anew" in result.stderr
        shutil.rmtree(path.parent)
        assert cli(*place.command).returncode == 0

    def test_a_damaged_checkpoint_falls_back_to_the_one_before(self, place, cli):
        last = place.run / "checkpoints/step-00000010"
        shutil.copytree(last, last.parent / "step-00000099")
        (last.parent / "step-00000099/state.safetensors").write_bytes(b"short")
        result = cli(*place.command)
        assert result.returncode == 0, result.stderr
        assert "step-00000099: damaged, so it is passed over" in result.stderr
        assert "going on from step 10" in result.stderr

    @pytest.mark.parametrize("change", ODD.values(), ids=ODD)
    def test_a_state_that_is_not_ours(self, place, cli, change):
        """Its hash is right and its content is not: it counts as damaged."""
        folder = place.run / "checkpoints/step-00000010"
        state = json.loads((folder / "state.json").read_text())
        merged = {**state, **change} if isinstance(change, dict) else change
        kept = {key: value for key, value in merged.items() if value is not ...} if isinstance(merged, dict) else merged
        write_state(folder, kept)
        result = cli(*place.command)
        assert (result.returncode, "Traceback" in result.stderr) == (2, False)
        assert f"{folder}: damaged" in result.stderr.splitlines()[-1]

    def test_states_that_are_not_ours(self, place, cli):
        folder = place.run / "checkpoints/step-00000010"
        path = folder / "state.safetensors"
        whole = load_file(path)
        name = next(key for key in whole if key.startswith("exp_avg."))
        for changed in (
            {key: value for key, value in whole.items() if key != "loss_sum"},
            {key: value for key, value in whole.items() if key != name},
            {**whole, name: whole[name][:1].clone()},
        ):
            save_file(changed, path)
            write_state(folder, json.loads((folder / "state.json").read_text()))
            self.refused(place, cli, "it belongs to another model")
        path.write_bytes(b"x" * 100)
        write_state(folder, json.loads((folder / "state.json").read_text()))
        result = cli(*place.command)
        assert (result.returncode, result.stderr.count("\n")) == (2, 1)
        assert f"{path}: not a safetensors file" in result.stderr

    def test_a_folder_in_use(self, place, cli):
        with RunFolder(place.run).held():
            self.refused(place, cli, "another process is training there")
        assert cli(*place.command).returncode == 0

    @pytest.mark.parametrize(
        ("key", "value", "hint"),
        [
            ("processes", 2, "launch 2 process(es)"),
            ("device", "cuda", "run it on cuda"),
            ("threads", 7, "OMP_NUM_THREADS=7"),
        ],
    )
    def test_another_environment(self, place, cli, key, value, hint):
        change_state(place.run / "checkpoints/step-00000010", **{key: value})
        self.refused(place, cli, hint)
