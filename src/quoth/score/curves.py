"""The learning curves of heads on a frozen encoder, from the files of their stages.

A stage is a folder such as RUN/frozen/epoch-0.3; its metrics.json has a `curve` for each head where the recipe named
`frozen.evaluate`.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from quoth.errors import QuothError
from quoth.files import read_json

ENCODER = "encoder"
SPANS = ("f1", "best_f1")  # of all that is known of answers, what is shown


def read_curves(folders: list[Path]) -> dict[str, Any]:
    """The curves of stages, or of all stages of runs: what `quoth analyse --curves --json` prints.

    - stages: of each its folder, the `metrics` shown, the `epochs` of the heads at which they were scored, and
      `heads`: by name, for each of these epochs `epoch`, `step` and all scores
    - encoder: the scores of the encoder's own head, where it has one
    """
    return {"stages": [_stage(stage) for folder in folders for stage in _stages(folder)]}


def _stages(folder: Path) -> list[Path]:
    if not folder.is_dir():
        raise QuothError(f"{folder}: {'is not a folder' if folder.exists() else 'no such folder'}; name a run folder")
    if not (folder / "frozen").is_dir():
        return [folder]
    stages = [path for path in (folder / "frozen").iterdir() if path.name.startswith("epoch-")]
    if not stages:
        raise QuothError(f"{folder / 'frozen'}: has no epoch-…; the run has not come to its heads yet")
    return sorted(stages, key=_epoch)


def _epoch(stage: Path) -> float:
    try:
        return float(stage.name.removeprefix("epoch-"))
    except ValueError:
        raise QuothError(f"{stage}: is not a stage of frozen heads, such as RUN/frozen/epoch-0.3") from None


def _stage(stage: Path) -> dict[str, Any]:
    path = stage / "metrics.json"
    if not path.exists():
        hint = "the stage has not ended" if (stage / "log.jsonl").exists() else "name RUN or RUN/frozen/epoch-0.3"
        raise QuothError(f"{stage}: has no metrics.json; {hint}")
    facts = read_json(path)
    heads = facts.get("heads") if isinstance(facts, dict) else None
    if not isinstance(heads, dict) or not all(isinstance(head, dict) for head in heads.values()):
        raise QuothError(f"{path}: has no heads; --curves wants a run with frozen.heads, or one of its stages")
    curves = {name: head["curve"] for name, head in heads.items() if "curve" in head}
    if not curves:
        raise QuothError(f"{stage}: its heads were scored once only; name epochs in frozen.evaluate")
    try:
        first = next(iter(curves.values()))
        metrics, epochs = _metrics(first[0]), [look["epoch"] for look in first]
        for curve in curves.values():
            _check(curve, epochs, metrics)
        own = {"encoder": heads[ENCODER]["quality"]} if ENCODER in heads else {}
        _check([{"epoch": 0.0, **scores} for scores in own.values()], [0.0] * len(own), metrics)
        return {"stage": str(stage), "metrics": metrics, "epochs": epochs, "heads": curves, **own}
    except (KeyError, TypeError, ValueError, IndexError, AttributeError) as error:
        raise QuothError(f"{path}: a curve in it is not complete ({error!r}); was it changed by hand?") from None


def _metrics(scores: dict[str, Any]) -> list[str]:
    """Of answers F1, at the threshold and at the best one; of classes all of the task's metrics."""
    if "total" in scores:
        return [name for name in SPANS if name in scores]
    return [name for name in scores if name not in ("epoch", "step")]


def _check(curve: list[dict[str, Any]], epochs: list[float], metrics: list[str]) -> None:
    for look, epoch in zip(curve, epochs, strict=True):
        if look["epoch"] != epoch or not all(isinstance(look[name], int | float) for name in ("epoch", *metrics)):
            raise ValueError(look)
