"""`model_card`: what a reader is made of, how good it is and where it ends, in Markdown, from what its build told."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

KNOWN = (  # limits of every reader
    "It copies words that stand in the text together: it does not count, compare, or join what stands apart.",
    "Whether there is an answer at all is what it is worst at. What it abstains by suits questions like those that it "
    "was fitted on; fit a calibration on your own (`quoth calibrate DATA --model FOLDER`), or give `--min-score`.",
)
PARTS = {"all": "all", "first_half": "first half", "second_half": "the rest"}  # of a calibration set
Facts = Mapping[str, Any]


@dataclass(frozen=True)
class Card:
    """What no run can know. licences: of the model and the data that it was made from; limits: each one a sentence."""

    title: str = "A small reader"
    licences: tuple[str, ...] = ()
    limits: tuple[str, ...] = ()


def model_card(facts: Facts, card: Card, recipe: str) -> str:
    """The card of a reader. facts: as in build.json; recipe: as TOML."""
    parts = (
        f"# {card.title}",
        "It answers questions in the words of a text, says where they stand, and says so when they are not there. It "
        "needs onnxruntime, tokenizers and numpy, and no GPU: `Reader.load(FOLDER)`, or `quoth ask QUESTION FILE "
        "--model FOLDER`.",
        "## Scores",
        *_scores(facts),
        *(_calibration(facts["calibration"]["cross_fitted"]) if "calibration" in facts else ()),
        "## Size",
        _size(facts),
        "## How it was made",
        *_making(facts),
        f"```toml\n{recipe.strip()}\n```",
        "## Data and licences",
        _data(facts["data"]),
        _list(card.licences) or "Licences are not stated.",
        "## Limits",
        _list((*KNOWN, *card.limits)),
    )
    return "\n\n".join(parts) + "\n"


def _scores(facts: Facts) -> list[str]:
    quality, exported, fitted = facts["quality"], facts["exported"], facts["abstention"]["fitted"]
    keys = ("f1", "HasAns_f1", "NoAns_f1", "answered_f1")
    rows: list[tuple[Any, ...]] = []
    for name, stage in facts["stages"].items():
        answered = stage["quality"].get("answered_f1")
        rows.append((f"{name}, at its best threshold", stage["quality"].get("best_f1"), None, None, answered))
    rows.append(("**this model**, at its own threshold", *(quality.get(key) for key in keys)))
    crossed = facts["cross_fitted"]
    if crossed:
        halves = "the same, each half of the articles at the other's threshold"
        rows.append((halves, *(crossed[key] for key in keys[:3]), None))
    head = ("official F1", "all", "with an answer", "without", 'with an answer, "no answer" switched off')
    compared = f"F1 {_score(exported['f1'])} in float32"
    if exported["int8_f1"] is not None:
        compared += f", {_score(exported['int8_f1'])} in int8"
    return [
        f"On {fitted['data']}, {fitted['questions']:,} questions. Nothing was trained on it, but the threshold, "
        f"{facts['abstention']['threshold']:.3f}, was fitted on it.",
        _table(head, [(name, *map(_score, values)) for name, *values in rows]),
        f"At one threshold, which is best before quantising: {compared}. In float32 logits are torch's to within "
        f"{exported['difference']:.1e}.",
    ]


def _calibration(sets: Facts) -> list[str]:
    """Scores at the calibration, on all of each set and on halves of it; and how far probabilities come true."""
    head = ["set", "articles", "questions", "F1", "with an answer", "without", "with an answer, always answering"]
    head += ["F1, the set left out of the fit", "ECE", "right at 80 % coverage", "AURC"]
    rows = []
    for name, found in sets.items():
        for key, what in PARTS.items():
            one = found if key == "all" else found.get(key)
            if one:
                left = one.get("left_out_f1")
                scores = (one["f1"], one["HasAns_f1"], one["NoAns_f1"], one["answered_f1"], left)
                rows.append((name, what, f"{one['questions']:,}", *map(_score, scores), *_selective(one)))
    bins = max(len(found["reliability"]) for found in sets.values())
    told = [(name, *(f"{p:.2f} / {share:.2f}" for _, p, share in found["reliability"])) for name, found in sets.items()]
    told = [(*row, *("" for _ in range(bins + 1 - len(row)))) for row in told]
    mean = sum(found["f1"] for found in sets.values()) / len(sets)
    weights = [found.get("weight", 1.0) for found in sets.values()]
    how = "equal weight" if len(set(weights)) == 1 else f"the weights {', '.join(f'{one:g}' for one in weights)}"
    return [
        "### Calibrated",
        f'It abstains by its calibration (`quoth calibrate`): if "no answer" is more probable than that its answer is '
        f"right, which is an F1 of 0.5 or more. It is fitted on {_count(len(sets), 'set')} with {how}. Scores "
        f"are cross-fitted: those of an article are by a fit that has not seen it. The mean F1 of all is {mean:.2f}.",
        _table(head, rows, texts=2),
        "The first half of each set's articles, in the order of its file, is for choosing among variants; the rest is "
        "for reporting. ECE: expected calibration error, ten bins of equal mass. "
        "AURC: area under risk and coverage, lower is better. Both it and the share that is right at 80 % coverage are "
        "given for the raw margin → the calibrated probability.",
        "Mean probability / share that was right, in ten bins of equal mass:",
        _table(("set", *map(str, range(1, bins + 1))), told),
    ]


def _selective(one: Facts) -> tuple[str, ...]:
    raw = one["raw"]
    return (
        f"{one['expected_calibration_error']:.3f}",
        f"{100 * raw['accuracy_at_80']:.1f} → {100 * one['accuracy_at_80']:.1f}",
        f"{raw['area_under_risk_coverage']:.3f} → {one['area_under_risk_coverage']:.3f}",
    )


def _size(facts: Facts) -> str:
    exported, stages = facts["exported"], facts["stages"]
    small = f"{exported['int8_bytes'] / 1e6:.1f} MB in int8, " if exported["int8_bytes"] is not None else ""
    before = ", ".join(f"{name} {stage['parameters']:,}" for name, stage in stages.items())
    return f"{facts['parameters']:,} parameters: {small}{exported['bytes'] / 1e6:.1f} MB in float32. Stages: {before}."


def _making(facts: Facts) -> list[str]:
    machine, stages, seconds = facts["hardware"], facts["stages"], facts["seconds"]
    minutes = [(name, f"{value / 60:.1f}") for name, value in seconds.items()]
    made = [
        f"{what}: {', '.join(f'{count:,} {name}' for name, count in facts[key].items())}."
        for key, what in (
            ("negatives", "Unanswerable questions made of the training data"),
            ("unlabelled", "Pairs of question and passage without a label"),
        )
        if facts[key]
    ]
    versions = ", ".join(f"{name} {number}" for name, number in facts["versions"].items() if number)
    teachers = [name for name in stages if name.startswith("teacher")]
    steps = [f"{_count(len(teachers), 'teacher')} tuned"]
    steps += ["a student trained on teacher logits"] if "student" in stages else []
    steps += ["cut by trained gates and trained again by distillation"] if "cut" in stages else []
    form = "int8" if facts["exported"]["int8_bytes"] is not None else "float32"
    steps += [f"exported in {form}", *(["calibrated"] if "calibration" in facts else [])]
    processor = f"{machine['cpu']}, {machine['cores']} cores"
    return [
        f"By `quoth build` with the recipe below: {', '.join(steps)}.",
        _table(("stage", "minutes"), [*minutes, ("all", f"{sum(seconds.values()) / 60:.1f}")]),
        " ".join([f"On {machine['gpu'] + ' and ' if machine['gpu'] else ''}{processor}. {versions}.", *made]),
    ]


def _data(counts: Sequence[Facts]) -> str:
    rows = [(row["source"], row["use"], f"{row['questions']:,}", f"{row['unanswerable']:,}") for row in counts]
    return _table(("data", "for", "questions", "without an answer"), rows, texts=2)


def _table(head: Sequence[str], rows: Iterable[Sequence[str]], texts: int = 1) -> str:
    """texts: how many columns, the first ones, are no numbers."""
    lines = [head, ("---",) * texts + ("---:",) * (len(head) - texts), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def _list(lines: Iterable[str]) -> str:
    return "\n".join(f"- {line}" for line in lines)


def _count(number: int, what: str) -> str:
    return f"{number} {what}{'' if number == 1 else 's'}"


def _score(value: float | None) -> str:
    return "" if value is None else f"{value:.2f}"
