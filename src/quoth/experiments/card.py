"""`model_card`: what a reader is made of, how good it is and where it ends, in Markdown, from what its build told."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

KNOWN = (  # limits of every reader
    "It copies words that stand in the text together: it does not count, compare, or join what stands apart.",
    "Whether there is an answer at all is what it is worst at. The threshold suits the questions that it was fitted "
    "on; fit a calibration on your own (`quoth calibrate DATA --model FOLDER`), or give `--min-score`.",
)


@dataclass(frozen=True)
class Card:
    """What no run can know. licences: of the model and the data that it was made from; limits: each one a sentence."""

    title: str = "A small reader"
    licences: tuple[str, ...] = ()
    limits: tuple[str, ...] = ()


def model_card(facts: Mapping[str, Any], card: Card, recipe: str) -> str:
    """The card of a reader. facts: as in build.json; recipe: as TOML."""
    parts = (
        f"# {card.title}",
        "It answers questions in the words of a text, says where they stand, and says so when they are not there. It "
        "needs onnxruntime, tokenizers and numpy, and no GPU: `Reader.load(FOLDER)`, or `quoth ask QUESTION FILE "
        "--model FOLDER`.",
        "## Scores",
        *_scores(facts),
        "## Size",
        _size(facts),
        "## How it was made",
        *_making(facts),
        f"```toml\n{recipe.strip()}\n```",
        "## Data and licences",
        _list(card.licences) or "Not stated.",
        "## Limits",
        _list((*KNOWN, *card.limits)),
    )
    return "\n\n".join(parts) + "\n"


def _scores(facts: Mapping[str, Any]) -> list[str]:
    quality, stages, exported = facts["quality"], facts["stages"], facts["exported"]
    fitted = facts["abstention"]["fitted"]
    rows: list[tuple[Any, ...]] = []
    for name, stage in stages.items():
        answered = stage["quality"].get("answered_f1")
        rows.append((f"{name}, at its best threshold", stage["quality"].get("best_f1"), None, None, answered))
    rows.append(
        (
            "**this model**, at its own threshold",
            *(quality.get(k) for k in ("f1", "HasAns_f1", "NoAns_f1", "answered_f1")),
        )
    )
    crossed = facts["cross_fitted"]
    if crossed:
        keys = ("f1", "HasAns_f1", "NoAns_f1")
        rows.append(("the same, each half of the articles at the other's threshold", *(crossed[k] for k in keys), None))
    head = ("official F1", "all", "with an answer", "without", 'with an answer, "no answer" switched off')
    return [
        f"On {fitted['data']}, {fitted['questions']:,} questions. Nothing was trained on it, but the threshold, "
        f"{facts['abstention']['threshold']:.3f}, was fitted on it.",
        _table(head, [(name, *map(_score, values)) for name, *values in rows]),
        f"At one threshold, which is best before quantising: F1 {_score(exported['f1'])} in float32, "
        f"{_score(exported['int8_f1'])} in int8. In float32 logits are torch's to within {exported['difference']:.1e}.",
    ]


def _size(facts: Mapping[str, Any]) -> str:
    exported, teacher = facts["exported"], facts["stages"]["teacher"]
    return (
        f"{facts['parameters']:,} parameters: {exported['int8_bytes'] / 1e6:.1f} MB in int8, "
        f"{exported['bytes'] / 1e6:.1f} MB in float32. The teacher has {teacher['parameters']:,}."
    )


def _making(facts: Mapping[str, Any]) -> list[str]:
    machine = facts["hardware"]
    minutes = [(name, f"{seconds / 60:.1f}") for name, seconds in facts["seconds"].items()]
    total = sum(facts["seconds"].values()) / 60
    made = ", ".join(f"{count:,} {name}" for name, count in facts["negatives"].items())
    versions = ", ".join(f"{name} {number}" for name, number in facts["versions"].items() if number)
    return [
        "By `quoth build` with the recipe below: a teacher is tuned, cut by trained gates, distilled from what it was "
        "before, and exported in int8.",
        _table(("stage", "minutes"), [*minutes, ("all", f"{total:.1f}")]),
        f"On {machine['gpu'] or machine['cpu']}. {versions}."
        + (f" Unanswerable questions made of the training data: {made}." if made else ""),
    ]


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [head, ("---", *("---:" for _ in head[1:])), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def _list(lines: Iterable[str]) -> str:
    return "\n".join(f"- {line}" for line in lines)


def _score(value: float | None) -> str:
    return "" if value is None else f"{value:.2f}"
