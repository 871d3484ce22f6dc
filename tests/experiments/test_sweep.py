"""Sweeps: plans and their counts, runs that fail, what may change between two calls, what is done once."""

import json
import signal
import time
from dataclasses import asdict

import pytest

from experiments.sweep_material import results, start_sweep, states, sweep, write_grid
from quoth.errors import QuothError
from quoth.experiments.grid import read_grid
from quoth.experiments.sizes import sizes_of
from quoth.experiments.sweep import sweep as run_sweep
from quoth.experiments.sweep_plan import plan_facts
from quoth.experiments.sweep_process import Place, RunProcess, _environment
from quoth.experiments.sweep_record import SweepRun, merge_runs, read_sweep, write_sweep
from quoth.experiments.time_left import run_seconds, seconds_left
from quoth.recipes import find_recipe
from quoth.train import make_recipe, read_recipe, train
from quoth.train.run_folder import RunFolder
from train.conftest import material as material
from train.conftest import one_thread as one_thread
from train.material import table

BERT = {
    "model_type": "bert", "vocab_size": 28996, "hidden_size": 768, "num_hidden_layers": 12, "num_attention_heads": 12,
    "intermediate_size": 3072, "max_position_embeddings": 512, "type_vocab_size": 2, "hidden_act": "gelu",
    "layer_norm_eps": 1e-12,
}  # fmt: skip
HULBURD = {  # tables 1 and 2; L0-A64 with the head, which the paper left out
    "l0": 39_938,
    "l1": 7_124_738,
    "l3": 21_294_338,
    "l6": 42_548_738,
    "l12": 108_311_810,
    "l0-a64": 2_419_202,
    "l12-a64": 110_691_074,
    "l0-a768": 28_388_354,
}


@pytest.mark.parametrize(("name", "trainable"), HULBURD.items())
def test_counts_without_weights_are_the_published_ones(name, trainable, tmp_path):
    (tmp_path / "config.json").write_text(json.dumps(BERT))
    found = sizes_of(read_recipe(find_recipe(f"hulburd/{name}"), [f"model={tmp_path}"]))
    adapters = {"l0-a64": 64, "l12-a64": 64, "l0-a768": 768}.get(name, 0)
    inserted = 24 * (2 * 768 * adapters + adapters + 768) if adapters else 0
    assert (found.trainable, found.total) == (trainable, 108_311_810 + inserted)


@pytest.fixture(scope="module")
def whole(material, tmp_path_factory):
    """A sweep that nobody interrupts: two methods, one with heads, and one run that must fail."""
    folder = tmp_path_factory.mktemp("sweep")
    text = """
        seeds = [3]
        [runs.all]
        [runs.heads]
        tuning = {kind = "freeze", layers = 1}
        frozen.heads.lp = "pool(learned) > linear"
        [runs.broken]
        model = "no/such/model"
        """
    grid = write_grid(folder, material, text)
    plan = plan_facts(read_grid(grid), folder / "out")
    assert not (folder / "out").exists()
    return folder, grid, plan, sweep(grid, "--out", folder / "out", "--jobs", "2", "--json")


def test_a_plan_tells_the_sizes_and_writes_nothing(whole):
    folder, _, plan, done = whole
    facts = json.loads(done.stdout)
    assert [run["state"] for run in plan["runs"]] == ["waiting"] * 3
    assert plan["seconds_left"] is None, "nothing is known before a run has finished"
    for planned, run in zip(plan["runs"][:2], facts["runs"]):
        for key in ("folder", "trainable_parameters", "total_parameters"):
            assert planned[key] == run[key]
    heads = json.loads((folder / "out/heads-seed3/metrics.json").read_text())["frozen"]["1"]["heads"]
    assert plan["runs"][1]["heads"] == {"lp": heads["lp"]["parameters"]}
    assert "no/such/model" in plan["runs"][2]["error"]


def test_a_plan_for_people(whole, cli, monkeypatch):
    """At 80 columns every number is whole."""
    folder, grid, plan, _ = whole
    monkeypatch.setenv("COLUMNS", "80")
    said = cli("sweep", grid, "--out", folder / "elsewhere", "--dry-run")
    assert said.returncode == 0, said.stderr
    assert not (folder / "elsewhere").exists()
    for run in plan["runs"][:2]:
        assert f"{run['trainable_parameters']:,}" in said.stdout
        assert f"{run['total_parameters']:,}" in said.stdout
    assert "no/such/model: no such file or folder" in said.stdout
    assert "3 runs, 0 finished; time left, one at a time: unknown, since no run has finished" in said.stdout


