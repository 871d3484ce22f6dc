"""Variants of a reader's recipe, one change at a time, scored on several sets as a reader is used.

    python -m benchmarks.reader.ablation ROWS.toml --data validation.json.gz web.json.gz … --out OUT [--only NAME …]

ROWS.toml has the tables of `quoth build`: `[teacher]` and `[student]`, recipes of `quoth train`, and `[cut]`, one of
`quoth prune`; and rows, each of which runs one of them with changes:

    [[row]]
    name = "no styles"
    recipe = "student"
    seeds = [0, 1, 2]                       # of training; data are drawn by the seed 0 for all
    overrides = ["data.styles.no_mark=0"]

A value may hold {out}, the folder of all rows, in which {out}/NAME-SEED/ is the run of a row: so a row can name the
model of an earlier one as its teacher or its start. Runs that ended are not run again. OUT/NAME-SEED.json has scores; a
table is printed at the end. For each set, with the calibration cross-fitted by article (`quoth.score.calibrate`):

    F1       with abstention by the calibration
    best     F1 at the best threshold of this very set on the margin
    always   F1 of the answerable questions if all are answered

"choice" is the first half of the articles of each set, on which variants are chosen, "rest" the others.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import torch

from benchmarks.race import markdown
from benchmarks.reader.calibration import at_margin, columns
from quoth import Reader
from quoth.answer.features import NAMES
from quoth.config import read_table
from quoth.data import Dataset, read
from quoth.errors import QuothError
from quoth.files import read_json, sha256_of, write_json
from quoth.model import load
from quoth.prune import make_prune_recipe, prune
from quoth.score.calibrate import FEATURES, Sample, cross_fit, quality, sample
from quoth.tasks import Data, Task, prepare
from quoth.train import make_recipe, train

PARTS = ("choice", "rest", "all")


class Tasks:
    """The data of rows, read and tokenised once where rows agree; the last ones are kept."""

    def __init__(self, most: int = 3) -> None:
        self.kept: dict[str, Task] = {}
        self.most = most

    def get(self, data: Data, model: str) -> Task:
        """The task of a recipe."""
        loaded = load(model)
        key = f"{asdict(data)} {[sha256_of(path) for path in loaded.origin.tokenizer]}"
        if key not in self.kept:
            self.kept[key] = prepare(data, loaded, 0)
            for old in list(self.kept)[: -self.most]:
                del self.kept[old]
        return self.kept[key]


def run_row(row: dict[str, Any], table: dict[str, Any], seed: int, out: Path, tasks: Tasks) -> Path:
    """Train or prune by the row's recipe: the folder of the model."""
    recipe = join(table[row["recipe"]], _table(row.get("overrides", [])))
    recipe = json.loads(json.dumps({**recipe, "seed": seed}).replace("{out}", str(out)))
    run = out / f"{row['name']}-{seed}"
    if row["recipe"] == "cut":
        cut = make_prune_recipe(recipe, row["name"])
        found = prune(cut, run, task=tasks.get(cut.data, cut.model), tell=print)
        return run / list(found.targets.values())[-1].model
    made = make_recipe(recipe, row["name"])
    train(made, run, task=tasks.get(made.data, made.model))
    return run / "model"


def join(below: dict[str, Any], above: dict[str, Any]) -> dict[str, Any]:
    """Two tables of tables; the keys of `above` win, and an empty table there removes the one below."""
    joined = dict(below)
    for key, value in above.items():
        both = isinstance(value, dict) and value and isinstance(joined.get(key), dict)
        joined[key] = join(joined[key], value) if both else value
    return joined


def _table(overrides: Sequence[str]) -> dict[str, Any]:
    """Overrides `a.b=c` as a table of tables."""
    with tempfile.NamedTemporaryFile("w", suffix=".toml") as empty:
        return dict(read_table(empty.name, overrides))


