"""What `benchmarks.papers.corrections` counts, on data small enough to count by hand; the plan and tables on a GPU."""

import json
import re
import time
from pathlib import Path

import numpy as np
import pytest
from benchmarks.papers.corrections import _begins_at_cls, label_row, mask_row
from benchmarks.papers.corrections_bench import Bench
from benchmarks.papers.corrections_gpu import main, parse
from benchmarks.papers.corrections_runs import make_runs
from benchmarks.papers.corrections_tables import table as made_table
from benchmarks.questions import hold_out

from quoth.answer import decode
from quoth.data import read
from quoth.encoder.shape import Shape
from quoth.prune.latency import Latency
from quoth.prune.recipe import read_prune_recipe
from quoth.recipes import find_recipe
from quoth.runtime.logits import SpanLogits
from quoth.tasks.examples import Examples
from quoth.train.recipe import read_recipe
from quoth.windows import Tokenizer, make_windows
from quoth.windows.nsp import make_neighbours

WORDS = "one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen"
CONTEXT = " ".join([WORDS] * 10)


@pytest.fixture
def squad(tmp_path):
    """Two articles: a question on the second word, and one without an answer."""
    answer = {"text": "two", "answer_start": 4}
    asked = [
        {"id": "a", "question": "who?", "is_impossible": False, "answers": [answer]},
        {"id": "b", "question": "who?", "is_impossible": True, "answers": []},
    ]
    articles = [{"title": qa["id"], "paragraphs": [{"context": CONTEXT, "qas": [qa]}]} for qa in asked]
    path = tmp_path / "squad.json"
    path.write_text(json.dumps({"version": "v2.0", "data": articles}))
    return path


def test_labels_by_hand(squad, minilm):
    """160 words in windows of 75 with a step of 50: three a question, and only the first holds the second word."""
    questions, tokens = read(squad).questions, Tokenizer.load(minilm)
    assert label_row(questions, tokens, 80, 50) == {
        "questions": 2,
        "of several windows": 2,
        "windows": 6,
        '"no answer" before': 3,
        "after": 5,
        "answerable questions with such a window": 1,
    }


def test_masks_are_counted(minilm):
    tokens = Tokenizer.load(minilm)
    text = "Unquestionably the antidisestablishmentarians photosynthesised their hypercalcemia; " * 12
    examples = Examples(*make_neighbours([text, text[::-1]], tokens, max_length=64, seed=0))
    whole, apart = (mask_row(examples, tokens, 30522, whole_words) for whole_words in (True, False))
    assert whole["tokens"] == apart["tokens"]
    assert whole["of these in part"] == 0 < apart["of these in part"] <= apart["words of several tokens, masked"]


def test_which_answers_begin_at_cls_as_decode_has_it(squad, minilm):
    """Those are what differs between the rule before and now."""
    questions, tokens = read(squad).questions, Tokenizer.load(minilm)
    windows = make_windows(questions, tokens, max_length=80, step=50, max_query_length=8)
    rng = np.random.default_rng(0)
    seen = set()
    for _ in range(60):
        start, end = rng.normal(0, 2, (2, len(windows.ids))).astype(np.float32)
        start[windows.starts[:-1]] += 3
        cls = _begins_at_cls(windows, start, end, 2)
        answers = decode(windows, SpanLogits(start, end), [CONTEXT] * 2, rule="bertvision").predictions()
        for begins, answer in zip(cls, answers):
            seen.add((begins, answer != ""))
            assert (
                not begins
                or answer == ""
                or any(
                    answer.startswith(
                        CONTEXT[windows.spans[windows.starts[w] + windows.passage[w, 0], 0] :][: len(answer)]
                    )
                    for w in range(len(windows))
                )
            )
    assert seen >= {(True, True), (False, True)}


def test_halves_by_article(squad, tmp_path):
    paths = hold_out(squad, tmp_path / "halves", 0.5, ("dev", "test"))
    assert [path.name for path in paths] == ["dev.json", "test.json"]
    assert sorted(question.id for path in paths for question in read(path).questions) == ["a", "b"]
    assert all(len(read(path)) == 1 for path in paths)


OPTIONS = [
    "--model",
    "M",
    "--train",
    "T",
    "--evaluate",
    "E",
    "--text",
    "X",
    "--glue",
    "G",
    "--old",
    "O",
    "--seeds",
    "3",
]


@pytest.fixture
def plan():
    """The options of the benchmark on a GPU, and all its runs."""
    options = parse(OPTIONS)
    options.thinned, options.answerable = "THINNED", ("A", "B")
    return options, make_runs(options)


def test_every_run_of_the_plan_has_a_recipe_that_takes_its_overrides(plan):
    options, runs = plan
    names = [run.id for run in runs]
    assert len(set(names)) == len(names)
    for number, run in enumerate(runs):
        assert not run.base or run.base in names[:number], run.id
        order = run.order(options)
        assert json.loads(json.dumps(order)) == order
        if run.how == "prune":
            recipe = read_prune_recipe(find_recipe(run.recipe), order["overrides"])
            assert len(recipe.target.keep) == 1
            assert run.model("out").startswith(f"out/{run.id}/keep-{recipe.target.keep[0]:g}/")
        else:
            recipe = read_recipe(find_recipe(run.recipe), order["overrides"])
        assert recipe.seed == run.seed
        assert recipe.model.endswith("/M" if not run.base else "model")


