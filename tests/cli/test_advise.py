"""`quoth advise` on the command line: its output in a pipe, on a terminal and as JSON, and what it refuses."""

import io
import json
import shlex

import pytest
from rich.console import Console

from experiments.advise_material import four as four
from experiments.advise_material import given as given
from experiments.advise_material import search, timeless
from quoth.cli import advise as command
from quoth.model import load
from train.material import quoth, start

QUESTION = {"id": "1", "question": "Which?", "answers": [{"text": "A", "answer_start": 0}]}
ONE = {"context": "A letter.", "qas": [QUESTION]}  # a passage


@pytest.fixture
def asked(given, tmp_path):
    """The usual arguments."""
    return ("advise", "--data", given.data, "-m", given.model, "--device", "cpu", "--out", tmp_path / "out")


@pytest.fixture
def done(given, four, tmp_path):
    """What a search found that has been done in the folder of `asked`."""
    return search(given, tmp_path / "out")


def test_the_report_in_a_pipe(cli, asked, done, monkeypatch):
    """Sentences, a table of scores, one of costs, and the command; nothing is broken at 80 columns."""
    monkeypatch.setenv("COLUMNS", "80")
    result = cli(*asked)
    assert result.returncode == 0
    shown = result.stdout
    for line in done["summary"]:
        assert line in " ".join(shown.split())
    assert all(len(line) <= 80 for line in shown.splitlines() if "quoth train" not in line)
    for row in done["rows"]:
        mine = [line for line in shown.splitlines() if line.strip().startswith(row["name"])]
        assert len(mine) == 2
        assert f"{row['score']:.2f}" in mine[0]
        assert f"{row['trainable_parameters']:,}" in mine[1]
    assert shown.splitlines()[-1] == f"  {done['commands'][0]}"
    assert shown.splitlines()[-2] == "train it on all questions:"
    assert "latency" not in shown  # nothing was measured


def test_json_is_one_object(cli, asked, done):
    result = cli(*asked, "--json")
    assert json.loads(result.stdout) == done


def test_lines_of_progress_in_a_pipe(cli, asked, four):
    result = cli(*asked)
    told = result.stderr.splitlines()
    assert told[0].endswith("100 read, 20 of them unanswerable")
    assert sum(line.startswith(("quoth: round 1 of 2, ", "quoth: round 2 of 2, ")) for line in told) == 6
    assert len(told) == 7


def test_lines_in_between_say_what_is_left(cli, asked, four, monkeypatch):
    monkeypatch.setattr(command, "PAUSE", 0.0)
    told = cli(*asked).stderr.splitlines()
    between = [line for line in told if "left" in line]
    assert any("round 1 of 2, 1 of 4: full 1e-3" in line and "time left unknown" in line for line in between)
    assert any("round 2 of 2, 2 of 2: " in line and " %, about " in line for line in between)
    shares = [int(line.split(" %, ")[0].rpartition(" ")[2]) for line in between]
    assert shares == sorted(shares)
    assert max(shares) <= 100


def test_a_bar_on_a_terminal(cli, asked, four, monkeypatch):
    screen = io.StringIO()
    monkeypatch.setattr(
        command,
        "console",
        lambda stderr=False: Console(file=screen if stderr else None, force_terminal=True, width=150, highlight=False),
    )
    assert cli(*asked).returncode == 0
    shown = screen.getvalue()
    assert "round 1 of 2, full 1e-3: F1 " in shown  # a line that stays
    assert "round 2 of 2, 1 of 2: " in shown  # the bar
    assert "━" in shown


