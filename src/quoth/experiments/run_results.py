"""What runs have left behind, read without torch: a `Result` for each model that a run has scored.

- a run of `quoth train`: its model, and each head on its frozen states
- a run of `quoth prune`: the model of each target
- a sweep: all its runs that have finished

What a file does not say is None; nothing is made up.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from quoth.config import read_table
from quoth.errors import QuothError
from quoth.files import read_object
from quoth.score import file_bytes

METRICS, RECIPE, SWEEP, ANSWERS = "metrics.json", "recipe.toml", "sweep.json", ("answers.jsonl.gz", "answers.jsonl")
SCORES = "scores.json.gz"
SEED = re.compile(r"[-_. ]?seed[-_. =]?\d+$", re.IGNORECASE)
COSTS = ("trainable_parameters", "total_parameters", "train_seconds", "inference_seconds", "bytes", "peak_memory")

LARGEST = 1e18  # of costs and sizes

Table = dict[str, Any]


@dataclass(frozen=True)
class Result:
    """A model that was scored.

    folder: of the run, or of the head or target in it; name: of its method; recipe: flat, without what does not matter
    part: "" for the run's own model, else what it is in the run; key: equal for the seeds of one method
    costs: by the names of `COSTS`; curve: (epoch, scores) of each evaluation
    head_curve: the same of a head on frozen states, by its own epochs
    layers: sizes of a pruned encoder's; unpruned: those of what it was cut from; hidden: its hidden size
    answers, scores: the files of its answers, and of their scores where runs are stored
    data: what was evaluated on, as the recipe names it
    machine: what times and memory were measured on, in words
    """

    folder: Path
    name: str
    part: str
    seed: int
    key: str
    recipe: Table
    quality: dict[str, float]
    costs: dict[str, float | None]
    curve: tuple[tuple[float, dict[str, float]], ...] = ()
    layer_weights: dict[str, list[float]] = field(default_factory=dict)
    layers: tuple[dict[str, int], ...] = ()
    unpruned: tuple[dict[str, int], ...] = ()
    hidden: int | None = None
    head_curve: tuple[tuple[float, dict[str, float]], ...] = ()
    answers: Path | None = None
    scores: Path | None = None
    data: str = ""
    machine: str = ""


@dataclass(frozen=True)
class Unfinished:
    """A run of a sweep that has no metrics, and why."""

    folder: Path
    why: str


def read_results(folders: Sequence[str | Path]) -> tuple[list[Result], list[Unfinished]]:
    """The results of run folders and sweep folders, at least one; a run that is named twice counts once."""
    found, unfinished = read_finished(folders)
    if not found:
        why = f" ({unfinished[0].folder.name}: {unfinished[0].why})" if unfinished else ""
        raise QuothError(f"{folders[0]}: no run has finished{why}")
    return found, unfinished


def read_finished(folders: Sequence[str | Path]) -> tuple[list[Result], list[Unfinished]]:
    """The same where there may be none."""
    found: list[Result] = []
    unfinished: list[Unfinished] = []
    seen: set[Path] = set()
    for run, method in (pair for folder in folders for pair in _runs(Path(folder), unfinished)):
        if run.resolve() not in seen:
            seen.add(run.resolve())
            found += _results(run, method)
    return found, unfinished


def sweeps_in(folder: Path) -> list[Path]:
    """A run, a sweep, or those that lie in a folder of such."""
    if not folder.is_dir() or (folder / SWEEP).exists() or (folder / METRICS).exists():
        return [folder]
    below = sorted(path.parent for name in (SWEEP, METRICS) for path in folder.glob(f"*/{name}"))
    return list(dict.fromkeys(below)) or [folder]


def _runs(folder: Path, unfinished: list[Unfinished]) -> Iterator[tuple[Path, str]]:
    """A run folder, or the finished ones of a sweep with the names of their methods."""
    if not folder.is_dir():
        raise QuothError(f"{folder}: {'is not a folder' if folder.exists() else 'no such folder'}; name a run or sweep")
    if not (folder / SWEEP).exists():
        if not (folder / METRICS).exists():
            raise QuothError(
                f"{folder}: has no {METRICS} and no {SWEEP}; name the folder of a finished run, or a sweep"
            )
        yield folder, ""
        return
    with known(folder / SWEEP):
        runs = [
            (folder / text(run["folder"]), text(run["method"]), text(run["state"]), text(run["error"]))
            for run in read_object(folder / SWEEP)["runs"]
        ]
    for path, method, state, error in runs:
        if (path / METRICS).exists():
            yield path, method
        else:
            unfinished.append(Unfinished(path, error or state))


def _results(run: Path, method: str) -> Iterator[Result]:
    metrics = read_object(run / METRICS)
    recipe = read_table(run / RECIPE) if (run / RECIPE).exists() else {}
    name = method or SEED.sub("", run.resolve().name) or run.resolve().name
    with known(run / METRICS):
        if "targets" in metrics:
            yield from _pruned(run, name, metrics, recipe)
        else:
            yield from _trained(run, name, metrics, recipe)


def _trained(run: Path, name: str, metrics: Table, recipe: Table) -> Iterator[Result]:
    seed = whole(metrics.get("seed", 0))
    shared = _shared(recipe)
    costs = {cost: number(metrics.get(cost)) for cost in COSTS}
    stages, own_quality = metrics.get("frozen", {}), scores(metrics["quality"])
    if own_quality or not stages:  # else the encoder was only loaded, for the heads on it
        yield Result(
            run, name, "", seed, _key(run, shared, ""), shared, own_quality, costs,
            curve=_curve(metrics.get("evaluations", [])),
            layer_weights=weights(metrics.get("layer_weights", {})), answers=_answers(run), scores=_scores(run),
            data=_evaluated_on(recipe), machine=_machine(metrics),
        )  # fmt: skip
    for epoch, stage in stages.items():
        when = f" at epoch {float(epoch):g}" if len(stages) > 1 else ""
        for head, facts in stage["heads"].items():
            if head == "encoder" and own_quality and float(epoch) == float(metrics["epochs"]):
                continue  # the model of the run, which is there already
            folder = run / "frozen" / f"epoch-{text(epoch)}" / text(head)
            part = f"{head}{when}"
            own: dict[str, float | None] = dict.fromkeys(COSTS)
            own["trainable_parameters"] = number(facts.get("parameters"))
            own["bytes"] = number(facts.get("bytes", _model_bytes(folder)))
            yield Result(
                folder, name, part, seed, _key(run, shared, part), shared, scores(facts["quality"]), own,
                layer_weights=weights(facts.get("layer_weights", {})), answers=_answers(folder), scores=_scores(folder),
                data=_evaluated_on(recipe), head_curve=_curve(facts.get("curve", [])),
            )  # fmt: skip


def _pruned(run: Path, name: str, metrics: Table, recipe: Table) -> Iterator[Result]:
    seed, shared = whole(recipe.get("seed", 0)), _shared(recipe)
    before = _layers(metrics["unpruned"]["shape"]) if "unpruned" in metrics else ()
    for target, facts in metrics["targets"].items():
        quality = facts.get("quality", {})
        folder = run / text(target)
        costs: dict[str, float | None] = dict.fromkeys(COSTS)
        costs["total_parameters"] = number(facts["parameters"])
        costs["inference_seconds"] = number(quality.get("seconds"))
        costs["bytes"] = _model_bytes(folder)
        layers = _layers(facts["shape"])
        yield Result(
            folder, name, text(target), seed, _key(run, shared, target), shared, scores(quality), costs,
            layers=layers, unpruned=before, hidden=_hidden(facts["shape"]),
            answers=_answers(folder), scores=_scores(folder), data=_evaluated_on(recipe),
        )  # fmt: skip


def _hidden(shape: Table) -> int | None:
    return whole(shape["hidden"]) if "hidden" in shape else None


def _model_bytes(folder: Path) -> float | None:
    """What the model in a folder takes on disk, if it is there."""
    return float(file_bytes(folder / "model")) if (folder / "model").is_dir() else None


def _shared(recipe: Table) -> Table:
    """The recipe without its seed, and without where logits and checkpoints are kept."""
    kept = {key: value for key, value in recipe.items() if key not in ("seed", "checkpoints")}
    if isinstance(kept.get("distillation"), dict):
        kept["distillation"] = {k: v for k, v in kept["distillation"].items() if k not in ("cache_folder", "cache_gb")}
    return kept


def _key(run: Path, shared: Table, part: str) -> str:
    """Equal for runs that differ in their seed alone; without a recipe a run is alone."""
    return json.dumps([shared or str(run.resolve()), part], sort_keys=True)


def _answers(folder: Path) -> Path | None:
    return next((folder / name for name in ANSWERS if (folder / name).exists()), None)


def _scores(folder: Path) -> Path | None:
    return folder / SCORES if (folder / SCORES).exists() else None


def _curve(points: Sequence[Table]) -> tuple[tuple[float, dict[str, float]], ...]:
    """(epoch, scores) of each evaluation."""
    return tuple((finite(point["epoch"]), scores(point)) for point in points)


def _layers(shape: Table) -> tuple[dict[str, int], ...]:
    """The sizes of each layer."""
    return tuple({key: whole(size) for key, size in layer.items()} for layer in shape["layers"])


def _evaluated_on(recipe: Table) -> str:
    section = recipe.get("data")
    source = section.get("evaluate") if isinstance(section, dict) else ""
    return source if isinstance(source, str) else ""


def _machine(metrics: Table) -> str:
    """The device in words: "NVIDIA H200, bf16", or the CPU with the threads that were used."""
    hardware = metrics.get("hardware") or {}
    if metrics.get("device") == "cuda":
        return f"{text(hardware.get('gpu') or 'a GPU')}, {text(metrics.get('precision', ''))}"
    threads = whole(metrics.get("threads", 1))
    return f"{text(hardware.get('cpu') or 'a CPU')}, {threads} thread{'s' if threads > 1 else ''}"


def number(value: Any) -> float | None:
    """A number that is not negative, or None."""
    if value is None:
        return None
    if type(value) not in (int, float) or not 0 <= value <= LARGEST:
        raise ValueError(value)
    return value  # type: ignore[no-any-return]


def whole(value: Any) -> int:
    """A whole number."""
    if type(value) is not int or abs(value) > LARGEST:
        raise ValueError(value)
    return value


def text(value: Any) -> str:
    """A text."""
    if not isinstance(value, str):
        raise TypeError(value)
    return value


def scores(quality: Mapping[str, Any]) -> dict[str, float]:
    """The finite numbers of a table of scores; a threshold may be none."""
    return {key: float(x) for key, x in quality.items() if type(x) in (int, float) and math.isfinite(x)}


def weights(found: Mapping[str, Any]) -> dict[str, list[float]]:
    """Layer weights by name."""
    return {name: [finite(x) for x in values] for name, values in found.items()}


def finite(value: Any) -> float:
    """A number that is no infinity and not NaN."""
    if type(value) not in (int, float) or not math.isfinite(value):
        raise ValueError(value)
    return float(value)


@contextmanager
def known(path: Path) -> Iterator[None]:
    """What is wrong inside a file becomes one line that names it."""
    try:
        yield
    except QuothError:  # names what is wrong already
        raise
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError) as error:
        line = f"{path}: is not what Quoth writes there ({error!r:.100}); was it changed by hand?"
        raise QuothError(line) from None
