"""Hyper-parameter search of the gates: γ, the learning rate of α and its steps, by Optuna's TPE (Bergstra et al. 2011).

    study = open_study("runs/small", Search(), seed=0)
    number, overrides = study.ask()     # 0, ("gates.gamma=0.00123", "gates.learning_rate=0.01", "gates.steps=200")
    study.tell(number, 81.3)                    # higher is better

The study lies in RUN/study.log, Optuna's journal: a line of JSON for each thing that happened.
Several trials may be out at once, and asking and telling may be done by processes one after the other: what was asked
for is remembered. One process at a time holds a study.
"""

from __future__ import annotations

import math
import warnings
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

from quoth.config import check_value
from quoth.errors import QuothError

NAME = "gates"
RANDOM = 6  # trials before TPE has anything to go by
KEYS = ("gamma", "learning_rate", "steps")

Row = dict[str, Any]  # number, gamma, learning_rate, steps, score, state


@dataclass(frozen=True)
class Search:
    """Where to search. The scale of gamma and learning_rate is logarithmic.

    trials: how many; 0 for no search
    gamma, learning_rate: low and high; steps: what to choose from
    epochs: of recovery, in a trial
    """

    trials: int = 0
    gamma: tuple[float, ...] = (1e-4, 3e-2)
    learning_rate: tuple[float, ...] = (1e-3, 5e-2)
    steps: tuple[int, ...] = (50, 100, 200, 400)
    epochs: float = 0.5

    def __post_init__(self) -> None:
        """Refuse a space with nothing in it."""
        check_value(self.trials >= 0, "hpo.trials", self.trials, "not negative")
        for key, span in (("hpo.gamma", self.gamma), ("hpo.learning_rate", self.learning_rate)):
            check_value(len(span) == 2, key, list(span), "[low, high]")
            check_value(0 < span[0] <= span[1], key, list(span), "[low, high], above 0 and low not above high")
        steps = list(self.steps)
        check_value(bool(steps), "hpo.steps", steps, "at least one number of steps, such as [100, 200]")
        check_value(min(steps) >= 1 and len(set(steps)) == len(steps), "hpo.steps", steps, "different, at least 1")
        check_value(math.isfinite(self.epochs) and self.epochs >= 0, "hpo.epochs", self.epochs, "not negative")

    def space(self) -> dict[str, list[float]]:
        """What a study cannot change on the way."""
        return {"gamma": list(self.gamma), "learning_rate": list(self.learning_rate), "steps": sorted(self.steps)}


