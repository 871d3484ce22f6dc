"""What `quoth reproduce` says of finished runs, from run folders and packed ones; and mistakes, each in one line."""

import json
from statistics import mean

import numpy as np
import pytest
from benchmarks.pack_runs import pack, store, unpack
from scipy import stats

from experiments.paper_material import write_paper
from quoth.answer.record import read_answers
from quoth.data import read
from quoth.experiments.paper_items import find_item
from quoth.experiments.reproduce import reproduce_facts
from quoth.report.reproduce_tables import print_reproduced


@pytest.fixture(scope="module")
def stored(tmp_path_factory):
    folder = tmp_path_factory.mktemp("stored")
    write_paper(folder / "hulburd", "hulburd", items=["table1"])
    write_paper(folder / "bertvision", "bertvision", items=["table3", "figure6"])
    write_paper(folder / "silva", "silva", items=["table2", "figure7"])
    write_paper(folder / "schubert", "schubert", items=["table6", "figure5", "figure6"])
    return folder


@pytest.fixture(scope="module")
def facts(stored):
    return reproduce_facts("hulburd/table1", [stored / "hulburd"], read)


def scores_of(stored, name):
    """(2, Q) F1 of each seed and question, by the margin of each answer: abstain above 0."""
    dataset = read(str(stored / "hulburd/dev.json"))
    found = []
    for seed in (0, 1):
        answers = read_answers(stored / f"hulburd/{name}-seed{seed}/answers.jsonl")
        given = dict(zip(answers.ids, answers.predictions(0.0)))
        found.append([float(given[q.id] == (q.answers[0].text if q.answers else "")) for q in dataset.questions])
    return np.array(found)


def test_rows_have_means_and_intervals(stored, facts):
    (row,) = (row for row in facts["rows"] if row["name"] == "L6")
    scores = scores_of(stored, "L6")
    assert row["paper"]["f1"] == 75.2
    assert row["found"]["f1"]["mean"] == pytest.approx(100 * scores.mean())
    low, high = row["found"]["f1"]["interval"]
    assert low < row["found"]["f1"]["mean"] < high
    assert row["found"]["trainable_parameters"]["mean"] == 42_548_738
    assert facts["settings"] == [f"tiny, 3 epochs of train.json, scored on {stored / 'hulburd/dev.json'}, 2 seeds"]


def test_a_claim_by_hand(stored, facts):
    """L1 above L0: by the groups of the questions and by the seeds, written out (Cameron, Gelbach and Miller 2011)."""
    ours, theirs = scores_of(stored, "L1"), scores_of(stored, "L0")
    passages = np.arange(ours.shape[1]) // 4  # four questions each, 30 passages
    sums = [np.stack([(s - s.mean())[:, passages == g].sum(1) for g in range(30)], 1) / s.size for s in (ours, theirs)]
    groups = 30 / 29 * ((sums[0].sum(0) - sums[1].sum(0)) ** 2).sum()
    seeds = [max(2 * (s.sum(1) ** 2).sum() - (s**2).sum(), 0) for s in sums]
    error = np.sqrt(groups + sum(seeds))
    freedom = error**4 / (groups**2 / 29 + sum(s**2 for s in seeds))
    (claim,) = (one for one in facts["claims"] if one["says"] == "one trained layer is better than none")
    assert claim["effect"] == pytest.approx(100 * (ours.mean() - theirs.mean()))
    half = 100 * stats.t.ppf(0.975, freedom) * error
    assert claim["interval"] == pytest.approx([claim["effect"] - half, claim["effect"] + half])
    assert claim["p_value"] == pytest.approx(2 * stats.t.sf(claim["effect"] / 100 / error, freedom))
    assert (claim["seeds"], claim["what"], claim["why"]) == (2, "L1 − L0", "")


def test_p_values_are_corrected_for_all_claims_of_the_table(facts):
    p_values = [claim["p_value"] for claim in facts["claims"]]
    smallest = int(np.argmin(p_values))
    assert facts["claims"][smallest]["corrected"] == pytest.approx(min(1, 4 * p_values[smallest]))
    for claim in facts["claims"]:
        assert (claim["corrected"] < 0.05) == (claim["verdict"] in ("confirmed", "refuted"))


def test_times_are_compared_over_seeds(stored, facts):
    """Welch's t-test of the logarithms."""
    seconds = [
        [json.loads((stored / f"hulburd/{name}-seed{s}/metrics.json").read_text())["train_seconds"] for s in (0, 1)]
        for name in ("L12", "L6")
    ]
    (claim,) = (one for one in facts["claims"] if one["what"] == "ratio of L12 to L6")
    logs = np.log(seconds)
    assert claim["effect"] == pytest.approx(np.exp(logs[0].mean() - logs[1].mean()))
    wanted = stats.ttest_ind(logs[0] - np.log(1.05), logs[1], equal_var=False).pvalue
    assert claim["p_value"] == pytest.approx(wanted)


