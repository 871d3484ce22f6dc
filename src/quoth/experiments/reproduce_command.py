"""The command that makes an item again as its stored runs were made."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from typing import Any

from quoth.config import flat
from quoth.experiments.paper_items import Item, Paper, run_table, runs_of
from quoth.experiments.reproduce_values import Found
from quoth.experiments.run_results import Result

TEXT = "text.txt"  # stands for the user's own


def command_of(name: str, paper: Paper, item: Item, every: Sequence[Found] = ()) -> str:
    """`quoth reproduce NAME` with the encoder, data, epochs, part of the data and seeds that all rows have in common.

    Without results it is that of the paper's own settings.
    """
    words = ["quoth", "reproduce", name]
    pairs = [(found.row.run, one) for found in every if found.row.run for one in found.results]
    models = {one.recipe.get("model") for found in every for one in found.runs if "-seed" not in one.recipe["model"]}
    words += _option("--model", models - {paper.encoder})
    squad = [pair for pair in pairs if paper.run(pair[0]).data == "squad2"]
    words += _option("--data", {_files(one.recipe, "train") for _, one in squad} - _nominal(paper, squad, "train"))
    words += _option("--evaluate", {one.data for _, one in squad} - _nominal(paper, squad, "evaluate"))
    if any(run.data == "text" for run in runs_of(paper, item).values()):
        texts = [_files(one.recipe, "train") for run, one in pairs if paper.run(run).data == "text"]
        words += ["--text", next(filter(None, texts), TEXT)]
    epochs = {_ratio(paper, run, one, "optimisation.epochs") for run, one in pairs}
    longest = max((run_table(paper.run(run)).get("optimisation", {}).get("epochs", 0.0) for run, _ in pairs), default=0)
    words += _option("--epochs", {f"{ratio * longest:.4g}" for ratio in epochs if ratio and ratio != 1})
    fractions = {_ratio(paper, run, one, "data.fraction") for run, one in pairs}
    words += _option("--fraction", {f"{ratio:.4g}" for ratio in fractions if ratio and ratio != 1})
    seeds = max((len(found.seeds) for found in every), default=1)
    words += ["--seeds", str(seeds)] if seeds > 1 else []
    return shlex.join(words)


def _option(flag: str, values: set[Any]) -> list[str]:
    """The option, where all rows have the same value."""
    return [flag, str(next(iter(values)))] if len(values) == 1 and "" not in values else []


def _files(recipe: dict[str, Any], key: str) -> str:
    """The one file of a recipe; "" where there are several."""
    names = recipe.get("data", {}).get(key) or ""
    return names if isinstance(names, str) else names[0] if len(names) == 1 else ""


def _nominal(paper: Paper, pairs: Sequence[tuple[str, Result]], key: str) -> set[str]:
    return {_files(run_table(paper.run(run)), key) for run, _ in pairs}


def _ratio(paper: Paper, run: str, result: Result, key: str) -> float:
    """A number of a recipe over that of the paper's."""
    wanted, found = (float(flat(table).get(key, 1.0)) for table in (run_table(paper.run(run)), result.recipe))
    return float(f"{found / wanted:.6g}") if wanted else 1.0