def score(model: Path, datasets: dict[str, Dataset]) -> dict[str, Any]:
    """Scores of a reader on all sets, by part of the articles."""
    reader = Reader.load(model)
    samples = [sample(reader, data.questions, name, NAMES) for name, data in datasets.items()]
    found: dict[str, Any] = {"parameters": reader.runner.parameters}
    fitted = cross_fit([columns(one, FEATURES) for one in samples])
    for one, p in zip(samples, fitted):
        first = one.article < (one.article.max() + 1) / 2
        masks = {"choice": first, "rest": ~first, "all": np.ones(len(one), bool)}
        found[one.name] = {part: _scores(one.part(mask), p[mask]) for part, mask in masks.items()}
    for part in PARTS:
        found[f"mean {part}"] = float(np.mean([found[name][part]["f1"] for name in datasets]))
    return found


def _scores(one: Sample, p: np.ndarray) -> dict[str, float]:
    facts = quality(columns(one, FEATURES), p)
    keys = ("f1", "HasAns_f1", "NoAns_f1", "expected_calibration_error", "area_under_risk_coverage", "accuracy_at_80")
    scores = {key: facts[key] for key in keys}
    always = 100 * float(one.f1[one.has_answer].mean())
    return {**scores, "best": at_margin(one, None), "always": always, "raw": facts["raw"]}


def show(out: Path, rows: Sequence[dict[str, Any]], names: Sequence[str]) -> str:
    """A line for each row that has scores: means over its seeds, ± the standard deviation where there are several."""
    lines = []
    for row in rows:
        places = [out / f"{row['name']}-{seed}.json" for seed in row.get("seeds", [0])]
        found = [read_json(place) for place in places if place.exists()]
        if not found:
            continue
        cells = [row["name"], str(len(found)), f"{found[0]['parameters'] / 1e6:.1f}"]
        for name in names:
            cells += [_cell([one[name]["all"][key] for one in found]) for key in ("f1", "best", "always")]
        cells += [_cell([one[f"mean {part}"] for one in found]) for part in PARTS]
        lines.append([*cells, f"{np.mean([one['seconds'] for one in found]):.0f}"])
    heads = ["row", "seeds", "M"]
    heads += [f"{name[:10]} {key}" for name in names for key in ("F1", "best", "always")]
    return markdown([*heads, *(f"mean, {part}" for part in PARTS), "s"], lines)


def _cell(values: Sequence[float]) -> str:
    return f"{np.mean(values):.1f}" + (f" ± {np.std(values, ddof=1):.1f}" if len(values) > 1 else "")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("rows", type=Path, help="ROWS.toml")
    parser.add_argument("--data", nargs="+", required=True, help="SQuAD 2.0 files of several articles")
    parser.add_argument("--out", type=Path, required=True, help="the folder of all runs")
    parser.add_argument("--only", nargs="+", help="names of rows; all")
    parser.add_argument("--show", action="store_true", help="print the table of what is there")
    options = parser.parse_args()
    table: dict[str, Any] = dict(read_table(options.rows, []))
    rows = table["row"]
    names = [Path(path).name.split(".")[0] for path in options.data]
    if not options.show:
        datasets = {name: read(path) for name, path in zip(names, options.data)}
        options.out.mkdir(parents=True, exist_ok=True)
        tasks = Tasks()
        for row in rows:
            for seed in row.get("seeds", [0]):
                place = options.out / f"{row['name']}-{seed}.json"
                if place.exists() or (options.only and row["name"] not in options.only):
                    continue
                begin = time.perf_counter()
                try:
                    model = run_row(row, table, seed, options.out, tasks)
                except QuothError as error:
                    print(f"{row['name']}-{seed}: {error}", flush=True)
                    continue
                seconds = time.perf_counter() - begin
                write_json(place, {"seconds": seconds, **score(model, datasets)})
                torch.cuda.empty_cache() if torch.cuda.is_available() else None
                print(f"{row['name']}-{seed}: {seconds:.0f} s", flush=True)
                print(show(options.out, [{**row, "seeds": [seed]}], names).splitlines()[-1], flush=True)
    print(show(options.out, rows, names))


if __name__ == "__main__":
    main()
