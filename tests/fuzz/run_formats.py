"""Targets: recipes, checkpoints, logs, metrics and the other files of runs."""

from __future__ import annotations

import json
import math
import tomllib
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch
from hypothesis import strategies as st
from safetensors.torch import save as tensor_bytes

from fuzz.case import Case, Target
from fuzz.hostile import Draw, changed, damage, encode, json_file, json_lines, toml
from fuzz.material import checkpoint, model_folders, with_hashes
from quoth.cli.analyse import _evaluated_on, _layer_weights
from quoth.experiments.build_reader import _seconds
from quoth.experiments.build_recipe import make_build_recipe, read_build_recipe
from quoth.experiments.compare import compare_results
from quoth.experiments.grid import read_grid
from quoth.experiments.run_results import read_results
from quoth.experiments.sweep_record import read_sweep, write_sweep
from quoth.prune.hpo import Search, open_study
from quoth.prune.metrics import CutMetrics, ModelMetrics, PruneMetrics, RoundMetrics
from quoth.prune.plan import make_cost
from quoth.prune.recipe import make_prune_recipe, read_prune_recipe
from quoth.recipes import find_recipe, recipe_names
from quoth.report.comparison_page import render_page
from quoth.report.comparison_tables import comparison_csv
from quoth.score.curves import read_curves
from quoth.train.cache import _wrong
from quoth.train.distillation import View
from quoth.train.log import Log
from quoth.train.metrics import StageMetrics, TrainMetrics, read_metrics, to_json
from quoth.train.recipe import make_recipe, read_recipe
from quoth.train.resume import read_checkpoint

RECIPES = {name: tomllib.loads(find_recipe(name).read_text()) for name in recipe_names()}
BUILD = [RECIPES["embedded"]]
PRUNE = [{**RECIPES["prune"], "model": "m"}, RECIPES["schubert/albert-e"]]
TRAIN = [
    table for name, table in RECIPES.items() if name not in ("embedded", "prune") and not name.startswith("schubert/")
]
KEYS = (
    "seed",
    "data.train",
    "data.task",
    "data.negatives",
    "tuning.kind",
    "head",
    "optimisation.epochs",
    "target.keep",
    "frozen.heads.lp.learning_rate",
    "a.b.c",
    "",
)


def recipes(tables: list[dict[str, Any]]) -> Any:
    """A recipe with changes, and overrides."""
    values, keys, signs = changed(*tables), st.sampled_from(KEYS), st.sampled_from(("=", "", "=="))
    given, counts = st.sampled_from(_VALUES), st.sampled_from((0, 0, 1, 2))

    @st.composite
    def one(draw: Draw) -> Case:
        text = toml(draw(values))
        overrides = [f"{draw(keys)}{draw(signs)}{draw(given)}" for _ in range(draw(counts))]
        return Case({"r.toml": encode(draw, text)}, tuple(overrides))

    return one()


_VALUES = (
    "1",
    "0.5",
    "[",
    "[" * 5000,
    "{a=" * 500,
    "9" * 5000,
    "nan",
    "'x'",
    '"\\ud800"',
    "a\nb = 3",
    "2020-01-01",
    "@",
    "\ud800",
    "span",
)


def _recipe(read: Any, make: Any) -> Any:
    """Read it; if it is sound, what is written out reads back as the same."""

    def run(folder: Path, case: Case) -> None:
        made = read(folder / "r.toml", case.arguments)
        if hasattr(made, "to_toml"):
            again = make(tomllib.loads(made.to_toml()))
            if again != made:
                raise AssertionError("the recipe as written is another one")

    return run


def run_recipe_of_run(folder: Path, _: Case) -> None:
    _evaluated_on(folder)


def fake_loop() -> Any:
    """A loop with one weight of 2×3, which a checkpoint is read into."""
    weight, optimiser = torch.zeros(2, 3), SimpleNamespace(state={})
    accelerator = SimpleNamespace(device=torch.device("cpu"), num_processes=1, is_main_process=True)
    return SimpleNamespace(
        accelerator=accelerator, trained=lambda: [("w", weight, optimiser)],
        step=0, steps=10, windows=0, loss_sum=torch.zeros(1), loss_steps=0,
    )  # fmt: skip


STATES = json_file(checkpoint()[1])


@st.composite
def checkpoints(draw: Draw) -> Case:
    """A checkpoint whose state, tensors or hashes are changed, with hashes that fit or not; perhaps one before it."""
    files, _ = checkpoint()
    files = {key: data for key, data in files.items() if key != "hashes.json"}
    part = draw(st.sampled_from(["state.json", "state.json", "state.safetensors", "hashes.json", "none"]))
    if part == "state.json":
        files[part] = draw(STATES)
    elif part == "state.safetensors":
        files[part] = damage(draw, files[part], most=4)
    made = with_hashes(files)
    if part == "hashes.json":
        made[part] = draw(json_file(json.loads(made[part])))
    if draw(st.integers(0, 9)) == 9:
        made.pop(draw(st.sampled_from(sorted(made))))
    before = checkpoint()[0] if draw(st.booleans()) else {}
    return Case(
        {f"checkpoints/step-00000004/{key}": data for key, data in made.items()}
        | {f"checkpoints/step-00000002/{key}": data for key, data in before.items()}
    )