def test_the_plan_begins_with_every_point_before_and_after(plan):
    """And what is repeated comes after it."""
    _, runs = plan
    first = [run.name for run in runs[: [run.seed for run in runs].index(1)]]
    assert set(first) >= {
        *("1/distillation, distillation", "1/task, task", "text/distillation, distillation", "text/task, task"),
        *("2/all, all tensors", "2/all, table 5", "3/h, without embeddings", "3/h, totals", "teacher", "squad1"),
        *("5/386, question", "5/386, window", "5/192, question", "5/192, window", "6/heads", "6/MRPC"),
        *("7/whole words", "7/tokens", "7/old once", "7/old again", "7/new once", "7/new again"),
        *("8/floor", "8/give back", "9/albert-e before", "text/albert-e", "9/flops", "9/latency"),
    }
    before = {run.name for run in runs if run.source == "old"}
    assert before == {
        *("2/all, all tensors", "2/h, all tensors", "5/386, question", "5/192, question"),
        *("7/old once", "7/old again", "9/albert-e before"),
    }


def made_up(run):
    """Results of a run, in the form in which a worker gives them."""
    layers = [{"heads": 12, "key": 32, "value": 32, "ffn": 100 * (layer + 1)} for layer in range(12)]
    shape = Shape.uniform(layers=12, hidden=384, heads=12).to_json() | {"layers": layers}
    scores = {"exact": 60.0, "f1": 62.5, "best_f1": 65.25 + run.seed, "answered_f1": 80.0, "acc": 84.0}
    facts = {"name": run.name, "seed": run.seed, "source": run.source, "overrides": list(run.overrides)}
    facts |= {"quality": scores, "wall": 1.0}
    if run.refused:
        return facts | {"refused": "not possible"}
    if run.how == "fit":
        return facts | {"losses": [11.5, 6.5], "steps": 600}
    if run.how == "prune":
        losses = {"before": 3.5, "cut": 4.0, "recovered": 3.25}
        start = {"start": {"losses": losses, "shape": shape}} if "albert" in run.name else {}
        unpruned = {"loss": 3.5, "quality": scores, "shape": shape}
        alpha = {"h": [0.9, 1.0 + 0.01 * run.seed]}
        return facts | {"losses": losses, "shape": shape, "cost": 0.7, "unpruned": unpruned, "alpha": alpha, **start}
    names = ("linear", "lp", "adapter-64-skip", "lp-adapter-386 no skip", "lp-adapter-386")
    stage = {name: {"quality": scores, "parameters": 1000} for name in ("encoder", *names)}
    facts["frozen"] = dict.fromkeys(("0.3", "1", "3"), stage)
    windows = {"best_exact": 70.0, "best_f1": 71.0, "said": 30.0, "one window": 75.0, "several windows": None}
    masks = {"mlm_loss": 6.0, "mlm_accuracy": 12.0}
    rule = {"rule": "devlin", "EM": "60", "F1": "62", "has": "1", "no": "2", '"no answer"': 3}
    beside = {
        "thresholds": dict.fromkeys(("encoder", "linear", "lp"), windows),
        "bits": {"lp": "a", "cnn": run.name if run.source == "old" else "b"},
        "rules": [rule],
        "masks": {"tokens": masks, "whole words": masks},
    }
    return facts | {also: beside[also] for also in run.also}


def test_tables_of_all_runs_and_of_a_part(plan, tmp_path, capsys):
    _, runs = plan
    table = Latency("cuda", 1, 386, (1.0,) * 7, (1.0,) * 4, 0.0).to_json()
    results = {"runs": {run.id: made_up(run) for run in runs}, "latency": table}
    path = tmp_path / "results.json"
    path.write_text(json.dumps(results))
    main(["--table", str(path)])
    told = capsys.readouterr().out
    assert re.findall(r"^### (\d)\.", told, re.MULTILINE) == list("123456789")
    rows = [line.strip("| ").split(" | ") for line in told.splitlines() if line.startswith("|")]
    assert ["task (now)", "task", "3", "66.2 ± 1.0"] in [row[:4] for row in rows]
    assert ["before: not possible"] in [row[:1] for row in rows]
    assert ["before", "yes", "no"] in rows
    assert ["now", "yes", "yes"] in rows
    assert ["squad1", "–"] not in rows
    widths = [line.count("|") for line in told.splitlines() if line.startswith("|")]
    assert min(widths) >= 3
    for count in range(0, len(runs), 3):  # the runs of an interrupted benchmark
        part = {"runs": dict(list(results["runs"].items())[:count])}
        assert made_table(part).count("### ") <= 9


def test_what_begins_from_a_failed_run_is_not_waited_for(plan, tmp_path):
    options, _ = plan
    options.out, options.results = str(tmp_path), str(tmp_path / "results.json")
    bench = Bench(options, [], time.time())
    run = bench.every["pretraining-heads-seed0"]
    bench._note(run, {"error": "no memory"})
    assert "tuned/text/task, task-seed0" in bench.failed
    assert "teacher-seed0" not in bench.failed
    assert json.loads(Path(options.results).read_text())["failed"] == {run.id: "no memory"}
    assert len(bench.missing()) == len(bench.every)
