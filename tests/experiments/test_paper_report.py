"""The report of the four papers from stored runs: what is in it, without torch and without training; `make papers`."""

import json
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from experiments.paper_material import write_paper
from quoth.data import read
from quoth.experiments.paper_items import PAPERS, find_item, item_names, read_paper
from quoth.experiments.paper_report import report_facts
from quoth.experiments.run_results import sweeps_in
from quoth.report.paper_page import claims_markdown
from train.material import environment

ROOT = Path(__file__).parents[2]
WITHOUT_TORCH = "import sys; sys.modules['torch'] = None; from quoth.cli import main; main()"


@pytest.fixture(scope="module")
def stored(tmp_path_factory):
    """All runs of two papers, some of a third, none of the last."""
    folder = tmp_path_factory.mktemp("stored")
    write_paper(folder / "hulburd", "hulburd")
    write_paper(folder / "silva", "silva")
    write_paper(folder / "bertvision", "bertvision", items=["figure2", "figure6", "table1"])
    return folder


@pytest.fixture(scope="module")
def facts(stored):
    return report_facts(sweeps_in(stored), read)


def items(facts):
    return {item["item"]: item for paper in facts["papers"] for item in paper["items"]}


def test_every_item_has_its_state(facts):
    found = items(facts)
    assert list(found) == item_names()
    for name, item in found.items():
        if not find_item(name)[2].rows:
            assert item["state"] == "nothing to run", name
        elif name.startswith(("hulburd", "silva")) or name in ("bertvision/figure2", "bertvision/table1"):
            assert item["state"] == "run", name
        elif name.startswith("schubert"):
            assert item["state"] == "not run", name


def test_claims_are_those_of_items_that_were_run(facts):
    found = items(facts)
    wanted = [
        (name, claim.says)
        for name in item_names() if found[name]["state"] == "run" for claim in find_item(name)[2].claims
    ]  # fmt: skip
    assert [(claim["item"], claim["says"]) for claim in facts["claims"]] == wanted
    assert {claim["seeds"] for claim in facts["claims"] if claim["effect"] is not None} == {2}


def test_the_command_has_the_settings_of_the_runs(facts, stored, tmp_path):
    """And of what was not run the paper's own; pruning needs a text."""
    found = items(facts)
    dev = stored / "hulburd/dev.json"
    assert found["hulburd/table1"]["command"] == (
        f"quoth reproduce hulburd/table1 --model tiny --data train.json --evaluate {dev} --seeds 2"
    )
    assert found["schubert/table6"]["command"] == "quoth reproduce schubert/table6 --text text.txt"
    assert found["bertvision/table4"]["command"] == "quoth reproduce bertvision/table4"
    write_paper(tmp_path, "hulburd", items=["table1"], seeds=1, model="a model")
    for recipe in tmp_path.glob("*/recipe.toml"):
        text = recipe.read_text().replace("epochs = 3", "epochs = 1.5")
        recipe.write_text(text.replace("[data]", "[data]\nfraction = 0.25"))
    (shorter,) = [one for one in items(report_facts([tmp_path], read)).values() if one["item"] == "hulburd/table1"]
    words = shlex.split(shorter["command"])
    assert dict(zip(words[3::2], words[4::2])) == {
        "--model": "a model", "--data": "train.json", "--evaluate": str(tmp_path / "dev.json"),
        "--epochs": "1.5", "--fraction": "0.25",
    }  # fmt: skip


def test_points_of_costs(facts):
    """Of figure 5 of Hulburd: each row with its parameters, its F1 and the interval; the front by hand."""
    drawing = items(facts)["hulburd/figure5"]["drawing"]
    rows = {row["name"]: row["found"] for row in items(facts)["hulburd/figure5"]["rows"]}
    points = {one["name"]: one for one in drawing["points"]}
    assert points.keys() == rows.keys()
    for name, point in points.items():
        assert point["costs"] == {"trainable_parameters": rows[name]["trainable_parameters"]["mean"]}
        assert point["quality"]["f1"]["interval"] == rows[name]["f1"]["interval"] is not None
        cost, score = point["costs"]["trainable_parameters"], rows[name]["f1"]["mean"]
        beaten = any(
            other["trainable_parameters"]["mean"] <= cost and other["f1"]["mean"] >= score
            and (other["trainable_parameters"]["mean"], other["f1"]["mean"]) != (cost, score)
            for other in rows.values()
        )  # fmt: skip
        assert point["pareto"] == ([] if beaten else ["trainable_parameters"])


