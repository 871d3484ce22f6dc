"""Targets: data sets, predictions and recorded answers."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path
from typing import Any

from hypothesis import strategies as st

from fuzz.case import Case, Target
from fuzz.hostile import Draw, encode, json_file, json_lines, texts
from fuzz.material import CONTEXT, rows, squad
from quoth.answer.record import read_answers
from quoth.augment import as_squad, make_negatives
from quoth.cli.score import _predictions, _probabilities
from quoth.data import read
from quoth.data.glue import TASKS, read_glue
from quoth.data.plain_text import read_paragraphs
from quoth.files import write_json
from quoth.score import score_squad2
from quoth.score.compare_runs import analyse_runs

IDS = {"a", "b", "c"}
PREDICTIONS = {"a": "Thomas Hale", "b": "1801", "c": ""}
PROBABILITIES = {"a": 0.01, "b": 0.4, "c": 0.9}
ANSWERS = [
    {"id": "a", "null_minus_best": -2.5, "answers": [["Thomas Hale", 37, 48, 7.25], ["Hale", 44, 48, 3]]},
    {"id": "b", "null_minus_best": 1.5, "answers": [["1801", 87, 91, 0.5]]},
    {"id": "c", "null_minus_best": None, "answers": []},
]
PARAGRAPH = "This is a paragraph of plain text that is long enough to be of use in pre-training.\n"


def _dataset(name: str) -> Any:
    """Read a data set, look at all of it, and write what can be made of it."""

    def run(folder: Path, _: Case) -> None:
        found = read(folder / name)
        for question in found.questions:
            for gold in question.answers:
                if question.context[gold.start : gold.end] != gold.text:
                    raise AssertionError(f"an answer that does not stand where it says: {gold}")
        found.report.lines()
        made = make_negatives(found.trainable, {"moved": 0.5, "entity": 0.5, "negation": 0.5}, 0)
        write_json(folder / "out.json", as_squad(made))
        json.loads((folder / "out.json").read_text())

    return run


def _one(name: str, data: Any) -> Any:
    return data.map(lambda found: Case({name: found}))


@st.composite
def csv_files(draw: Draw) -> Case:
    """A CSV, as the module writes it, with hostile cells, or as anyone might have written it."""
    header = draw(st.permutations(["question", "context", "answer", "answer_start", "id"]))
    header = header[: draw(st.integers(3, 5))] + draw(st.lists(texts, max_size=1))
    lines = [header]
    for number in range(draw(st.integers(0, 3))):
        row = {"question": "Who?", "context": CONTEXT, "answer": "Hale", "answer_start": "44", "id": str(number)}
        if draw(st.booleans()):
            row[draw(st.sampled_from(sorted(row)))] = draw(texts | st.sampled_from(["9" * 5000, "-1", "1e3", "٣"]))
        lines.append([row.get(name, "") for name in header])
    if draw(st.integers(0, 5)) == 5:
        lines.append(draw(st.lists(texts, max_size=7)))
    file = io.StringIO()
    csv.writer(file, quoting=draw(st.sampled_from([csv.QUOTE_MINIMAL, csv.QUOTE_ALL]))).writerows(lines)
    return Case({"d.csv": encode(draw, file.getvalue(), zipped=True)})


@st.composite
def glue_files(draw: Draw) -> Case:
    """A GLUE table of some task, with rows that are short, long or hostile."""
    name = draw(st.sampled_from(sorted(TASKS)))
    task = TASKS[name]
    header = ["index", *task.columns, task.label]
    lines = [header] if draw(st.integers(0, 4)) < 4 else []
    for _ in range(draw(st.integers(0, 4))):
        row = [
            "0",
            *("A sentence." for _ in task.columns),
            draw(st.sampled_from([*task.values, "1", "-", "nan", "1e999"])),
        ]
        if draw(st.booleans()):
            row[draw(st.integers(0, len(row) - 1))] = draw(texts)
        lines.append(row[: draw(st.integers(1, 6))])
    text = "\n".join("\t".join(line) for line in lines) + "\n"
    place = draw(st.sampled_from([f"{name}/dev.tsv", "dev.tsv"]))
    return Case({place: encode(draw, text, zipped=True)})


def run_glue(folder: Path, case: Case) -> None:
    read_glue(folder / next(iter(case.files))).report.lines()


@st.composite
def plain_texts(draw: Draw) -> Case:
    """Paragraphs for pre-training."""
    parts = draw(
        st.lists(st.sampled_from([PARAGRAPH, PARAGRAPH * 3, "I\n", "\n\n", "\f", "東京" * 40]) | texts, max_size=6)
    )
    return Case({"t.txt": encode(draw, "\n\n".join(parts), zipped=True)})


def run_predictions(folder: Path, _: Case) -> None:
    (folder / "d.json").write_text(json.dumps(squad()))
    score_squad2(read(folder / "d.json").questions, _predictions(folder / "p.json", IDS)).summary()


def run_answers(folder: Path, _: Case) -> None:
    """What `quoth analyse` does with the answers of a run."""
    found = read_answers(folder / "answers.jsonl.gz")
    (folder / "d.json").write_text(json.dumps(squad()))
    json.dumps(analyse_runs(read(folder / "d.json"), [("run", found)], None))


TARGETS = (
    Target("squad", "format", _one("d.json", json_file(squad(), zipped=True)), _dataset("d.json"), ("out.json",)),
    Target("jsonl", "format", _one("d.jsonl", json_lines(*rows(), zipped=True)), _dataset("d.jsonl"), ("out.json",)),
    Target("csv", "format", csv_files(), _dataset("d.csv"), ("out.json",)),
    Target("glue", "format", glue_files(), run_glue),
    Target("plain-text", "format", plain_texts(), lambda folder, _: read_paragraphs(folder / "t.txt")),
    Target("predictions", "format", _one("p.json", json_file(PREDICTIONS)), run_predictions, ("d.json",)),
    Target(
        "na-probs",
        "format",
        _one("p.json", json_file(PROBABILITIES)),
        lambda folder, _: _probabilities(folder / "p.json", IDS),
    ),
    Target("answers", "format", _one("answers.jsonl.gz", json_lines(*ANSWERS, zipped=True)), run_answers, ("d.json",)),
)
