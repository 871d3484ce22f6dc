"""The candidates of `quoth advise`: recipes from `advise.toml`, made to fit a model and the amount of data."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from quoth.config import fill, read_table
from quoth.errors import QuothError
from quoth.experiments.grid import Grid, plan_runs
from quoth.experiments.sizes import Sizes, sizes_of
from quoth.heads import build_head
from quoth.model import open_checkpoint
from quoth.train import Recipe

TABLE = Path(__file__).with_name("advise.toml")
PARTS = {"all": 1.0, "half": 0.5, "quarter": 0.25}  # words of the table for a number of layers
WORD = re.compile(rf"\b({'|'.join(PARTS)})\b")
ENOUGH = 12_000  # windows that a whole training should have, in whole epochs
EPOCHS = (2, 8)  # but at least and at most so many


@dataclass(frozen=True)
class Candidate:
    """A method. recipe: its whole training, on all data; depth: the layers that its head needs; sizes: parameters.

    parameters: of what is needed to answer: layers above `depth` are left out by `quoth export`
    """

    name: str
    recipe: Recipe
    depth: int
    sizes: Sizes
    parameters: int

    @property
    def folder(self) -> str:
        """The name of its folder."""
        return self.name.replace(" ", "-")


def read_candidates(
    model: str, data: str, epochs: float, seed: int, table: Path | None = None
) -> tuple[list[Candidate], dict[str, str]]:
    """The candidates that this model can be trained by, and for the others, by name, why not. table: else `TABLE`."""
    table = table or TABLE
    layers = len(open_checkpoint(model).shape.layers)
    content = _with_layers(read_table(table), layers)
    content["override"] = _joined(
        content.get("override", {}),
        {"model": model, "data": {"train": [data], "evaluate": ""}, "optimisation": {"epochs": float(epochs)}},
    )
    content["seeds"] = [seed]
    content["runs"] = _distinct(content.get("runs", {}))
    found: list[Candidate] = []
    left_out: dict[str, str] = {}
    for plan in plan_runs(fill(Grid, content, str(table)), str(table)):
        assert isinstance(plan.recipe, Recipe)  # no run of the table prunes
        try:
            found.append(_candidate(plan.method, plan.recipe, layers))
        except QuothError as error:  # such as a part of layers that share their weights
            left_out[plan.method] = str(error)
    if not found:
        raise QuothError(f"{model}: cannot be trained by any candidate ({next(iter(left_out.values()))})")
    return found, left_out


def final_epochs(windows: int) -> int:
    """How many epochs a whole training on so many windows has."""
    return min(max(round(ENOUGH / windows), EPOCHS[0]), EPOCHS[1])


def _candidate(name: str, recipe: Recipe, layers: int) -> Candidate:
    opened = open_checkpoint(recipe.model)
    recipe = _within(recipe, opened.shape.positions - opened.style.first_position)
    sizes, shape = sizes_of(recipe), opened.shape
    reads = build_head(recipe.head, shape.hidden, layers).reads
    depth = max(layer % (layers + 1) for layer in reads)
    cut = shape if shape.tied or not depth else replace(shape, layers=shape.layers[:depth])
    return Candidate(name, recipe, depth, sizes, sizes.total - (shape.total() - cut.total()))


def _within(recipe: Recipe, longest: int) -> Recipe:
    """With windows that the model can take: shorter ones where it ends before those of the table."""
    data = recipe.data
    if data.max_length <= longest:
        return recipe
    asked = max(1, min(data.max_query_length, longest // 4))
    step = max(1, min(data.step, longest // 3))
    return replace(recipe, data=replace(data, max_length=longest, step=step, max_query_length=asked))


def _with_layers(value: Any, layers: int) -> Any:
    """The table with numbers of layers in place of the words for them."""
    if isinstance(value, Mapping):
        return {key: _with_layers(inner, layers) for key, inner in value.items()}
    if not isinstance(value, str):
        return value
    count = {word: max(1, round(part * layers)) for word, part in PARTS.items()}
    return count[value] if value in count else WORD.sub(lambda found: str(count[found[1]]), value)


def _joined(one: Mapping[str, Any], other: Mapping[str, Any]) -> dict[str, Any]:
    """Two tables of tables, the second before the first."""
    return {
        key: _joined(one[key], other[key])
        if isinstance(one.get(key), Mapping) and isinstance(other.get(key), Mapping)
        else other.get(key, one.get(key))
        for key in (*one, *(key for key in other if key not in one))
    }


def _distinct(runs: Mapping[str, Any]) -> dict[str, Any]:
    """Without runs that are the same: in an encoder of one layer half of the layers are all of them."""
    found: dict[str, Any] = {}
    for name, run in runs.items():
        if run not in found.values():
            found[name] = run
    return found