def test_the_folder_has_the_name_of_the_data(cli, given, four, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    result = cli("advise", "--data", given.data, "-m", given.model, "--device", "cpu")
    assert result.returncode == 0
    assert (tmp_path / "runs/advise-my/advise.json").exists()
    assert result.stdout.splitlines()[-1].startswith("  quoth train runs/advise-my/train.toml --out ")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--max-size", "30"), "--max-size 30: a size such as 30MB"),
        (("--max-size", "30ms"), "--max-size 30ms: a size such as 30MB"),
        (("--max-latency", "20MB"), "--max-latency 20MB: a time such as 20ms"),
        (("--max-train", "-1min"), "--max-train -1min: a time such as 20ms"),
        (("--max-size", "1kB"), "no candidate keeps the limits; the nearest is 'half depth 1e-2'"),
        (("--max-latency", "0.0001ms"), "no candidate keeps the limits"),
        (("--budget", "0"), "--budget 0: minutes above 0"),
        (("--budget", "nan"), "--budget nan: minutes above 0"),
        (("--budget", "1e-9"), "--budget: 4 candidates need at least"),
        (("--budget", "ten"), "see quoth advise --help"),
        (("--device", "gpu"), "choose cpu or cuda"),
        (("--device", "cuda"), "cannot be used on this machine"),
        (("--data", "no-such.json"), "no-such.json: no such file"),
        (("-m", "no/such/model"), "no/such/model"),
    ],
)
def test_a_mistake_is_one_line(cli, asked, four, arguments, words):
    result = cli(*asked, *arguments)
    assert result.returncode == 2
    assert result.stdout == ""
    last = result.stderr.splitlines()[-1]
    assert last.startswith("quoth: ")
    assert words in last


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ({"version": "v2.0", "data": []}, "has no questions"),
        ({"data": 3}, "data"),
        ({"data": [{"title": "t", "paragraphs": [ONE]}]}, "nearly all questions are about one passage"),
    ],
)
def test_data_that_cannot_be_searched_on(cli, asked, tmp_path, content, words):
    (tmp_path / "bad.json").write_text(json.dumps(content))
    result = cli(*asked, "--data", tmp_path / "bad.json")
    assert result.returncode == 2
    assert words in result.stderr.splitlines()[-1]
    assert not (tmp_path / "out/plan.json").exists()


def test_no_data(cli):
    result = cli("advise")
    assert result.returncode == 2
    assert result.stderr == "quoth: Missing option '--data'; see quoth advise --help\n"


@pytest.mark.slow
@pytest.mark.parametrize("lines", [2, 9, 21])
def test_killed_it_goes_on_to_the_same_and_its_commands_train_the_method(given, tmp_path, lines):
    """The real table, in processes of their own: killed after some lines, gone on with, and what it says done."""
    asked = ("advise", "--data", given.data, "-m", given.model, "--device", "cpu", "--max-size", "5MB", "--out")
    killed = start(*asked, tmp_path / "out")
    for _ in range(lines):
        killed.stderr.readline()
    killed.kill()
    killed.wait()
    again = quoth(*asked, tmp_path / "out", "--json")
    assert again.returncode == 0, again.stderr
    facts = json.loads(again.stdout)
    if lines == 9:
        whole = quoth(*asked, tmp_path / "whole", "--json")
        strip = {"commands": []}
        assert timeless(json.loads(whole.stdout)) | strip == timeless(facts) | strip
    assert not list((tmp_path / "out").rglob("*.part*"))
    for line in facts["commands"]:
        run = quoth(*shlex.split(line)[1:], cwd=tmp_path)
        assert run.returncode == 0, run.stderr
    best = facts["rows"][0]
    trained = load(tmp_path / "out/trained/model")
    assert sum(value.numel() for value in trained.parameters()) == best["total_parameters"]
    metrics = json.loads((tmp_path / "out/trained/metrics.json").read_text())
    assert metrics["trainable_parameters"] == best["trainable_parameters"]
    answered = quoth("evaluate", given.data, "-m", tmp_path / "out/exported", "--json")
    assert answered.returncode == 0, answered.stderr
    assert 0 <= json.loads(answered.stdout)["f1"] <= 100


@pytest.mark.slow
def test_interrupted_by_a_signal_it_says_so(given, tmp_path):
    asked = ("advise", "--data", given.data, "-m", given.model, "--device", "cpu", "--out", tmp_path / "out")
    process = start(*asked)
    for _ in range(4):
        process.stderr.readline()
    process.terminate()
    _, told = process.communicate(timeout=120)
    assert process.returncode == 128 + 15
    assert told.splitlines()[-1] == "quoth: stopped; the same command goes on from there"
