"""The verb `analyse`: its JSON, its tables, its plots, and one line for each mistake."""

from __future__ import annotations

import gzip
import json
import subprocess
import sys
import xml.etree.ElementTree as ElementTree

import pytest
import typer
from typer.testing import CliRunner

from quoth.cli.analyse import analyse
from quoth.errors import QuothError
from quoth.report.plots import _curves

app = typer.Typer()
app.command()(analyse)

CONTEXT = "The red fox saw Anna in Rome in 1900."
# id: question, gold
ASKED = {
    "who": ("Who was seen?", "Anna"),
    "where": ("Where was Anna?", "Rome"),
    "when": ("In what year was it?", "1900"),
    "why": ("Why was she there?", None),
    "how": ("How many foxes were there?", None),
}
# id: null - best, texts; scores fall by one
ONE = {
    "who": (-2, ["Anna", "fox"]),
    "where": (-1, ["Anna", "Rome"]),  # wrong; null 2: Anna, Rome, no answer
    "when": (1, ["1900"]),  # abstains; the span is right
    "why": (None, []),
    "how": (-0.5, ["red", "fox"]),  # answered; null 2.5: red, no answer, fox
}
TWO = ONE | {"who": (1, ["Anna"]), "where": (-1, ["in Rome", "Rome"]), "how": (2, ["red"])}


def squad(asked=ASKED, version="v2.0"):
    paragraphs = []
    for id, (question, gold) in asked.items():
        answers = [{"text": gold, "answer_start": CONTEXT.index(gold)}] if gold else []
        qas = [{"id": id, "question": question, "answers": answers, "is_impossible": not gold}]
        paragraphs.append({"context": CONTEXT + " More." * len(id), "qas": qas})
    articles = [{"title": f"A${i} <[b]> &", "paragraphs": [paragraph]} for i, paragraph in enumerate(paragraphs)]
    return {"version": version, "data": articles}


def write_run(run, answers, recipe=None, metrics=None):
    run.mkdir(parents=True)
    lines = []
    for id, (margin, texts) in answers.items():
        spans = [[text, CONTEXT.index(text), CONTEXT.index(text) + len(text), 3.0 - k] for k, text in enumerate(texts)]
        lines.append(json.dumps({"id": id, "null_minus_best": margin, "answers": spans}) + "\n")
    (run / "answers.jsonl.gz").write_bytes(gzip.compress("".join(lines).encode()))
    if recipe is not None:
        (run / "recipe.toml").write_text(recipe)
    if metrics is not None:
        (run / "metrics.json").write_text(json.dumps(metrics))
    return run


@pytest.fixture
def folder(tmp_path):
    """data.json and the runs one and two, evaluated on it; two has layer weights."""
    data = tmp_path / "data.json"
    data.write_text(json.dumps(squad()))
    recipe = f"model = 'm'\n[data]\ntrain = 't'\nevaluate = {json.dumps(str(data))}\n"
    weights = {"start": [0.125, 0.625, 0.25], "end": [0.5, 0.5]}
    write_run(tmp_path / "one", ONE, recipe, {"quality": {}})
    write_run(tmp_path / "two", TWO, recipe, {"layer_weights": weights})
    return tmp_path


def run(*arguments):
    """Standard output and standard error of the verb; its errors are raised here."""
    words = [str(argument) for argument in arguments]
    result = CliRunner().invoke(app, words, catch_exceptions=False, env={"COLUMNS": "100"})
    assert result.exit_code == 0, result.output
    return result.stdout, result.stderr


def run_json(*arguments):
    return json.loads(run(*arguments, "--json")[0])


def test_json_of_one_run(folder):
    facts = run_json(folder / "one")
    assert facts.keys() == {"data", "questions", "runs"}
    assert (facts["data"], facts["questions"]) == (str(folder / "data.json"), 5)
    (found,) = facts["runs"]
    assert (found["run"], found["threshold"]) == (str(folder / "one"), 0)
    assert (found["exact"], found["f1"], found["total"]) == (40, 40, 5)
    assert (found["HasAns_exact"], found["NoAns_exact"]) == (100 / 3, 50)
    assert list(found["confusion"].values()) == [1, 1, 1, 1, 1]
    assert found["called_no_answer"] == {"of": 2, "questions": 1, "share": 50}
    assert found["best_span_right"] == {"of": 1, "questions": 1, "share": 100, "f1": 100}
    assert found["second"]["all"] == {"of": 3, "questions": 3, "share": 100}
    assert found["any_of_n"] == {"n": 3, "of": 2, "questions": 2, "share": 100}
    words = {row["label"]: row["questions"] for row in found["slices"]["question_word"]}
    assert words == {"what": 1, "who": 1, "where": 1, "why": 1, "how many/much": 1}
    assert [row["questions"] for row in found["slices"]["title"]] == [1] * 5
    assert "layer_weights" not in found