def test_lines_of_moments(facts):
    """Figure 2 of BERTVision: heads on parts of the data; BERT itself is level. Figure 6: one run, to its end."""
    lines = {line["name"]: line for line in items(facts)["bertvision/figure2"]["drawing"]["lines"]}
    assert lines["lp, 1 e"]["x"] == [1, 10, 20, 30, 50, 100]
    level = lines["BERT itself, 0.3 e"]
    assert level["x"] == [1, 100]
    assert level["mean"][0] == level["mean"][1]
    (line,) = items(facts)["bertvision/figure6"]["drawing"]["lines"]
    assert line["x"] == [0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1, 2, 3, 4, 5, 6]
    assert all(low <= middle <= high for low, middle, high in zip(line["low"], line["mean"], line["high"]))
    assert line["seeds"] == 2


def test_lines_of_curves_and_weights(facts):
    found = items(facts)
    for name, count in (("silva/figure2", 10), ("silva/figure5", 8)):
        lines = {line["name"]: line for line in found[name]["drawing"]["lines"]}
        assert lines.keys() == {"BERT", "ALBERT", "weighted", "dot"}
        assert len(lines["dot"]["x"]) == count
    (weights,) = found["silva/table2"]["drawing"]["lines"]
    assert (weights["name"], weights["x"]) == ("weighted", [float(i) for i in range(13)])
    assert weights["mean"][12] == pytest.approx(0.22)


def test_nothing_is_stored():
    facts = report_facts([], read)
    assert facts["claims"] == []
    assert {item["state"] for item in items(facts).values()} == {"not run", "nothing to run"}
    text = claims_markdown(facts)
    assert "|" not in text
    assert all(name in text for name, item in items(facts).items() if item["state"] == "not run")


def test_claims_as_markdown(facts):
    """A row for each claim with an effect; the others say why there is none; a command for each table."""
    text = claims_markdown(facts)
    rows = [line for line in text.splitlines() if line.startswith("| ") and not line.startswith("| table or")]
    tested = [claim for claim in facts["claims"] if claim["effect"] is not None]
    assert len(rows) == len(tested) > 20
    assert {line.count(" | ") for line in rows} == {4}
    for claim in facts["claims"]:
        assert claim["says"] in text
    for claim in (one for one in facts["claims"] if one["effect"] is None):
        assert f"- {claim['item']}: {claim['says']} ({claim['why']})" in text
    assert f"- hulburd/table1: `{items(facts)['hulburd/table1']['command']}`" in text


def papers_command(*settings):
    """The last command of `make papers`, for this interpreter."""
    said = subprocess.run(
        ["make", "--no-print-directory", "-n", "papers", *settings],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    words = shlex.split(said.stdout.splitlines()[-1])
    assert words[1:4] == ["-m", "quoth", "reproduce"]
    return words[3:]


@pytest.mark.slow
def test_make_papers_without_torch(stored, tmp_path):
    """The page holds all that it needs, and says of each item what there is."""
    arguments = papers_command(f"RUNS={stored}", f"OUT={tmp_path}")
    code = [sys.executable, "-c", WITHOUT_TORCH, *arguments, "--json"]
    done = subprocess.run(code, cwd=tmp_path, env=environment(), capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    facts = json.loads(done.stdout)
    page = (tmp_path / "papers.html").read_text()
    assert not re.search(r"""(src|href)=["'](?!#)""", page)
    assert "http" not in re.sub(r"http-equiv", "", page)
    figures = [name for name, item in items(facts).items() if item["drawing"]]
    assert page.count("<figure>") == page.count("<figcaption>") == len(figures) == 14
    for name, item in items(facts).items():
        assert (f'id="{name.replace("/", "-")}"' in page) == (item["state"] == "run")
        assert (f"<code>{item['command']}</code>" in page) == (item["state"] != "nothing to run")
    assert "not run: 14 tables and figures" in page, "of schuBERT"
    assert (tmp_path / "claims.md").read_text() == claims_markdown(facts)


def test_make_papers_with_no_runs(tmp_path):
    arguments = papers_command("RUNS=", f"OUT={tmp_path}")
    assert "--runs" not in arguments
    code = [sys.executable, "-c", WITHOUT_TORCH, *arguments]
    done = subprocess.run(code, cwd=tmp_path, env=environment(), capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("0 of 43 tables and figures have stored runs")
    page = (tmp_path / "papers.html").read_text()
    assert page.count("<details>") == len(PAPERS)
    assert "<figure>" not in page


def test_names_in_files_are_escaped(tmp_path, cli):
    """Such as the name of a model."""
    write_paper(tmp_path / "s", "hulburd", items=["table1"], seeds=1, model="<script>x</script>")
    said = cli("reproduce", "--report", tmp_path / "p.html", "--runs", tmp_path / "s")
    assert said.returncode == 0, said.stderr
    page = (tmp_path / "p.html").read_text()
    assert "<script>x" not in page
    assert "&lt;script&gt;x" in page


def test_papers_have_windows():
    assert {name: read_paper(name).windows for name in ("hulburd", "bertvision")} == {
        "hulburd": 132_300, "bertvision": 131_911,
    }  # fmt: skip