def test_an_earlier_moment_is_not_judged_by_the_answers_of_the_end(stored):
    """`dot` after 2 and after 5 epochs are one run, whose answers are those after 5."""
    found = reproduce_facts("silva/figure7", [stored / "silva"], read)
    rows = {row["name"]: row["found"]["f1"] for row in found["rows"]}
    assert rows["dot at 2 epochs"]["interval"] is None
    assert rows["dot"]["interval"] is not None
    (claim,) = found["claims"]
    assert claim["effect"] == pytest.approx(rows["dot at 2 epochs"]["mean"] - rows["dot"]["mean"])
    assert claim["effect"] < -5
    assert {row["name"] for row in found["rows"] if row["curves"]} == {"ALBERT", "dot", "weighted attention", "encoder"}


def test_sizes_that_stay_and_shrink(stored):
    """Keys have all of their 64, values so many as the part that is kept; the top layer is left out."""
    (key,) = reproduce_facts("schubert/figure5", [stored / "schubert"])["claims"]
    assert (key["verdict"], key["effect"]) == ("confirmed", 1.0)
    (value,) = reproduce_facts("schubert/figure6", [stored / "schubert"])["claims"]
    assert (value["verdict"], value["effect"]) == ("confirmed", round(64 * 0.606) / 64)


def test_tuned_rows_have_seeds_and_settings(stored):
    found = reproduce_facts("schubert/table6", [stored / "schubert"])
    (row,) = (row for row in found["rows"] if row["name"] == "optBERT-h")
    assert row["seeds"] == [0, 1]
    assert len(row["runs"]) == 12
    parts = [row["found"][key]["mean"] for key in ("squad1_f1", "squad2_f1")]
    parts += [row["found"][f"{task}_acc"]["mean"] for task in ("MNLI", "MRPC", "SST-2", "RTE")]
    assert row["found"]["average"]["mean"] == pytest.approx(mean(parts))
    assert all("2 seeds" in line for line in found["settings"])


def test_some_rows_and_one_seed(stored, tmp_path):
    """Without questions nothing is known but the scores: of one seed no claim can be tested."""
    write_paper(tmp_path, "hulburd", items=["table1"], seeds=1)
    found = reproduce_facts("hulburd/table1", [tmp_path], rows=("L1", "L0"))
    assert [row["name"] for row in found["rows"]] == ["L1", "L0"]
    whys = {claim["says"]: claim["why"] for claim in found["claims"]}
    assert (
        whys["one trained layer is better than none"]
        == "L1: one seed, and no scores of questions: two seeds are needed"
    )
    assert whys["the more layers are trained, the better"] == "the row L12 is left out"
    assert {claim["verdict"] for claim in found["claims"]} == {"not testable here"}
    assert reproduce_facts("hulburd/table1", [tmp_path], read, rows=("L1", "L0"))["claims"][2]["effect"] is not None


def without_places(facts, *folders):
    """JSON without the folders, which differ."""
    text = json.dumps(facts, sort_keys=True)
    for folder in sorted(map(str, folders), key=len, reverse=True):
        text = text.replace(folder, "")
    return json.loads(text)


@pytest.mark.parametrize("name", ["hulburd/table1", "bertvision/table3", "bertvision/figure4", "bertvision/figure6"])
def test_packed_and_stored_runs_give_the_same_facts(stored, tmp_path, name):
    """Packed ones to the last bit; scores of questions that are stored in place of answers are rounded."""
    source = stored / name.split("/")[0]
    folder = tmp_path / "hulburd" / source.name
    unpack(pack(source, tmp_path / "packed"), tmp_path / "there")
    there = tmp_path / "there" / source.name
    wanted = without_places(reproduce_facts(name, [source], read), source)
    assert without_places(reproduce_facts(name, [there], read), there, source) == wanted
    kept = store(source, tmp_path / "kept")
    assert not list(kept.rglob("answers*")), "no texts of the questions' passages"
    assert list(kept.rglob("scores.json.gz"))
    found = without_places(reproduce_facts(name, [kept]), kept, source)
    assert_close(found, wanted)
    assert not folder.exists()


def assert_close(one, other):
    if isinstance(one, dict):
        assert one.keys() == other.keys()
        for key in one:
            assert_close(one[key], other[key])
    elif isinstance(one, list):
        assert len(one) == len(other)
        for left, right in zip(one, other):
            assert_close(left, right)
    elif isinstance(one, float):
        assert one == pytest.approx(other, rel=1e-3, abs=1e-3)
    else:
        assert one == other


def test_at_80_columns(stored, cli, monkeypatch):
    """No number is cut, and no line is wider."""
    monkeypatch.setenv("COLUMNS", "80")
    for name in ("hulburd/table1", "silva/figure7", "schubert/table7", "bertvision/table3"):
        said = cli("reproduce", name, "--show", "--runs", stored)
        assert said.returncode == 0, said.stderr
        lines = [line for line in said.stdout.splitlines() if not line.startswith("here: ")]  # paths are not broken
        assert max(map(len, lines)) <= 80
        assert "…" not in said.stdout
    said = cli("reproduce", "hulburd/table1", "--show", "--runs", stored)
    for number in ("108,311,810", "42,548,738", "39,938", "76.30"):
        assert number in said.stdout


