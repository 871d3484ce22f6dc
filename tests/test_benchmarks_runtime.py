"""benchmarks.speed.runtime without the old pipeline: readers take turns, and every figure is there."""

import contextlib
import importlib
import io
import json
import sys
from pathlib import Path

import pytest

from quoth import Reader
from quoth.data import read
from quoth.export.export import export
from quoth.score.cost import file_bytes
from quoth.score.squad import score_squad2
from train.material import SOURCES, make_questions

ROOT = Path(__file__).parents[1]


@pytest.fixture(scope="module")
def given(span_model, tmp_path_factory):
    """Questions, and one model exported twice."""
    folder = tmp_path_factory.mktemp("runtime")
    for name in ("int8", "fp32"):
        export(span_model, folder / name, int8=name == "int8")
    return folder, make_questions(folder / "questions.json", seed=1, passages=1)


@pytest.mark.slow
def test_readers_take_turns(given):
    folder, questions = given
    asked = read(questions).questions
    arguments = ["--data", questions, "--model", folder / "int8", "--against", folder / "fp32", "--passes", 2]
    arguments += ["--threads", 1, "--json", folder / "found.json"]
    told = io.StringIO()
    with pytest.MonkeyPatch.context() as patch, contextlib.redirect_stdout(told):
        patch.setattr(sys, "path", [str(ROOT), str(SOURCES), *sys.path])
        patch.setattr(sys, "argv", ["runtime.py", *map(str, arguments)])
        importlib.import_module("benchmarks.speed.runtime").main()
    found = json.loads((folder / "found.json").read_text())
    assert (found["questions"], found["passes"], found["threads"]) == (len(asked), 2, 1)
    assert [Path(row["folder"]).name for row in found["contenders"].values()] == ["int8", "fp32"]
    for row in found["contenders"].values():
        assert len(row["seconds"]) == len(row["first_answer_s"]) == 2
        assert min(*row["seconds"], *row["first_answer_s"], row["questions_a_second"], row["one_by_one"]) > 0
        assert row["times_the_pipeline"] is None  # there was none
        assert row["disk_bytes"] == file_bytes(row["folder"])
    reader = Reader.load(folder / "fp32")
    texts = {q.id: reader(question=q.question, context=q.context)["answer"] for q in asked}
    wanted = score_squad2(asked, texts).summary()["HasAns_f1"]
    assert list(found["contenders"].values())[1]["has_answer_f1"] == pytest.approx(wanted)
    assert told.getvalue().count("\n| ") == 3  # the head of the table and two rows