def test_json_of_two_runs(folder):
    facts = run_json(folder / "one", folder / "two")
    assert [found["run"] for found in facts["runs"]] == [str(folder / "one"), str(folder / "two")]
    assert facts["runs"][1]["layer_weights"] == {"start": [0.125, 0.625, 0.25], "end": [0.5, 0.5]}
    together = facts["together"]
    assert [row["ids"] for row in together["uniquely_right"]] == [["who"], ["how"]]
    assert together["both_right"] == [[2, 1], [1, 2]]
    assert (together["all_right"], together["none_right"]) == (1, 2)
    assert together["oracle"]["exact"] == 60
    (against,) = together["against_first"]
    assert against["exact"]["difference"] == 0
    assert against["f1"]["difference"] == pytest.approx(100 * (2 / 3) / 5)  # "in Rome" has half of its words right


def test_thresholds(folder):
    found = run_json(folder / "one", "--threshold", "best")["runs"][0]
    # By rising margin: 2 all abstain, 3 who, 3 where, 2 how, 3 when; of the equal ones the smallest.
    assert found["threshold"] == found["best"]["threshold"] == -2
    assert found["f1"] == found["best"]["f1"] == 60
    found = run_json(folder / "one", "--threshold", "-1.5")["runs"][0]
    assert (found["threshold"], found["confusion"]["wrongly_abstained"]) == (-1.5, 2)
    found = run_json(folder / "one", "--threshold", "inf")["runs"][0]
    assert (found["threshold"], found["confusion"]["wrongly_abstained"]) == (None, 0)


def test_squad_1_never_abstains_unless_told(folder):
    data = folder / "old.json"
    asked = {id: row for id, row in ASKED.items() if row[1]}
    data.write_text(json.dumps(squad(asked, "1.1")))
    write_run(folder / "old", {id: ONE[id] for id in asked})
    found = run_json(folder / "old", "--data", data)["runs"][0]
    assert (found["threshold"], found["exact"]) == (None, pytest.approx(200 / 3))
    assert "NoAns_total" not in found
    assert run_json(folder / "old", "--data", data, "--threshold", 0)["runs"][0]["exact"] == pytest.approx(100 / 3)
    assert "no answer" not in [row["label"] for row in found["slices"]["answer_length"]]


def test_data_may_be_given(folder):
    bare = write_run(folder / "bare", ONE)
    (bare / "answers.jsonl.gz").rename(bare / "packed")
    (bare / "answers.jsonl").write_bytes(gzip.decompress((bare / "packed").read_bytes()))
    moved = (folder / "data.json").rename(folder / "moved.json")
    found = run_json(folder / "one", bare, "--data", moved)
    assert found["runs"][0] == found["runs"][1] | {"run": str(folder / "one")}


@pytest.mark.parametrize("names", [["one"], ["one", "two"], ["one", "two"] * 6])
def test_tables_for_people(folder, names):
    out, _ = run(*(folder / name for name in names))
    assert f"5 questions of {folder / 'data.json'}" in out
    assert f"run 1: {folder / 'one'}, threshold 0 (best F1 60.00 at -2)" in out
    for words in ("right answers, per cent", "answers by kind", "has answer", "how many/much", "A$4 <[b]> &", "40.00"):
        assert words in out
    tables = [line for line in out.splitlines() if line[:1] in ("┃", "│", "┏")]
    assert max(map(len, tables)) <= 100
    assert not any("…" in line for line in tables)
    assert ("right in both" in out) == ("layer weights" in out) == (len(names) > 1)
    if len(names) == 2:
        assert "0.6250" in out
        assert "right in all runs: 1; in none: 2" in out
        assert "(oracle): exact 60.00, F1" in out
    if len(names) == 12:
        assert out.count("F1 by question word") == 2  # eight runs side by side, then four


