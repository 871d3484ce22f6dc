"""`Recipe`: what a training run is made of, from a TOML file and overrides `key=value` of the command line.

    model = "bert-base-cased"
    [data]
    train = "rajpurkar/squad_v2:train"
    evaluate = "rajpurkar/squad_v2"
    [tuning]
    kind = "adapters"
    size = 64
    [optimisation]
    learning_rate = 3e-4

Every key has a default but `model` and `data.train`. An unknown key is an error that names the nearest known one.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any

from quoth.config import check_value, dump_toml, fill, read_table, set_key
from quoth.tasks import Data, task_of
from quoth.train.distillation import DistillationLoss
from quoth.train.settings import (
    Checkpoints,
    Evaluation,
    Frozen,
    OneHead,
    Optimisation,
    TeacherLogits,
    check_dropout,
    check_optimiser,
)

NAME = re.compile(r"\w[\w+ -]*")  # of a head: its folder, and a part of keys
TAKEN = ("encoder", "checkpoints", "cache", "tensorboard")  # what else lies in the folder of a stage


@dataclass(frozen=True)
class Recipe:
    """A training run, described whole: `tuning` as in `quoth.tune`, `head` (or its line) as in `quoth.heads`.

    teachers: models to learn from, with tokenizers of their own; then the loss is that of `distillation`
    """

    model: str
    data: Data
    teachers: tuple[str, ...] = ()
    seed: int = 0
    tuning: dict[str, Any] = field(default_factory=lambda: {"kind": "full"})
    head: Any = field(default_factory=lambda: {"kind": "span"})
    optimisation: Optimisation = field(default_factory=Optimisation)
    frozen: Frozen = field(default_factory=Frozen)
    evaluation: Evaluation = field(default_factory=Evaluation)
    checkpoints: Checkpoints = field(default_factory=Checkpoints)
    distillation: TeacherLogits = field(default_factory=TeacherLogits)

    def __post_init__(self) -> None:
        """Refuse values that no run can be made of."""
        o, f = self.optimisation, self.frozen
        check_value(self.seed >= 0, "seed", self.seed, "not negative")
        alone = o.epochs == 0 and bool(f.heads)  # heads on the encoder as it is
        check_value(o.epochs > 0 or alone, "optimisation.epochs", o.epochs, "above 0, or 0 with frozen.heads")
        check_dropout("optimisation", o.dropout)
        check_optimiser("optimisation", o)
        _check_head("head", self.head)
        self._check_task()
        self._check_frozen()
        self._check_teachers()
        longest, seconds = self.evaluation.max_answer_tokens, self.checkpoints.seconds
        check_value(longest > 0, "evaluation.max_answer_tokens", longest, "at least 1")
        check_value(seconds >= 0, "checkpoints.seconds", seconds, "not negative")
        for at in self.evaluation.at:
            check_value(0 <= at <= o.epochs, "evaluation.at", at, f"at least 0, at most {o.epochs:g} epochs")
        for at in self.evaluation.snapshots:
            check_value(0 < at <= o.epochs, "evaluation.snapshots", at, f"above 0, at most {o.epochs:g} epochs")

    def _check_task(self) -> None:
        """What the task cannot have."""
        task, name = task_of(self.data), self.data.task
        heads, cache = self.frozen.heads, self.frozen.cache_gb
        check_value(task.frozen_heads or not heads, "frozen.heads", heads, f"empty with data.task {name!r}")
        check_value(cache >= 0, "frozen.cache_gb", cache, "not negative")
        good = cache == 0 or task.cacheable
        check_value(good, "frozen.cache_gb", cache, f"0 with data.task {name!r}, which reads every token")
        task.check_head_table(self.head)

    def _check_teachers(self) -> None:
        """Teachers for a task that has none, and keys that say nothing without one."""
        d, names = self.distillation, self.teachers
        good = task_of(self.data).keeps_logits and self.optimisation.epochs > 0 and all(names)
        wanted = f"empty with data.task {self.data.task!r}, or with no epochs; a list of folders or hub ids"
        check_value(good or not names, "teachers", names, wanted)
        taught = bool(names) or d == TeacherLogits()
        check_value(taught, "teachers", names, "given where the recipe has a table [distillation]")
        DistillationLoss(d.task_weight, d.logits_weight, 0.0, d.temperature).check("distillation")
        check_value(d.cache_gb > 0, "distillation.cache_gb", d.cache_gb, "above 0")
        learnt = bool(names) and d.logits_weight > 0
        unlabelled = asdict(self.data.unlabelled)
        wanted = "empty without teachers, whose logits are all that is learnt from it"
        check_value(learnt or not self.data.unlabelled.wanted, "data.unlabelled", unlabelled, wanted)

    def _check_frozen(self) -> None:
        f, epochs = self.frozen, self.optimisation.epochs
        check_value(f.epochs > 0, "frozen.epochs", f.epochs, "above 0")
        check_optimiser("frozen", f)
        for at in f.at:
            check_value(0 <= at <= epochs, "frozen.at", at, f"at least 0, at most {epochs:g} epochs")
        for at in f.evaluate:
            check_value(0 < at <= f.epochs, "frozen.evaluate", at, f"above 0, at most {f.epochs:g} epochs")
        for name in f.heads:
            good = NAME.fullmatch(name) and name.strip() == name and name not in TAKEN
            wanted = f"of letters, digits, _, +, - and spaces between them, and none of {', '.join(TAKEN)}"
            check_value(bool(good), "the name of a head in frozen.heads", name, wanted)
        for name, (head, settings) in f.each().items():
            _check_head(f"frozen.heads.{name}", head)
            check_optimiser(f"frozen.heads.{name}", settings)
            for at in settings.at:
                check_value(at in (f.at or (epochs,)), f"frozen.heads.{name}.at", at, "one of the epochs of frozen.at")

    def to_toml(self) -> str:
        """The recipe with all defaults written out; reads back as the same recipe."""
        return dump_toml(asdict(self))


def read_recipe(path: str | Path, overrides: Sequence[str] = ()) -> Recipe:
    """Read a recipe, with overrides such as `optimisation.learning_rate=1e-4`."""
    return make_recipe(read_table(path, overrides, override), str(path))


def make_recipe(table: Mapping[str, Any], where: str = "recipe") -> Recipe:
    """A recipe from a table of tables."""
    return fill(Recipe, table, where)


def override(table: dict[str, Any], word: str) -> None:
    """Change one key of a recipe's table, key=value; a head of `frozen.heads` may get a setting of its own so."""
    *path, last = word.partition("=")[0].split(".")
    frozen = table.get("frozen")
    heads: Any = frozen.get("heads") if isinstance(frozen, dict) else None
    if path[:2] == ["frozen", "heads"] and len(path) >= 3 and isinstance(heads, dict):
        name = path[2]
        if name in heads and _is_bare(heads[name], last):
            heads[name] = {"head": heads[name]}
    set_key(table, word)


def _is_bare(head: Any, key: str) -> bool:
    """Whether a head of `Frozen` is its line or table alone, without a setting of its own such as `learning_rate`."""
    settings = {f.name for f in fields(OneHead)} - {"head"}
    return isinstance(head, str) or (isinstance(head, dict) and "kind" in head and key in settings)


def _check_head(where: str, value: Any) -> None:
    check_value(isinstance(value, str | Mapping), where, value, "a line or a table of a head; see docs/heads.md")