class Study:
    """Trials by ask and tell. `open_study` makes one."""

    def __init__(self, optuna: ModuleType, study: Any, search: Search, seed: int) -> None:
        self._optuna, self._study, self._search, self._seed = optuna, study, search, seed
        self._steps = sorted(search.steps)
        states = optuna.trial.TrialState
        self._states = {states.COMPLETE: "complete", states.FAIL: "failed", states.RUNNING: "running"}
        for trial in self._trials():
            if self._states[trial.state] == "running" and len(trial.params) < len(KEYS):
                study.tell(trial.number, state=states.FAIL)  # killed while it was drawn: it was never run
        self._left = [row["number"] for row in self.table() if row["state"] == "running"]

    def ask(self) -> tuple[int, tuple[str, ...]]:
        """A trial to run: its number, and the overrides of the recipe.

        Trials that a process before this one asked for, and that were never told, come first, as they were.
        """
        if self._left:
            number = self._left.pop(0)
            return number, self.overrides(number)
        with _quiet():
            # drawn by seed and number, so that an interrupted study goes on as it would have
            seed = (self._seed * 1_000_003 + len(self._trials())) % 2**32
            self._study.sampler = self._optuna.samplers.TPESampler(
                n_startup_trials=RANDOM, multivariate=True, constant_liar=True, seed=seed
            )
            trial = self._study.ask()
            trial.suggest_float("gamma", *self._search.gamma, log=True)
            trial.suggest_float("learning_rate", *self._search.learning_rate, log=True)
            trial.suggest_int("steps", 0, len(self._steps) - 1)  # the place in the list: 200 lies between 100 and 400
        return trial.number, self.overrides(trial.number)

    def tell(self, number: int, score: float) -> None:
        """The score of a trial, higher being better. One that is no finite number fails the trial."""
        if not math.isfinite(score):
            return self.tell_failed(number)
        self._check(number)
        self._study.tell(number, float(score))

    def tell_failed(self, number: int) -> None:
        """The trial came to nothing."""
        self._check(number)
        self._study.tell(number, state=self._optuna.trial.TrialState.FAIL)

    def row(self, number: int) -> Row:
        """A trial: number, gamma, learning_rate, steps, score (None while it has none), state."""
        for row in self.table():
            if row["number"] == number:
                return row
        raise QuothError(f"trial {number}: the study has no such trial; ask for it first")

    def overrides(self, number: int) -> tuple[str, ...]:
        """The trial as overrides of a recipe."""
        row = self.row(number)
        return tuple(f"gates.{key}={row[key]!r}" for key in KEYS)

    def table(self) -> list[Row]:
        """All trials, in order. state: "complete", "failed" or "running"."""
        rows = []
        for trial in self._trials():
            if len(trial.params) < len(KEYS):
                continue
            values = {**trial.params, "steps": self._steps[trial.params["steps"]]}
            state = self._states[trial.state]
            rows.append({"number": trial.number, **values, "score": trial.value, "state": state})
        return rows

    @property
    def best(self) -> Row | None:
        """The complete trial with the highest score, the first of equals; None while there is none."""
        complete = [row for row in self.table() if row["state"] == "complete"]
        return max(complete, key=lambda row: (row["score"], -row["number"]), default=None)

    @property
    def done(self) -> int:
        """How many trials are complete."""
        return sum(row["state"] == "complete" for row in self.table())

    @property
    def over(self) -> int:
        """How many trials are complete or failed."""
        return sum(row["state"] != "running" for row in self.table())

    def _trials(self) -> list[Any]:
        return list(self._study.get_trials(deepcopy=False))

    def _check(self, number: int) -> None:
        state = self.row(number)["state"]
        if state != "running":
            raise QuothError(f"trial {number}: was told already ({state})")
        if number in self._left:  # asked for by a process before this one
            self._left.remove(number)


def need_optuna() -> ModuleType:
    """Optuna, or a line that says how to get it."""
    try:
        import optuna
    except ModuleNotFoundError:
        raise QuothError("the search needs optuna: pip install 'quoth[hpo]'") from None
    return optuna  # type: ignore[no-any-return]


def open_study(folder: str | Path, search: Search, seed: int = 0) -> Study:
    """The study of a run folder, FOLDER/study.log: a new one, or the one that is there, which goes on."""
    optuna = need_optuna()
    from optuna.storages import JournalStorage
    from optuna.storages.journal import JournalFileBackend, JournalFileOpenLock

    place = Path(folder) / "study.log"
    place.parent.mkdir(parents=True, exist_ok=True)
    _mend(place)
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    wanted = {**search.space(), "seed": seed}
    try:
        with _quiet():
            backend = JournalFileBackend(str(place), lock_obj=JournalFileOpenLock(str(place)))
            study = optuna.create_study(
                storage=JournalStorage(backend), study_name=NAME, direction="maximize", load_if_exists=True
            )
    except (ValueError, KeyError, AssertionError, TypeError, RecursionError):
        raise QuothError(f"{place}: is not a study; remove it, or choose another folder") from None
    found = study.user_attrs.get("space", wanted)
    if found != wanted:
        if not isinstance(found, dict):
            raise QuothError(f"{place}: is not a study of Quoth; remove it, or choose another folder")
        key = next((key for key in wanted if found.get(key) != wanted[key]), "space")
        raise QuothError(
            f"{place}: holds another search (there, here: {key}: {found.get(key)}, {wanted.get(key)}); "
            "choose another folder, or remove it"
        )
    if "space" not in study.user_attrs:
        study.set_user_attr("space", wanted)
    return Study(optuna, study, search, seed)


def _mend(place: Path) -> None:
    """Cut off a last line that a killed process left half-written: what is appended to it could not be read."""
    if place.exists():
        whole = place.read_bytes()
        end = whole.rfind(b"\n") + 1
        if end < len(whole):
            with place.open("r+b") as file:
                file.truncate(end)


def _quiet() -> warnings.catch_warnings:
    """Optuna 4 warns that arguments which it has had for years are experimental."""
    return warnings.catch_warnings(action="ignore")