def test_a_failing_run_is_told_and_does_not_stop_the_rest(whole):
    folder, _, _, done = whole
    facts = json.loads(done.stdout)
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1] == "quoth: 1 of 3 runs failed; the same command tries them again"
    assert [run["state"] for run in facts["runs"]] == ["finished", "finished", "failed"]
    assert "no/such/model" in facts["runs"][2]["error"]
    assert "\n" not in facts["runs"][2]["error"]
    assert states(folder / "out") == {"all-seed3": "finished", "heads-seed3": "finished", "broken-seed3": "failed"}


def test_questions_are_tokenised_once(whole):
    """Two files, of training and evaluation, for all runs; a run alone gives the same bits."""
    folder, _, _, _ = whole
    assert len(list((folder / "out/windows").iterdir())) == 2
    alone = folder / "alone"
    train(read_recipe(folder / "out/all-seed3/recipe.toml"), alone / "all-seed3", device="cpu")
    assert results(alone)["all-seed3"] == results(folder / "out")["all-seed3"]


def test_teachers_share_a_folder_unless_one_is_named(material, tmp_path):
    made = table(material.model, material.train, teachers=["t"])
    for named, wanted in (("", str((tmp_path / "teacher-logits").resolve())), ("mine", "mine")):
        recipe = asdict(make_recipe({**made, "distillation": {"cache_folder": named}}))
        run = SweepRun("r", "r", 0, json.loads(json.dumps(recipe)))
        assert run.full_recipe(tmp_path).distillation.cache_folder == wanted
        assert run.recipe["distillation"]["cache_folder"] == named, "the record does not depend on where the sweep lies"


@pytest.mark.slow
def test_a_teacher_is_asked_once(whole, material, tmp_path):
    """Two seeds: one file of logits, which the first run computes and the second finds."""
    folder, _, _, _ = whole
    grid = write_grid(tmp_path, material, "seeds = [0, 1]", teachers=[str(folder / "out/all-seed3/model")])
    done = sweep(grid, "--out", tmp_path / "out")
    assert done.returncode == 0, done.stderr
    assert len(list((tmp_path / "out/teacher-logits").iterdir())) == 1
    assert not list((tmp_path / "out").glob("base-seed*/teacher-logits"))
    assert done.stderr.count("computing the logits of") == 1


def test_finished_runs_are_not_repeated_and_runs_may_be_added(whole):
    folder, grid, _, _ = whole
    out = folder / "out"
    times = {name: (out / name / "metrics.json").stat().st_mtime_ns for name in ("all-seed3", "heads-seed3")}
    text = grid.read_text().split("[runs.broken]")[0]
    more = grid.with_name("more.toml")
    more.write_text(grid.read_text().replace("seeds = [3]", "seeds = [3, 4]"))
    plan = merge_runs(out, read_grid(more))
    assert [run.state for run in plan] == ["finished", "waiting", "finished", "waiting", "failed", "waiting"]
    left = merge_runs(out, read_grid(more))[1]
    assert run_seconds(left, plan) == plan[0].seconds > 0
    more.write_text(text)
    with pytest.raises(QuothError, match="has a run broken-seed3, which the grid has not"):
        merge_runs(out, read_grid(more))
    with pytest.raises(QuothError) as error:
        run_sweep(read_grid(grid, ["optimisation.learning_rate=0.5"]), out, device="cpu")
    assert "the run all-seed3 has changed (there, in the grid: optimisation.learning_rate: 0.001, 0.5)" in str(
        error.value
    )
    assert {name: (out / name / "metrics.json").stat().st_mtime_ns for name in times} == times


def test_a_folder_with_other_things_is_refused(material, tmp_path):
    grid = write_grid(tmp_path, material)
    (tmp_path / "out").mkdir()
    (tmp_path / "out/thesis.txt").write_text("mine")
    with pytest.raises(QuothError, match=r"exists and is not a sweep folder \(it has thesis.txt\)"):
        run_sweep(read_grid(grid), tmp_path / "out", device="cpu")
    assert [path.name for path in (tmp_path / "out").iterdir() if path.name != ".lock"] == ["thesis.txt"]


@pytest.mark.slow
def test_a_sweep_that_cannot_go_on_ends_its_runs(material, tmp_path):
    """Such as where sweep.json cannot be written: the error is told, and no run is left behind."""
    grid = write_grid(tmp_path, material, "seeds = [0, 1, 2]", epochs=2000.0)
    seen = []

    def tell(board, line):
        seen.append(board.count("running"))
        if board.status:
            raise OSError(28, "No space left on device", "sweep.json")

    with pytest.raises(OSError, match="No space left"):
        run_sweep(read_grid(grid), tmp_path / "out", device="cpu", jobs=2, tell=tell)
    assert max(seen) == 2
    for seed in (0, 1):
        with RunFolder(tmp_path / f"out/base-seed{seed}").held():  # nobody works there any more
            pass
    assert not (tmp_path / "out/base-seed2").exists()