def test_plots_are_svg(folder):
    _, told = run(folder / "one", folder / "two", "--plots", folder / "plots")
    files = {path.stem: path for path in (folder / "plots").iterdir()}
    slices = {f"slices-{name}-length" for name in ("context", "question")} | {"slices-question-word", "slices-title"}
    assert files.keys() == slices | {"slices-answer-length", "layer-weights", "uniquely-right"}
    assert f"7 plots in {folder / 'plots'}" in told
    for path in files.values():
        root = ElementTree.parse(path).getroot()
        assert root.tag == "{http://www.w3.org/2000/svg}svg"
    assert "A$4 &lt;[b]&gt; &amp; (1)" in files["slices-title"].read_text("utf-8")
    first = {name: path.read_bytes() for name, path in files.items()}
    run(folder / "one", folder / "two", "--plots", folder / "plots")
    assert {name: path.read_bytes() for name, path in files.items()} == first
    assert "data.json: is not a folder" in mistake(folder / "one", "--plots", folder / "data.json")
    run(folder / "one", "--plots", folder / "fewer")
    assert "uniquely-right.svg" not in [path.name for path in (folder / "fewer").iterdir()]


def test_plots_without_matplotlib_are_refused_before_the_work(folder, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(QuothError, match=r"plots need matplotlib: pip install 'quoth\[report\]'"):
        run(folder / "no such run", "--plots", folder / "plots")
    assert not (folder / "plots").exists()


def mistake(*arguments):
    with pytest.raises(QuothError) as error:
        run(*arguments)
    assert "\n" not in str(error.value)
    return str(error.value)


def test_runs_that_are_none(folder):
    assert mistake() == "name at least one run folder to analyse"
    assert "nowhere: no such folder" in mistake(folder / "nowhere")
    assert "data.json: is not a folder" in mistake(folder / "data.json")
    (folder / "empty").mkdir()
    assert f"{folder / 'empty'}: has no answers.jsonl.gz" in mistake(folder / "one", folder / "empty")


def test_answers_that_are_not_to_be_read(folder):
    path = folder / "one" / "answers.jsonl.gz"
    path.write_bytes(path.read_bytes()[:-9])
    assert f"{path}: broken gzip file" in mistake(folder / "one")
    path.write_text("{}")
    assert f"{path}, line 1: an object with a text" in mistake(folder / "one")
    path.unlink()
    path.mkdir()
    assert f"{path}: cannot be read" in mistake(folder / "one")


def test_answers_to_other_questions(folder):
    fewer = write_run(folder / "fewer", {id: row for id, row in ONE.items() if id not in ("when", "how")})
    assert "fewer/answers.jsonl.gz: has no line for question when" in mistake(fewer, "--data", folder / "data.json")
    more = write_run(folder / "more", {"whence": (None, []), **ONE, "whither": (None, [])})
    assert "question whence is not in the data" in mistake(folder / "one", more, "--data", folder / "data.json")


def test_questions_that_are_not_to_be_found(folder):
    bare = write_run(folder / "bare", ONE)
    assert f"{bare}: has no recipe.toml that names its questions; give --data" in mistake(bare)
    for recipe, message in (
        ("model = 'm'", "names no data.evaluate; give --data"),
        ("data = 5", "names no data.evaluate"),
        ("[data]\nevaluate = ''", "names no data.evaluate"),
        ("[data", "not valid TOML"),
    ):
        (bare / "recipe.toml").write_text(recipe)
        assert message in mistake(bare)
    (bare / "recipe.toml").write_text("[data]\nevaluate = './gone.json'")
    assert f"gone.json: no such file (data.evaluate of {bare / 'recipe.toml'}; give --data" in mistake(bare)
    assert mistake(bare, "--data", "./gone.json") == "gone.json: no such file"
    found = mistake(folder / "one", bare)
    assert f"{folder / 'one'}: was evaluated on {folder / 'data.json'}, {bare} on ./gone.json" in found
    assert "give --data" in found


@pytest.mark.parametrize("threshold", ["worst", "nan", "-inf", ""])
def test_thresholds_that_are_none(folder, threshold):
    found = mistake(folder / "one", "--threshold", threshold)
    assert found == f"--threshold {threshold}: give a number (inf never abstains) or best"


@pytest.mark.parametrize("weights", [[1], {"a": []}, {"a": ["x"]}, {"a": [True]}, {"a": [float("nan")]}, {"a": 1}])
def test_layer_weights_that_are_none(folder, weights):
    (folder / "one" / "metrics.json").write_text(json.dumps({"layer_weights": weights}))
    assert "metrics.json: layer_weights must be lists of finite numbers by name" in mistake(folder / "one")


def test_the_real_command_line_needs_neither_torch_nor_matplotlib(folder):
    code = "import sys; sys.modules['torch'] = sys.modules['matplotlib'] = None; from quoth.cli import main; main()"
    command = [sys.executable, "-c", code, "analyse"]

    def quoth(*words):
        return subprocess.run([*command, *map(str, words)], capture_output=True, text=True, timeout=300, check=False)

    result = quoth(folder / "one", folder / "two", "--json")
    assert (result.returncode, json.loads(result.stdout)["questions"]) == (0, 5)
    stage = write_stage(folder / "epoch-1", {"lp": curve(1, 2, 3)})
    result = quoth("--curves", stage, "--json")
    assert (result.returncode, len(json.loads(result.stdout)["stages"])) == (0, 1)
    result = quoth(folder)
    assert (result.returncode, result.stdout) == (2, "")
    assert result.stderr.startswith(f"quoth: {folder}: has no answers.jsonl.gz;")
    assert result.stderr.count("\n") == 1


def write_stage(stage, heads):
    stage.mkdir(parents=True)
    (stage / "log.jsonl").write_text("")
    (stage / "metrics.json").write_text(json.dumps({"heads": heads}))
    return stage


def curve(*scores):
    """Scores of answers at 1 %, 10 % and all of the data."""
    looks = zip((0.01, 0.1, 1.0), scores, strict=True)
    return {
        "curve": [{"epoch": e, "step": i, "total": 5, "f1": f1, "best_f1": f1 + 1} for i, (e, f1) in enumerate(looks)]
    }


class TestCurves:
    @pytest.fixture
    def stage(self, tmp_path):
        own = {"encoder": {"quality": {"total": 5, "f1": 55.5, "best_f1": 56.5}}}
        heads = {"lp": curve(10, 20, 30.125), "a <b> & $c": curve(40, 50, 60), **own}
        write_stage(tmp_path / "run/frozen/epoch-10", {"lp": curve(1, 2, 3)})
        return write_stage(tmp_path / "run/frozen/epoch-2", heads)

    def test_a_stage(self, stage):
        (found,) = run_json(stage, "--curves")["stages"]
        assert (found["stage"], found["metrics"], found["epochs"]) == (str(stage), ["f1", "best_f1"], [0.01, 0.1, 1])
        assert [look["best_f1"] for look in found["heads"]["lp"]] == [11, 21, 31.125]
        assert found["heads"].keys() == {"lp", "a <b> & $c"}
        assert found["encoder"]["f1"] == 55.5
        out, _ = run("--curves", stage)
        tables = [line for line in out.splitlines() if line[:1] in ("┃", "│")]
        cells = [[cell.strip() for cell in line.strip("┃│").replace("┃", "│").split("│")] for line in tables]
        assert cells[:4] == [
            ["head", "0.01", "0.1", "1"],
            ["the encoder's own", "55.50", "55.50", "55.50"],
            ["lp", "10.00", "20.00", "30.12"],
            ["a <b> & $c", "40.00", "50.00", "60.00"],
        ]
        assert cells[6] == ["lp", "11.00", "21.00", "31.12"]
        assert "F1 at the best threshold by epochs of the heads" in " ".join(out.split())

    def test_a_run_has_all_its_stages_in_order(self, stage):
        found = run_json("--curves", stage.parents[1])["stages"]
        assert [one["stage"] for one in found] == [str(stage), str(stage.parent / "epoch-10")]
        assert "encoder" not in found[1]

    def test_many_epochs_stay_within_the_page(self, tmp_path):
        looks = [{"epoch": i / 20, "step": i, "acc": float(i), "f1": 50.0} for i in range(1, 21)]
        stage = write_stage(tmp_path / "epoch-1", {"a head with a very long name, too long": {"curve": looks}})
        out, _ = run("--curves", stage)
        assert max(map(len, out.splitlines()[1:])) <= 100
        assert out.count("accuracy by epochs of the heads") == 3
        assert "19.00" in out

    def test_plots(self, stage, tmp_path):
        other = write_stage(tmp_path / "other/frozen/epoch-2", {"lp": curve(1, 2, 3)})
        _, told = run("--curves", stage.parents[1], other, "--plots", tmp_path / "plots")
        assert f"3 plots in {tmp_path / 'plots'}" in told
        files = {path.name: path for path in (tmp_path / "plots").iterdir()}
        assert files.keys() == {"curves-epoch-2.svg", "curves-epoch-10.svg", "curves-epoch-2~2.svg"}
        text = files["curves-epoch-2.svg"].read_text("utf-8")
        assert ElementTree.fromstring(text).tag == "{http://www.w3.org/2000/svg}svg"
        for words in ("a &lt;b&gt; &amp; $c", "the encoder's own", "F1 at the best threshold"):
            assert words in text
        assert "the encoder's own" not in files["curves-epoch-2~2.svg"].read_text("utf-8")
        first = {name: path.read_bytes() for name, path in files.items()}
        run("--curves", stage.parents[1], other, "--plots", tmp_path / "plots")
        assert {name: path.read_bytes() for name, path in files.items()} == first

    @pytest.mark.parametrize(("last", "scale"), [(0.2, "linear"), (0.21, "log")])
    def test_the_axis_is_logarithmic_where_epochs_span_much(self, last, scale):
        looks = [{"epoch": epoch, "f1": 1.0} for epoch in (0.01, last)]
        stage = {"stage": "x", "metrics": ["f1"], "epochs": [0.01, last], "heads": {"lp": looks}}
        (axes,) = _curves(stage).axes
        assert axes.get_xscale() == scale

    def test_mistakes(self, stage, tmp_path, folder):
        assert "nowhere: no such folder" in mistake("--curves", tmp_path / "nowhere")
        assert "data.json: is not a folder" in mistake("--curves", folder / "data.json")
        assert mistake("--curves") == "name at least one run folder to analyse"
        assert "it takes no --data and no --threshold" in mistake("--curves", stage, "--threshold", "best")
        assert "it takes no --data and no --threshold" in mistake("--curves", stage, "--data", folder / "data.json")
        assert "one/metrics.json: has no heads; --curves wants a run with frozen.heads" in mistake(
            "--curves", folder / "one"
        )
        once = write_stage(tmp_path / "once", {"lp": {"quality": {"f1": 1}}})
        assert mistake("--curves", once) == f"{once}: its heads were scored once only; name epochs in frozen.evaluate"
        (once / "metrics.json").unlink()
        assert mistake("--curves", once) == f"{once}: has no metrics.json; the stage has not ended"
        (once / "log.jsonl").unlink()
        assert mistake("--curves", once) == f"{once}: has no metrics.json; name RUN or RUN/frozen/epoch-0.3"
        (tmp_path / "young/frozen").mkdir(parents=True)
        assert "frozen: has no epoch-…; the run has not come to its heads yet" in mistake(
            "--curves", tmp_path / "young"
        )
        (tmp_path / "young/frozen/epoch-x").mkdir()
        assert "epoch-x: is not a stage of frozen heads" in mistake("--curves", tmp_path / "young")

    @pytest.mark.parametrize(
        "heads",
        [
            {"lp": {"curve": []}},
            {"lp": {"curve": [{"epoch": 1.0, "f1": None}]}},
            {"lp": {"curve": 3}},
            {"lp": curve(1, 2, 3), "dot": {"curve": [{"epoch": 1.0, "f1": 1.0, "best_f1": 2.0}]}},
            {"lp": curve(1, 2, 3), "encoder": {"quality": {"f1": 1.0}}},
        ],
    )
    def test_curves_that_are_none(self, tmp_path, heads):
        stage = write_stage(tmp_path / "epoch-1", heads)
        assert f"{stage / 'metrics.json'}: a curve in it is not complete (" in mistake("--curves", stage)
