"""benchmarks.papers.silva runs, ends and leaves what its table and plots need; benchmarks.race takes turns."""

import contextlib
import importlib
import io
import json
import sys
from pathlib import Path

import pytest

from train.material import SOURCES, make_model, make_questions

ROOT = Path(__file__).parents[1]
LAYERS, HIDDEN = 2, 32
ROWS = {  # own parameters: Silva §3.2 and §3.3; the block is BERT's without the bias of its keys
    "plain encoder": 0,
    "weighted": 2 * (LAYERS + 1),
    "dot": 0,
    "multiplicative": HIDDEN**2,
    "encoder block": 12 * HIDDEN**2 + 12 * HIDDEN,
}


def silva(*arguments):
    """Run benchmarks.papers.silva in this process, which spares an import of torch, and its workers in theirs."""
    told = io.StringIO()
    with pytest.MonkeyPatch.context() as patch, contextlib.redirect_stdout(told):
        patch.setattr(sys, "path", [str(ROOT), str(SOURCES), *sys.path])  # workers get it too
        patch.setattr(sys, "argv", ["silva.py", *map(str, arguments)])
        for name, value in (("OMP_NUM_THREADS", "1"), ("CUDA_VISIBLE_DEVICES", "")):
            patch.setenv(name, value)
        importlib.import_module("benchmarks.papers.silva").main()
    return told.getvalue()


@pytest.fixture(scope="module")
def given(minilm, tmp_path_factory):
    """A folder, and arguments: a tiny model and two articles to train on, one of which the search holds out."""
    folder = tmp_path_factory.mktemp("silva")
    articles = [make_questions(folder / f"{seed}.json", seed=seed, passages=2) for seed in (1, 2)]
    data = [json.loads(path.read_text())["data"][0] for path in articles]
    (folder / "train.json").write_text(json.dumps({"version": "v2.0", "data": data}))
    dev = make_questions(folder / "dev.json", seed=3, passages=1)
    arguments = ["--model", make_model(folder / "small", minilm), "--train", folder / "train.json", "--evaluate", dev]
    arguments += [
        "--out",
        folder / "run",
        "--epochs",
        1,
        "--long",
        2,
        "--seeds",
        2,
        "--batch-tokens",
        1024,
        "--workers",
        1,
    ]
    return folder, arguments


@pytest.fixture(scope="module")
def results(given):
    folder, arguments = given
    silva(*arguments, "--search-rates", 1e-4, 1e-3, "--search-epochs", 0.5)
    return json.loads((folder / "run" / "results.json").read_text())


@pytest.mark.slow
def test_every_run_is_in_the_results(results):
    assert {"settings", "machine", "scores", "rates", "head_parameters", "runs"} == results.keys()
    found = [(run["row"], run["kind"], run["seed"]) for run in results["runs"].values()]
    kinds = [("search", 0), ("search", 0), ("long", 0), ("short", 0), ("short", 1)]
    assert sorted(found) == sorted((row, *kind) for row in ROWS for kind in kinds)
    for row, scores in results["scores"].items():
        assert list(scores) == ["0.0001", "0.001"]
        assert scores[f"{results['rates'][row]:g}"] == max(scores.values())
    for run in results["runs"].values():
        looks = {"search": 1, "short": 8, "long": 10}[run["kind"]]
        steps = {max(1, round(run["steps"] * (i + 1) / looks)) for i in range(looks)}
        assert [look["step"] for look in run["evaluations"]] == sorted(steps)
        assert {key: run["evaluations"][-1][key] for key in run["quality"]} == run["quality"]
        assert run["losses"]["steps"][-1] == run["steps"]
        assert len(run["losses"]["loss"]) == len(run["losses"]["steps"])
        assert run["train_seconds"] > 0
        assert run["kind"] == "search" or run["rate"] == results["rates"][run["row"]]


@pytest.mark.slow
def test_heads_have_the_parameters_of_the_paper(results):
    plain = results["head_parameters"]["plain encoder"]
    assert plain == 2 * HIDDEN + 2
    assert {row: size - plain for row, size in results["head_parameters"].items()} == ROWS
    trained = {run["row"]: run["trainable_parameters"] for run in results["runs"].values()}
    assert {row: size - trained["plain encoder"] for row, size in trained.items()} == ROWS


@pytest.mark.slow
def test_what_is_there_is_not_run_again_and_plots_are_drawn(given, results):
    folder, arguments = given
    told = silva(*arguments, "--only", "train")
    assert "15 of 15 runs are there, 0 to go" in told
    assert json.loads((folder / "run" / "results.json").read_text())["runs"] == results["runs"]
    drawn = silva("--plot", folder / "run" / "results.json", "--plots", folder / "plots")
    assert sorted(path.name for path in (folder / "plots").iterdir()) == ["silva-dev.svg", "silva-loss.svg"]
    assert told.endswith(drawn)
    header, _, *rows = (line.strip("| ").split(" | ") for line in drawn.splitlines()[-2 - len(ROWS) :])
    assert [cells[:2] for cells in rows] == [[row, f"{own:,}"] for row, own in ROWS.items()]
    assert {len(cells) for cells in rows} == {len(header)}


def test_contenders_take_turns_and_ratios_are_of_rates(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT))
    tools = importlib.import_module("benchmarks.race")
    clock, order = [0.0], []
    monkeypatch.setattr(tools.time, "perf_counter", lambda: clock[0])

    def contender(name, seconds, items, steps):
        def step():
            order.append(name)
            clock[0] += seconds

        return tools.Contender(step, items, steps)

    times = tools.race({"a": contender("a", 1.0, 4, 2), "b": contender("b", 3.0, 6, 1)}, 3, warmup=1)
    assert "".join(order) == "ab" + "aab" + "baa" + "aab"
    assert times.seconds == {"a": [2.0] * 3, "b": [3.0] * 3}
    assert times.rates() == {"a": 4.0, "b": 2.0}
    assert times.step_seconds("a") == 1.0
    assert str(times.ratio("a", "b")) == "2.00 (2.00–2.00)"
