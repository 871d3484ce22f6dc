"""`reproduce`: a table or figure of a paper with the numbers in print beside those of finished runs, and verdicts.

What is judged are the claims of the table, differences between its rows, by the rule of `quoth.experiments.verdicts`:
another encoder on other data has other scores, but the paper says that a difference is there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from statistics import mean
from typing import Any

from quoth.data import Dataset
from quoth.experiments.compare_answers import SHARES, Answers, error_shares, read_shares, score_answers
from quoth.experiments.paper_items import Item, chosen_rows, find_item
from quoth.experiments.reproduce_claims import claims_facts, interval_of
from quoth.experiments.reproduce_drawing import drawing
from quoth.experiments.reproduce_values import Finished, Found, find_row
from quoth.experiments.run_results import Result
from quoth.experiments.verdicts import LEVEL

Facts = dict[str, Any]

RULE = (
    f"A claim is confirmed if a test over seeds and questions, corrected by Holm's method for all claims of the table, "
    f"rejects its opposite (p < {LEVEL:g}); refuted if it rejects the claim; else it is within noise."
)


def reproduce_facts(
    name: str,
    folders: Sequence[str | Path],
    questions: Callable[[str], Dataset | None] = lambda source: None,
    rows: tuple[str, ...] = (),
    tasks: tuple[str, ...] = (),
) -> Facts:
    """What `quoth reproduce PAPER/ITEM --json` prints of the finished runs in these folders, earlier ones first.

    questions(source): those that were evaluated on, as recipes name them; without them only stored scores and seeds
    say what is noise
    """
    _, paper, item = find_item(name)
    finished = Finished(paper)
    for folder in folders:
        finished.add(Path(folder))
    return item_facts(name, item, finished, questions, rows, tasks or finished.tasks)


def item_facts(
    name: str,
    item: Item,
    finished: Finished,
    questions: Callable[[str], Dataset | None],
    rows: tuple[str, ...],
    tasks: tuple[str, ...],
) -> Facts:
    """The same of the runs of a paper that have been read."""
    every = find_rows(item, finished, rows, tasks)
    found = {one.row.name: one for one in every}
    compared = list(_distinct(every))
    source = next((result.data for result in compared if result.answers), None)
    dataset = questions(source) if source else None
    answers = score_answers(dataset, compared)
    analysis = _analysis(every, dataset) if set(SHARES) & set(item.columns) else {}
    return {
        "item": name,
        "paper": finished.paper.title,
        "title": item.title,
        "shows": item.shows,
        "note": item.note,
        "columns": [column for column in item.columns if not column.endswith("_curve")],
        "curves": [column.removesuffix("_curve") for column in item.columns if column.endswith("_curve")],
        "by": item.by,
        "settings": settings_facts(every),
        "rows": [_row_facts(one, answers, analysis.get(one.row.name, {})) for one in every],
        "claims": claims_facts(item, found, answers),
        "drawing": drawing(item, finished.paper, every, answers),
        "rule": RULE,
    }


def find_rows(item: Item, finished: Finished, rows: tuple[str, ...], tasks: tuple[str, ...]) -> list[Found]:
    """The numbers of its rows."""
    return [find_row(finished, row, item.columns, tasks) for row in chosen_rows(item, rows)]


def _distinct(every: Sequence[Found]) -> Iterator[Result]:
    """All results whose answers are compared, each once."""
    known = {str(result.folder): result for one in every for result in one.results if result.answers or result.scores}
    yield from known.values()


def settings_facts(every: Sequence[Found]) -> list[str]:
    """In words what the runs were trained with: the encoder, data, epochs, seeds; a line where rows differ."""
    lines: dict[str, None] = {}
    for one in every:
        for result in {result.name: result for result in one.runs}.values():
            lines[f"{_trained(result.recipe)}, {len(one.seeds)} seed{'s' if len(one.seeds) > 1 else ''}"] = None
    return list(lines)


def _trained(recipe: Facts) -> str:
    """The encoder, the epochs, and the data of training and evaluation."""
    data, trained = recipe.get("data", {}), recipe.get("optimisation", {})
    epochs = "pruned"
    if "epochs" in trained:
        epochs = f"{trained['epochs']:g} epoch{'' if trained['epochs'] == 1 else 's'}"
    names = data.get("train") or "?"
    train = ", ".join(names) if isinstance(names, list) else str(names)
    part = f" ({100 * data['fraction']:g} %)" if data.get("fraction", 1) != 1 else ""
    return f"{recipe.get('model', '?')}, {epochs} of {train}{part}, scored on {data.get('evaluate') or 'held-out text'}"


def _row_facts(found: Found, answers: Answers | None, analysis: Facts) -> Facts:
    """A row: the numbers in print, and the mean, the interval and each seed's of what was found."""
    row = found.row
    columns = {}
    for column, values in found.values.items():
        columns[column] = {"mean": mean(values), "interval": interval_of(found, column, answers), "seeds": values}
    return {
        "name": row.name,
        "paper": {**row.paper, **({"sizes": row.sizes} if row.sizes else {})},
        "found": {
            **columns,
            **{key: {"mean": value, "interval": None, "seeds": []} for key, value in analysis.items()},
        },
        "runs": [str(one.folder) for one in found.runs],
        "seeds": list(found.seeds),
        "curves": {name: [list(map(list, curve)) for curve in each] for name, each in found.curves.items()},
        "layer_weights": found.results[0].layer_weights if found.results else {},
        "sizes": [{"hidden": one.hidden, "layers": list(one.layers)} for one in found.results if one.layers],
        "why": found.why,
    }


def _analysis(every: Sequence[Found], dataset: Dataset | None) -> dict[str, Facts]:
    """Of the first seed, in per cent: how many wrong answers are "no answer", how often the second is right."""
    found = {}
    for one in every:
        first = one.results[0] if one.results else None
        if first and first.answers and dataset:
            found[one.row.name] = error_shares(dataset, first.answers)
        elif first and first.scores:
            found[one.row.name] = read_shares(first.scores)
    return {name: {key: value for key, value in shares.items() if value is not None} for name, shares in found.items()}
