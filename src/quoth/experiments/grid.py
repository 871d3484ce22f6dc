"""`Grid`: which recipes a sweep trains, from a TOML file.

    recipe = "hulburd/l0-a64"        # what runs start from: a file, or a recipe that ships
    seeds = [0, 1, 2]

    [override]                       # keys of all runs
    model = "bert-base-cased"
    data.train = "train.json"

    [runs.adapters]                  # named runs: keys of each; `recipe` may be another one
    tuning.size = 64
    [runs.lora]
    recipe = "hulburd/lora"

    [grid]                           # every run with every combination of these values
    optimisation.learning_rate = [1e-4, 3e-4]

This is 2 runs × 2 learning rates × 3 seeds. A table that names a `kind`, such as `tuning` or `head`, takes the place of
the recipe's; of other tables the keys are overridden one by one. What the command line overrides comes last.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from quoth.config import fill, flat, overridden, read_table, set_key, shown
from quoth.errors import QuothError
from quoth.prune.recipe import PruneRecipe, make_prune_recipe
from quoth.recipes import find_recipe
from quoth.train.recipe import Recipe, make_recipe, override

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9 _+=,.-]*")
ODD = re.compile(r"[^A-Za-z0-9 _+=,.-]+")  # what names of values are freed of
LONGEST = 80  # characters of a name
MOST = 10_000  # runs


@dataclass(frozen=True)
class Grid:
    """A grid file. runs: overrides by name, with `recipe` perhaps; grid: lists of values, by keys of recipes."""

    recipe: str = ""
    seeds: tuple[int, ...] = (0,)
    override: dict[str, Any] = field(default_factory=dict)
    runs: dict[str, Any] = field(default_factory=dict)
    grid: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Planned:
    """A run that a grid asks for. method: all its seeds have in common, in words; folder: its name in the sweep."""

    method: str
    seed: int
    recipe: Recipe | PruneRecipe

    @property
    def folder(self) -> str:
        """Its run folder, in that of the sweep."""
        return f"{self.method.replace(' ', '-')}-seed{self.seed}"


def read_grid(path: str | Path, overrides: Sequence[str] = ()) -> list[Planned]:
    """The runs of a grid file, in its order, seeds together. overrides: `seeds=[0, 1]`, else keys of all runs."""
    own = [word for word in overrides if word.partition("=")[0] == "seeds"]
    grid = fill(Grid, read_table(path, own), str(path))
    return plan_runs(grid, str(path), [word for word in overrides if word not in own])


def plan_runs(grid: Grid, where: str, overrides: Sequence[str] = ()) -> list[Planned]:
    """All runs of a grid, checked: seeds, names, recipes. where: what messages call the grid."""
    _check_seeds(grid, where, overrides)
    values = _values(grid.grid, where)
    named = grid.runs or {"": {}}
    count = len(named) * len(grid.seeds)
    for several in values.values():
        count *= len(several)
    if count > MOST:
        raise QuothError(f"{where}: is {count:,} runs; at most {MOST:,} are made")
    planned = [run for name, own in named.items() for run in _of_name(grid, where, name, own, values, overrides)]
    _check_distinct(planned, where)
    return planned


def _of_name(
    grid: Grid, where: str, name: str, own: Any, values: Mapping[str, list[Any]], overrides: Sequence[str]
) -> Iterator[Planned]:
    """The combinations of one named run, each with every seed."""
    if not isinstance(own, Mapping):
        raise QuothError(f"{where}: runs.{name} is {shown(own)}, a table is wanted")
    if name and (not NAME.fullmatch(name) or name != name.strip() or len(name) > LONGEST):
        wanted = f"letters, digits, spaces and _+=,.-, at most {LONGEST} of them, a letter or digit first"
        raise QuothError(f"{where}: {shown(name)} in runs: a name has {wanted}")
    source = own.get("recipe") or grid.recipe
    if not isinstance(source, str) or not source:
        of = f"runs.{name} names no recipe, and neither does" if name else "runs are made of a recipe:"
        raise QuothError(f'{where}: {of} the grid; write recipe = "hulburd/l6", or a file')
    base = read_table(find_recipe(source))
    own = {key: value for key, value in own.items() if key != "recipe"}
    for combination in itertools.product(*values.values()):
        chosen = dict(zip(values, combination))
        table = deepcopy(base)
        for layer in (grid.override, own, *(_nested(key, value) for key, value in chosen.items())):
            table = overridden(table, layer)
        for word in overrides:
            override(table, word)
        method = _plain(
            " ".join(filter(None, [name or ("" if chosen else Path(source).stem), *map(_word, chosen.items())]))
        )
        for seed in grid.seeds:
            yield Planned(method, seed, _recipe(table, seed, f"{where}: {method}"))


def _recipe(table: dict[str, Any], seed: int, where: str) -> Recipe | PruneRecipe:
    """The recipe with this seed; a mistake in it names the run."""
    try:
        return recipe_of({**table, "seed": seed}, where)
    except QuothError as error:
        text = str(error)
        raise QuothError(text if text.startswith(where) else f"{where}: {text.removeprefix('recipe: ')}") from None


def recipe_of(table: Mapping[str, Any], where: str) -> Recipe | PruneRecipe:
    """A recipe of `quoth train`, or of `quoth prune`, which has a table [target]."""
    return make_prune_recipe(table, where) if "target" in table else make_recipe(table, where)


def _nested(key: str, value: Any) -> dict[str, Any]:
    """{"a.b": value} as tables."""
    table: dict[str, Any] = {}
    set_key(table, f"{key}=0")
    *path, last = key.split(".")
    inner = table
    for name in path:
        inner = inner[name]
    inner[last] = value
    return table


def _values(table: Mapping[str, Any], where: str) -> dict[str, list[Any]]:
    """The lists of values by key, `{"optimisation.learning_rate": [1e-4, 3e-4]}`."""
    found = flat(table)
    for key, values in found.items():
        if not isinstance(values, list) or not values:
            raise QuothError(f"{where}: grid.{key} is {shown(values)}; a list of at least one value is wanted")
    return found


def _check_seeds(grid: Grid, where: str, overrides: Sequence[str]) -> None:
    seeds = grid.seeds
    if not seeds or len(set(seeds)) < len(seeds) or min(seeds) < 0:
        raise QuothError(f"{where}: seeds is {shown(list(seeds))}; different whole numbers, at least 0, are wanted")
    tables: dict[str, Mapping[str, Any]] = {"override": grid.override, "grid": grid.grid}
    tables |= {f"runs.{name}": own for name, own in grid.runs.items() if isinstance(own, Mapping)}
    tables["the command line"] = {word.partition("=")[0]: None for word in overrides}
    for name, table in tables.items():
        if "seed" in table:
            raise QuothError(f"{where}: {name} has a seed, but a run has each of the seeds; write seeds = [0, 1, 2]")


def _check_distinct(planned: Sequence[Planned], where: str) -> None:
    """Refuse two runs of one name (file systems may not tell upper from lower case), and two that are the same."""
    by_name: dict[str, Planned] = {}
    by_recipe: dict[str, Planned] = {}
    for run in planned:
        recipe = run.recipe.to_toml()
        for known, key in ((by_name, run.folder.casefold()), (by_recipe, recipe)):
            if key in known:
                why = "would lie in one folder" if known is by_name else "are the same recipe"
                raise QuothError(
                    f"{where}: the runs {known[key].method!r} and {run.method!r} {why}; change one of them"
                )
            known[key] = run


def _word(item: tuple[str, Any]) -> str:
    """A key and its value for a name, "learning_rate=0.0001"; a table by its kind."""
    key, value = item
    if isinstance(value, Mapping):
        rest = (f"{k}={_text(v)}" for k, v in value.items() if k != "kind")
        words = ",".join(filter(None, [str(value.get("kind", "")), *rest]))
        return f"{key.rpartition('.')[2]}={words}"
    return f"{key.rpartition('.')[2]}={_text(value)}"


def _text(value: Any) -> str:
    return f"{value:g}" if type(value) is float else value if isinstance(value, str) else json.dumps(value)


def _plain(name: str) -> str:
    """A name that a folder can have; where that loses something, with a hash of what it was, so that none are equal."""
    plain = ODD.sub("-", name).strip(" .-")
    if plain == name and len(name) <= LONGEST:
        return name
    return f"{plain[:LONGEST].strip()} {hashlib.sha256(name.encode('utf-8', 'replace')).hexdigest()[:6]}".strip()