def test_json_is_what_is_shown(stored, cli, facts):
    said = cli("reproduce", "hulburd/table1", "--show", "--runs", stored / "hulburd", "--json")
    assert json.loads(said.stdout) == json.loads(json.dumps(facts))


def test_questions_that_are_gone_are_a_warning(stored, cli, tmp_path):
    folder = tmp_path / "h"
    write_paper(folder, "hulburd", items=["table1"], seeds=1)
    (folder / "dev.json").unlink()
    said = cli("reproduce", "hulburd/table1", "--show", "--runs", folder)
    assert said.returncode == 0
    assert f"quoth: warning: {folder}/dev.json: no such file; without the questions" in said.stderr
    said = cli("reproduce", "hulburd/table1", "--show", "--runs", folder, "--evaluate", tmp_path / "no.json")
    assert (said.returncode, said.stderr) == (2, f"quoth: {tmp_path}/no.json: no such file\n")


TINY = ("-m", "/no/model", "--data", "t.json", "--evaluate", "e.json")


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        ((), "name a table or figure, such as hulburd/table1; quoth reproduce --list shows all"),
        (("hulburd/table9",), "hulburd/table9: no such table or figure; did you mean hulburd/table"),
        (("hulburd/table1", "--rows", "L2"), "--rows L2: it has L12, L6, L3, L1, L0"),
        (("hulburd/figure1", "--rows", "L2"), "--rows L2: it has no rows"),
        (("hulburd/table1", "--tasks", "MNLI"), "--tasks MNLI: this paper has none"),
        (("schubert/table6", "--tasks", "QQP"), "--tasks QQP: this paper has squad1, squad2, MNLI, MRPC, SST-2, RTE"),
        (("schubert/table7",), "a pruning run of this table needs plain text: give --text FILE"),
        (("bertvision/glue", "--glue", "g"), "g/MRPC/train.tsv.gz: no such file; --tasks names those"),
        (("hulburd/table1", *TINY), "/no/model: no such file or folder"),
        (("hulburd/table1", "--epochs", "0"), "--epochs is 0; a number above 0 is wanted"),
        (("hulburd/table1", "--epochs", "nan"), "reproduce: L12: optimisation.epochs is nan; a number is wanted"),
        (("hulburd/table1", "--fraction", "2"), "reproduce: L12: data.fraction is 2.0; it must be above 0, at most 1"),
        (("hulburd/table1", "optimisation.rate=1"), "reproduce: L12: unknown key optimisation.rate"),
        (("hulburd/table1", "seed=1"), "reproduce: the command line has a seed"),
        (("hulburd/table1", "--show", "--out", "."), ".: has no sweep.json; name the folder of a sweep"),
        (("hulburd/table1", "--show", "--runs", "no"), "no: no such folder; name a run or sweep"),
        (("hulburd/table1", "--show", "--runs", "."), ".: has no metrics.json and no sweep.json; name the folder"),
        (("hulburd/table1", "--report", "p.html"), "hulburd/table1: --report and --claims are of all tables"),
        (("--report", "p.html", "--runs", "no"), "no: no such folder; name a run or sweep"),
    ],
)
def test_a_mistake_is_one_line(arguments, line, cli, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    said = cli("reproduce", *arguments)
    assert (said.returncode, said.stdout, said.stderr.count("\n")) == (2, "", 1), said.stderr
    assert said.stderr.startswith(f"quoth: {line}")
    assert not list(tmp_path.iterdir()), "nothing is written"


def test_a_dry_run_writes_nothing(cli, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    said = cli("reproduce", "hulburd/table1", "--rows", "L1", "--seeds", "2", "--dry-run", "--json", "-m", "/no/model")
    assert said.returncode == 0
    assert [(run["method"], run["seed"]) for run in json.loads(said.stdout)["runs"]] == [("L1", 0), ("L1", 1)]
    assert not list(tmp_path.iterdir())


def test_rows_of_another_encoder_are_told(cli):
    said = cli("reproduce", "silva/table2", "--dry-run", "--json", "-m", "/no/model")
    assert "quoth: BERT is left out: it is of another encoder than the other rows" in said.stderr
    assert [run["method"] for run in json.loads(said.stdout)["runs"]] == ["ALBERT", "weighted", "dot"]


def test_drawings_need_no_runs(cli):
    for name in ("hulburd/figure1", "schubert/table5", "silva/figure1"):
        said = cli("reproduce", name)
        assert said.returncode == 0
        assert find_item(name)[2].title in said.stdout
        assert "nothing" in said.stdout


def test_printing_needs_no_file(facts, capsys):
    from quoth.cli.screen import console

    print_reproduced(facts, console(width=100))
    assert "WITHIN NOISE" in capsys.readouterr().out