@pytest.mark.slow
def test_interrupted_politely(material, tmp_path):
    """SIGTERM: the run writes a checkpoint, the sweep ends with the signal's code, and goes on from there."""
    grid = write_grid(tmp_path, material, epochs=40.0)
    out = tmp_path / "out"
    process = start_sweep(grid, "--out", out)
    deadline = time.monotonic() + 120
    while not (out / "base-seed0/log.jsonl").exists() and time.monotonic() < deadline:
        time.sleep(0.01)
    process.send_signal(signal.SIGTERM)
    _, said = process.communicate(timeout=120)
    assert process.returncode == 128 + signal.SIGTERM, said
    assert said.splitlines()[-1] == "quoth: stopped; the same command goes on from there"
    assert list((out / "base-seed0/checkpoints").glob("step-*"))
    assert states(out) == {"base-seed0": "waiting"}


@pytest.mark.slow
def test_a_run_that_is_killed(material, tmp_path):
    """What the system kills is told with the signal."""
    run = SweepRun("r", "r", 0, json.loads(json.dumps(_recipe(material, epochs=2000.0))))
    process = RunProcess(tmp_path, run, Place("cpu"))
    while not (tmp_path / "r/log.jsonl").exists() and process._process.poll() is None:
        time.sleep(0.01)
    process._process.kill()
    ended = process.listen(lambda message: None)
    assert (ended.state, "signal 9" in ended.error) == ("failed", True)


@pytest.mark.slow
def test_a_run_that_is_stopped_before_it_listens(material, tmp_path):
    process = RunProcess(tmp_path, SweepRun("r", "r", 0, json.loads(json.dumps(_recipe(material, 1.0)))), Place("cpu"))
    process.stop()
    assert process.listen(lambda message: None).state == "waiting"


@pytest.mark.slow
def test_a_run_ends_with_its_sweep(material, tmp_path):
    """If the sweep dies, the end of standard input ends the run."""
    run = SweepRun("r", "r", 0, json.loads(json.dumps(_recipe(material, epochs=2000.0))))
    process = RunProcess(tmp_path, run, Place("cpu"))
    while not (tmp_path / "r/log.jsonl").exists() and process._process.poll() is None:
        time.sleep(0.01)
    process._process.stdin.close()
    assert process._process.wait(timeout=60) == 1


def _recipe(material, epochs):
    return asdict(make_recipe(table(material.model, material.train, optimisation={"epochs": epochs})))


@pytest.mark.parametrize(("named", "gpu", "wanted"), [("3,5", 1, "5"), ("", 1, "1"), ("GPU-ab", 0, "GPU-ab")])
def test_a_run_sees_its_gpu_alone(named, gpu, wanted, monkeypatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", named)
    assert _environment(Place("cuda", gpu))["CUDA_VISIBLE_DEVICES"] == wanted
    assert _environment(Place("cuda"))["CUDA_VISIBLE_DEVICES"] == named


def test_time_left_by_hand():
    runs = [
        SweepRun("a0", "a", 0, {}, "finished", 10.0),
        SweepRun("a1", "a", 1, {}, "finished", 20.0),
        SweepRun("a2", "a", 2, {}, "waiting"),
        SweepRun("b0", "b", 0, {}, "running"),
        SweepRun("c0", "c", 0, {}, "failed", 99.0),
    ]
    status = {"b0": {"seconds": 5.0, "seconds_left": 7.0}}
    assert run_seconds(runs[2], runs) == 15.0, "of its method"
    assert seconds_left(runs, status, 1) == 15.0 + 7.0
    assert seconds_left(runs, status, 8) == (15.0 + 7.0) / 2
    assert seconds_left(runs, {}, 1) == 15.0 + 15.0, "of all that have finished"
    assert seconds_left(runs[2:], status, 1) == 12.0 + 7.0, "by the pace of the running one"
    assert seconds_left(runs[2:3], {}, 1) is None


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("[]", "is not what Quoth writes there"),
        ('{"format": 9}', "format 9 is not 1"),
        (
            '{"format": 1, "runs": [{"folder": "../x", "method": "", "seed": 0, "recipe": {}}]}',
            "not the name of a folder",
        ),
        ('{"format": 1, "runs": [{"folder": "x"}]}', "runs.0.method is missing"),
        ("{", "not valid JSON"),
    ],
)
def test_a_changed_record_is_one_line(content, message, tmp_path):
    (tmp_path / "sweep.json").write_text(content)
    with pytest.raises(QuothError, match=message):
        read_sweep(tmp_path)


def test_the_record_reads_back(tmp_path):
    runs = [SweepRun("a-seed0", "a", 0, {"model": "m"}, "failed", 1.5, "no \ud800")]
    write_sweep(tmp_path, runs)
    assert read_sweep(tmp_path) == runs