def run_checkpoint(folder: Path, _: Case) -> None:
    """What `Training.go` does with a checkpoint."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    loop = fake_loop()
    facts = read_checkpoint(folder, loop, {"data": "d"}, lambda _: None)
    torch.set_num_threads(threads)
    if facts and not (type(loop.step) is int and 0 <= loop.step <= 10**9 and type(loop.windows) is int):
        raise AssertionError(f"step {loop.step!r}, windows {loop.windows!r}")


LOG = [
    {"step": 10, "epoch": 0.5, "loss": 2.5, "learning_rate": 1e-3, "windows_per_second": 99.0, "seconds": 1.0},
    {"step": 10, "epoch": 0.5, "evaluation": {"f1": 50.0, "exact": 40.0}},
    {"step": 20, "epoch": 1.0, "loss": 1.5, "learning_rate": 5e-4, "windows_per_second": 99.0, "seconds": 2.0},
]
POINT = {"step": 4, "epoch": 1.0, "f1": 50.0, "best_f1": 51.0, "total": 3}
HEAD = {
    "head": {"kind": "span"},
    "parameters": 18,
    "learning_rate": 1e-3,
    "quality": {"f1": 50.0},
    "curve": [POINT, {**POINT, "epoch": 2.0}],
}
STAGE = {
    "heads": {"lp": HEAD, "encoder": {"quality": {"f1": 60.0, "best_f1": 60.0}}},
    "train_seconds": 1.0,
    "windows_per_second": 9.0,
    "steps": 4,
}
METRICS = {
    "model": "m", "tuning": {"kind": "full"}, "head": {"kind": "span"}, "seed": 0, "quality": {"f1": 50.0},
    "trainable_parameters": 10, "total_parameters": 20, "steps": 4, "epochs": 1.0, "windows": 24, "train_seconds": 1.0,
    "windows_per_second": 24.0, "inference_seconds": None, "inference_windows": 3, "peak_memory": 100, "bytes": 100,
    "precision": "fp32", "device": "cpu", "processes": 1, "threads": 1, "hardware": {"cpu": "x"}, "versions": {},
    "command": ["quoth"], "evaluations": [POINT], "layer_weights": {"all": [0.5, 0.5]}, "frozen": {"1": STAGE},
}  # fmt: skip
MODEL = {
    "parameters": 20,
    "non_embedding_parameters": 10,
    "cost": 1.0,
    "shape": {"vocab": 3},
    "loss": 1.0,
    "quality": {},
}
CUT = {
    "round": 1,
    "part": 0.5,
    "losses": {"before": 1.0},
    "steps": {"gates": 2},
    "seconds": {"gates": 1.0},
}
ROUND = {**CUT, **MODEL, "model": "keep-0.5/model", "rounds_before": [{"part": 0.7}]}
ROUND.pop("loss")
PRUNED = {"model": "m", "by": "parameters", "losses_on": "x", "unpruned": MODEL, "targets": {"keep-0.5": ROUND}}
PRUNED |= {"loss": {"gates": "task", "recovery": "both"}, "unreachable": {"keep-0.1": "why"}}
LATENCY = {
    "device": "cpu", "tokens": 3072, "length": 384, "attention": [0.1] * 7, "ffn": [0.1] * 4, "error": 0.01,
    "table": [["attention", [8, 2, 4, 4], 0.1], ["ffn", [8, 8], 0.1]],
}  # fmt: skip


def _metrics(kind: Any) -> Any:
    def run(folder: Path, _: Case) -> None:
        to_json(read_metrics(folder, kind))

    return run


def run_curves(folder: Path, _: Case) -> None:
    json.dumps(read_curves([folder]))
    _layer_weights(folder)


def run_latency(folder: Path, _: Case) -> None:
    table = {"model": "m", "data": {"train": "t.json"}, "target": {"keep": 0.5, "by": "latency"}}
    from quoth.encoder.shape import Shape

    cost = make_cost(make_prune_recipe(table), None, folder, "cpu")  # type: ignore[arg-type]
    float(cost(Shape.from_json(json.loads(model_folders()["whole"]["quoth.json"])["shape"])))


STUDY = (  # a journal of Optuna
    {"op_code": 0, "worker_id": "w", "study_name": "gates", "directions": [2]},
    {"op_code": 2, "worker_id": "w", "study_id": 0, "user_attr": {"space": {}}},
)


@st.composite
def views(draw: Draw) -> Case:
    """Which units a cut model has kept: other numbers, other tensors, other bytes."""
    units = draw(st.lists(st.integers(-1, 9), max_size=4))
    tensors = {"units": torch.tensor(units, dtype=draw(st.sampled_from((torch.int64, torch.int32, torch.float32))))}
    if draw(st.booleans()):
        tensors[draw(st.sampled_from(("units", "more")))] = torch.full((2, 2), math.nan)
    return Case({"view.safetensors": damage(draw, tensor_bytes(tensors), most=1)})


def run_view(folder: Path, _: Case) -> None:
    View.read(folder / "view.safetensors", 8).of(torch.ones(2, 8))


def run_cache(folder: Path, _: Case) -> None:
    _wrong(folder, {"encoder": "x", "rows": 3})


def _at(name: str, data: Any) -> Any:
    return data.map(lambda found: Case({name: found}))


def _file(name: str, kind: str, base: Any, run: Any, **more: Any) -> Target:
    return Target(name, "format", _at(kind, json_file(base)), run, **more)


WORDS = ("recipe", "metrics.json")  # a check of values names the key of the recipe
GRID = {
    "recipe": "hulburd/l6", "seeds": [0, 1], "override": {"data": {"evaluate": "d.json"}},
    "runs": {"a": {"optimisation": {"epochs": 2.0}}, "b": {"recipe": "hulburd/lora"}},
    "grid": {"optimisation": {"learning_rate": [1e-3, 1e-2]}},
}  # fmt: skip
SWEPT = {"folder": "a-seed0", "method": "a", "seed": 0, "recipe": TRAIN[0], "state": "failed", "error": "x"}


def run_grid(folder: Path, case: Case) -> None:
    """Every run has a folder of its own, whose name a file system can have."""
    runs = read_grid(folder / "r.toml", case.arguments)
    names = [run.folder for run in runs]
    if len(set(names)) < len(names) or any(Path(name).name != name or len(name) > 150 for name in names):
        raise AssertionError(f"two runs in one folder, or a bad name: {names}")


def run_sweep_record(folder: Path, _: Case) -> None:
    """What is read can be written and read again."""
    runs = read_sweep(folder)
    write_sweep(folder, runs)
    if read_sweep(folder) != runs:
        raise AssertionError("the record as written is another one")


def run_results(folder: Path, _: Case) -> None:
    """The results of a run, compared, as JSON, CSV and HTML."""
    facts = compare_results(*read_results([folder]))
    json.dumps(facts, allow_nan=False)
    comparison_csv(facts)
    render_page(facts, ())


TARGETS = (
    Target(
        "recipe-train", "format", recipes(TRAIN), _recipe(read_recipe, make_recipe), words=(*WORDS, "head", "override")
    ),
    Target(
        "recipe-prune",
        "format",
        recipes(PRUNE),
        _recipe(read_prune_recipe, make_prune_recipe),
        words=(*WORDS, "kinds", "override"),
    ),
    Target(
        "recipe-build",
        "format",
        recipes(BUILD),
        _recipe(read_build_recipe, make_build_recipe),
        words=(*WORDS, "head", "kinds", "override"),
    ),
    Target(
        "recipe-of-run",
        "format",
        recipes(TRAIN).map(lambda case: Case({"recipe.toml": case.files["r.toml"]})),
        run_recipe_of_run,
    ),
    Target("checkpoint", "format", checkpoints(), run_checkpoint),
    Target("log", "format", _at("log.jsonl", json_lines(*LOG)), lambda folder, _: Log(folder, 15), ("log.jsonl",)),
    _file("metrics-train", "metrics.json", METRICS, _metrics(TrainMetrics)),
    _file("metrics-stage", "metrics.json", STAGE, _metrics(StageMetrics)),
    _file("metrics-prune", "metrics.json", PRUNED, _metrics(PruneMetrics)),
    _file("metrics-round", "metrics.json", ROUND, _metrics(RoundMetrics)),
    _file("metrics-cut", "metrics.json", CUT, _metrics(CutMetrics)),
    _file("metrics-model", "metrics.json", MODEL, _metrics(ModelMetrics)),
    _file("curves", "metrics.json", {**STAGE, "layer_weights": {"all": [0.5]}}, run_curves),
    _file("latency", "latency.json", LATENCY, run_latency),
    Target("grid", "format", recipes([GRID]), run_grid, words=(*WORDS, "head", "override", "seeds", "runs")),
    _file("sweep-record", "sweep.json", {"format": 1, "runs": [SWEPT]}, run_sweep_record, allowed=("sweep.json",)),
    _file("results-train", "metrics.json", METRICS, run_results, words=(*WORDS, "metrics.json")),
    _file("results-prune", "metrics.json", PRUNED, run_results, words=(*WORDS, "metrics.json")),
    Target("view", "format", views(), run_view),
    _file("seconds", "seconds.json", {"teacher": 1.0, "cut": 2}, lambda folder, _: _seconds(folder)),
    _file("cache", "cache.json", {"encoder": "x", "rows": 3, "sha256": "0", "seconds": 1.0}, run_cache),
    Target(
        "study",
        "format",
        _at("study.log", json_lines(*STUDY)),
        lambda folder, _: open_study(folder, Search()),
        ("study.log", "study.log.lock"),
        words=("study",),
    ),
)
