"""All tables and figures of the four papers from stored runs: what the report of `quoth reproduce --report` shows.

Nothing is trained, and torch is not needed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from quoth.data import Dataset
from quoth.experiments.paper_items import PAPERS, Item, read_paper
from quoth.experiments.reproduce import RULE, find_rows, item_facts
from quoth.experiments.reproduce_command import command_of
from quoth.experiments.reproduce_values import Finished
from quoth.experiments.run_results import read_finished

Facts = dict[str, Any]


def report_facts(folders: Sequence[Path], questions: Callable[[str], Dataset | None]) -> Facts:
    """What is stored of each item, all claims that can be tested, and what was not run.

    questions(source): those that runs were evaluated on, where runs are stored with answers and without their scores
    """
    stored = [read_finished([folder]) for folder in folders]
    papers: list[Facts] = []
    for name in PAPERS:
        finished = Finished(read_paper(name))
        for found, unfinished in stored:
            finished.take(found, unfinished)
        items = [_item(f"{name}/{key}", item, finished, questions) for key, item in finished.paper.items.items()]
        papers.append({"name": name, "title": finished.paper.title, "items": items})
    every: list[Facts] = [item for paper in papers for item in paper["items"]]
    claims: list[Facts] = [
        {"item": item["item"], "command": item["command"], **claim}
        for item in every if item["state"] == "run" for claim in item["claims"]
    ]  # fmt: skip
    facts = {"papers": papers, "claims": claims, "rule": RULE, "folders": [str(folder) for folder in folders]}
    return {**facts, "summary": _summary(every, claims)}


def _item(name: str, item: Item, finished: Finished, questions: Callable[[str], Dataset | None]) -> Facts:
    """An item. state: "run", "not run", or "nothing to run": a drawing, or what the paper quotes."""
    every = find_rows(item, finished, (), finished.tasks)
    state = "run" if any(one.runs for one in every) else "not run" if item.rows else "nothing to run"
    facts = item_facts(name, item, finished, questions, (), finished.tasks)
    return {**facts, "state": state, "command": command_of(name, finished.paper, item, every)}


def _summary(every: Sequence[Facts], claims: Sequence[Facts]) -> list[str]:
    """The report in a few lines."""
    states = Counter(item["state"] for item in every)
    lines = [
        f"{states['run']} of {states['run'] + states['not run']} tables and figures have stored runs; "
        f"{states['nothing to run']} others are drawings, definitions or quoted."
    ]
    verdicts = Counter(claim["verdict"] for claim in claims)
    if claims:
        said = ", ".join(f"{count} {verdict}" for verdict, count in sorted(verdicts.items()))
        lines.append(f"{len(claims)} claims are made of them: {said}.")
    else:
        lines.append("No claim can be judged before there are runs.")
    return lines
