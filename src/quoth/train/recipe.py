"""`Recipe`: what a training run is made of, from a TOML file and `key=value` words of the command line.

    model = "bert-base-cased"
    [data]
    train = "rajpurkar/squad_v2:train"
    evaluate = "rajpurkar/squad_v2"
    [tuning]
    kind = "adapters"
    size = 64
    [optimisation]
    rate = 3e-4

Every key has a default but `model` and `data.train`. An unknown key is an error that names the nearest known one.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any

from quoth.config import check_value, dump_toml, fill, flat, read_table, set_key
from quoth.tasks.settings import Data
from quoth.train.settings import Checkpoints, Evaluation, Frozen, OfOne, Optimisation, check_learning

NAME = re.compile(r"\w[\w+ -]*")  # of a head: it is a folder's name, and a part of words such as frozen.heads.lp.rate
TAKEN = ("encoder", "checkpoints", "cache", "tensorboard")  # what else lies in the folder of a stage


@dataclass(frozen=True)
class Recipe:
    """A training run, described whole: `tuning` as in `quoth.tune`, `head` (or its line) as in `quoth.heads`."""

    model: str
    data: Data
    seed: int = 0
    tuning: dict[str, Any] = field(default_factory=lambda: {"kind": "full"})
    head: Any = field(default_factory=lambda: {"kind": "span"})
    optimisation: Optimisation = field(default_factory=Optimisation)
    frozen: Frozen = field(default_factory=Frozen)
    evaluation: Evaluation = field(default_factory=Evaluation)
    checkpoints: Checkpoints = field(default_factory=Checkpoints)

    def __post_init__(self) -> None:
        """Refuse values that no run can be made of."""
        o, d, f = self.optimisation, self.data, self.frozen
        check_value(bool(d.train), "data.train", d.train, "name at least one file or hub dataset")
        check_value(0 < d.fraction <= 1, "data.fraction", d.fraction, "above 0, at most 1")
        d.negatives.check(d.task)
        check_value(self.seed >= 0, "seed", self.seed, "not negative")
        idle = o.epochs == 0 and bool(f.heads)  # heads on the encoder as it is
        check_value(o.epochs > 0 or idle, "optimisation.epochs", o.epochs, "above 0, or 0 with frozen.heads")
        check_value(o.accumulate > 0, "optimisation.accumulate", o.accumulate, "at least 1")
        check_value(0 <= (o.dropout or 0) < 1, "optimisation.dropout", o.dropout, "at least 0, below 1")
        check_learning("optimisation", o)
        _check_head("head", self.head)
        self._check_pretrain()
        self._check_frozen()
        longest, seconds = self.evaluation.max_answer_tokens, self.checkpoints.seconds
        check_value(longest > 0, "evaluation.max_answer_tokens", longest, "at least 1")
        check_value(seconds >= 0, "checkpoints.seconds", seconds, "not negative")
        for at in (*self.evaluation.at, *self.evaluation.snapshots):
            check_value(0 < at <= o.epochs, "evaluation.at, snapshots", at, f"above 0, at most {o.epochs:g} epochs")

    def _check_pretrain(self) -> None:
        d, text = self.data, self.data.task == "pretrain"
        check_value(0 <= d.held_out < 1, "data.held_out", d.held_out, "at least 0, below 1")
        check_value(text or not d.held_out, "data.held_out", d.held_out, "0 but for data.task 'pretrain'")
        check_value(not (d.held_out and d.evaluate), "data.held_out", d.held_out, "0 where data.evaluate names a text")
        check_value(
            not (text and self.frozen.heads), "frozen.heads", self.frozen.heads, "empty with data.task 'pretrain'"
        )
        mlm = isinstance(self.head, Mapping) and self.head.get("kind") == "mlm"
        check_value(mlm == text, "head", self.head, '{ kind = "mlm" } with data.task "pretrain", and only there')
        rest = set(self.head) - {"kind", "following"} if mlm else set()
        check_value(
            not rest, "head", self.head, '{ kind = "mlm" }, or with following = false; the model gives its sizes'
        )
        if mlm:
            check_value(type(self.following) is bool, "head.following", self.following, "true or false")

    @property
    def following(self) -> Any:
        """Of pre-training: whether the next piece is an objective, beside masked words."""
        return self.head.get("following", True)

    def _check_frozen(self) -> None:
        f, epochs = self.frozen, self.optimisation.epochs
        check_value(f.epochs > 0, "frozen.epochs", f.epochs, "above 0")
        check_learning("frozen", f)
        for at in f.at:
            check_value(0 <= at <= epochs, "frozen.at", at, f"at least 0, at most {epochs:g} epochs")
        for at in f.evaluate:
            check_value(0 < at <= f.epochs, "frozen.evaluate", at, f"above 0, at most {f.epochs:g} epochs")
        check_value(f.cache >= 0, "frozen.cache", f.cache, "not negative")
        of_first = self.data.task != "span"
        check_value(
            f.cache == 0 or of_first, "frozen.cache", f.cache, "0 with data.task 'span', which reads every token"
        )
        for name in f.heads:
            good = NAME.fullmatch(name) and name.strip() == name and name not in TAKEN
            wanted = f"of letters, digits, _, +, - and spaces between them, and none of {', '.join(TAKEN)}"
            check_value(bool(good), "the name of a head in frozen.heads", name, wanted)
        for name, (head, settings) in f.each().items():
            _check_head(f"frozen.heads.{name}", head)
            check_learning(f"frozen.heads.{name}", settings)
            for at in settings.at:
                check_value(at in (f.at or (epochs,)), f"frozen.heads.{name}.at", at, "one of the epochs of frozen.at")

    def to_toml(self) -> str:
        """The recipe with all defaults written out; reads back as the same recipe."""
        return dump_toml(asdict(self))

    def differences(self, other: Recipe) -> list[str]:
        """The keys in which two recipes differ, each with both values."""
        mine, theirs = flat(asdict(self)), flat(asdict(other))
        keys = [*mine, *(key for key in theirs if key not in mine)]
        return [f"{k}: {mine.get(k)!r}, {theirs.get(k)!r}" for k in keys if mine.get(k) != theirs.get(k)]


def read_recipe(path: str | Path, words: Sequence[str] = ()) -> Recipe:
    """Read a recipe, with words like `optimisation.rate=1e-4` laid over it."""
    return make_recipe(read_table(path, words, override), str(path))


def make_recipe(table: Mapping[str, Any], where: str = "recipe") -> Recipe:
    """A recipe from a table of tables."""
    return fill(Recipe, table, where)


def override(table: dict[str, Any], word: str) -> None:
    """Change one key of a recipe's table, key=value; a head of `frozen.heads` may get a setting of its own so."""
    *path, last = word.partition("=")[0].split(".")
    heads = table.get("frozen", {}).get("heads", {}) if path[:2] == ["frozen", "heads"] and len(path) == 3 else {}
    if path and path[-1] in heads and _wants_room(heads[path[-1]], last):
        heads[path[-1]] = {"head": heads[path[-1]]}
    set_key(table, word)


def _wants_room(head: Any, key: str) -> bool:
    """Whether a head of `Frozen` is its line or table alone, with no room for a setting such as `rate`."""
    settings = {f.name for f in fields(OfOne)} - {"head"}
    return isinstance(head, str) or (isinstance(head, dict) and "kind" in head and key in settings)


def _check_head(where: str, value: Any) -> None:
    check_value(isinstance(value, str | Mapping), where, value, "a line or a table of a head; see docs/heads.md")
