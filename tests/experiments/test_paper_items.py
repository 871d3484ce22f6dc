"""The tables and figures of the four papers as data: all are there, refer to what exists, and are as in print.

The lists and numbers here were written by hand from the papers, not from the files that are tested.
"""

import pytest

from quoth.errors import QuothError
from quoth.experiments.paper_items import (
    DRAWN,
    PAPERS,
    chosen_rows,
    find_item,
    item_names,
    listing,
    read_paper,
    runs_of,
)
from quoth.recipes import find_recipe

TABLES = {"hulburd": 3, "bertvision": 5, "schubert": 15, "silva": 3}
FIGURES = {"hulburd": 5, "bertvision": 6, "schubert": 6, "silva": 8}
MORE = {"bertvision/heads", "bertvision/answerable", "bertvision/glue"}  # of the authors' code
# Item, row: EM, F1.
SCORES = {
    ("hulburd/table1", "L0"): (52.1, 53.1),
    ("hulburd/table1", "L1"): (62.8, 65.9),
    ("hulburd/table1", "L3"): (69.3, 72.5),
    ("hulburd/table1", "L6"): (72.3, 75.2),
    ("hulburd/table1", "L12"): (73.3, 76.3),
    ("hulburd/table2", "L12-A64"): (73.2, 76.3),
    ("hulburd/table2", "L0-A64"): (66.8, 69.8),
    ("hulburd/table2", "L0-A768"): (72.0, 75.0),
    ("bertvision/table1", "BERT"): (65.4, 70.2),
    ("bertvision/table1", "adapter 386"): (69.9, 74.0),
    ("bertvision/table1", "adapter 64"): (68.0, 73.2),
    ("bertvision/table2", "BERT 1 epoch"): (72.8, 77.7),
    ("bertvision/table2", "BERT 2 epochs"): (74.7, 79.2),
    ("bertvision/table2", "adapter 386"): (74.9, 79.0),
    ("bertvision/table2", "LP, adapter 386, Xception"): (74.1, 78.6),
    ("bertvision/heads", "lp, 0.3 e"): (67.0, 71.2),
    ("bertvision/heads", "lp, 1 e"): (73.1, 76.6),
    ("bertvision/heads", "cnn-1xn, 1 e"): (74.5, 78.9),
    ("bertvision/heads", "adapter-64-each, 0.3 e"): (68.4, 71.6),
    ("bertvision/heads", "joined, 1 e"): (74.5, 78.9),
    ("bertvision/heads", "lp-adapter-inception, 0.3 e"): (50.1, 50.1),
    ("bertvision/table3", "ensemble 0.3 e"): (69.1, 73.4),
    ("bertvision/table3", "ensemble 1 e"): (75.6, 79.8),
    ("bertvision/table4", "BERT 1 e"): (76.1, 72.0),
    ("bertvision/table4", "ours 1 e"): (78.2, 76.3),
    ("bertvision/table4", "BERT 3 e"): (80.4, 79.0),
    ("bertvision/table4", "ours 3 e"): (81.1, 79.5),
    ("bertvision/answerable", "BERT, 0.2 e"): (68.7, 63.6),
    ("bertvision/answerable", "xception-short, 1 e"): (78.5, 78.2),
    ("bertvision/answerable", "xception-full, 0.2 e"): (70.7, 71.0),
    ("bertvision/table5", "best model of 1 e"): (75.3, 79.7),
    ("bertvision/table5", "best model of 0.3 e"): (74.9, 79.5),
    ("bertvision/table5", "ensemble"): (75.1, 79.6),
    ("bertvision/figure6", "0.1 epochs"): (54.0, 59.7),
    ("bertvision/figure6", "0.5 epochs"): (71.5, 76.0),
    ("bertvision/figure6", "3 epochs"): (74.0, 78.8),
    ("bertvision/figure6", "5 epochs"): (72.3, 77.8),
    ("bertvision/figure6", "6 epochs"): (74.3, 79.6),
    ("silva/table2", "BERT, untuned"): (52.122, 52.133),
    ("silva/table2", "BERT"): (71.832, 75.037),
    ("silva/table2", "ALBERT"): (76.538, 79.636),
    ("silva/table2", "weighted"): (75.156, 78.144),
    ("silva/table2", "dot"): (76.883, 79.953),
    ("silva/table3", "ALBERT"): (73.922, 77.740),
    ("silva/table3", "weighted attention"): (72.918, 76.817),
    ("silva/table3", "dot"): (74.580, 78.401),
    ("silva/table3", "encoder"): (72.639, 76.570),
    ("silva/table1", "dot, 2 epochs"): (74.844, 78.370),
    ("silva/table1", "encoder, 5 epochs"): (74.303, 78.159),
}
PARAMETERS = {
    ("hulburd/table1", "L0"): 39_938,
    ("hulburd/table1", "L1"): 7_124_738,
    ("hulburd/table1", "L3"): 21_294_338,
    ("hulburd/table1", "L6"): 42_548_738,
    ("hulburd/table1", "L12"): 108_311_810,
    ("hulburd/table2", "L12-A64"): 110_691_074,
    ("hulburd/table2", "L0-A64"): 2_419_202,
    ("hulburd/table2", "L0-A768"): 28_388_354,
    ("bertvision/table1", "learned pooling"): 2_076,
    ("bertvision/table2", "adapter 386"): 414_952,
    ("bertvision/table2", "adapter 64"): 68_802,
    ("bertvision/heads", "adapter-386-each, 1 e"): 9_910_552,
    ("bertvision/heads", "adapter-64-each, 1 e"): 1_643_202,
    ("bertvision/heads", "lp-adapter-386, 1 e"): 398_498,
    ("bertvision/heads", "adapter-386-skip, 1 e"): 414_952 + 2_048,
    ("bertvision/answerable", "lp, 1 e"): 2_077,
    ("bertvision/answerable", "xception-short-cls, 1 e"): 269_058,
}
MINUTES = {"L0": 188, "L1": 193, "L3": 203, "L6": 218, "L12": 255, "L12-A64": 269, "L0-A64": 203, "L0-A768": 253}
AVERAGES = {  # schuBERT: table, row: the average of all scores
    ("table6", "BERT-base"): 84.3, ("table6", "optBERT-all"): 83.8, ("table6", "BERT-9 layers"): 82.7,
    ("table8", "optBERT-h"): 82.9, ("table8", "BERT-6 layers"): 81.0, ("table9", "optBERT-h"): 81.7,
    ("table9", "BERT-3 layers"): 75.1, ("table11", "optBERT-all"): 84.1, ("table15", "optBERT-h"): 81.0,
    ("table15", "uniform"): 77.7,
}  # fmt: skip
HIDDEN = {"77M: h": 544, "66M: h": 466, "55M: h": 390, "43M: h": 304, "33M: h": 234}
FFN = {"table7": (1382, 2938), "table12": (2022, 2974)}  # of the first and the last layer


def row_of(name, row):
    _, _, item = find_item(name)
    return chosen_rows(item, (row,))[0]


def test_every_table_and_figure_is_there(cli):
    wanted = {f"{paper}/table{n + 1}" for paper, count in TABLES.items() for n in range(count)}
    wanted |= {f"{paper}/figure{n + 1}" for paper, count in FIGURES.items() for n in range(count)}
    assert set(item_names()) == wanted | MORE
    said = cli("reproduce", "--list")
    assert said.returncode == 0
    assert {line.split(":")[0] for line in said.stdout.splitlines() if not line.startswith(" ")} >= wanted | MORE


@pytest.mark.parametrize("name", PAPERS)
def test_items_refer_to_what_exists(name):
    """Rows to runs, runs to recipes, claims and ensembles to rows and heads; what is drawn can be."""
    paper = read_paper(name)
    for run in [*paper.runs.values(), *paper.tasks.values()]:
        assert find_recipe(run.recipe).exists()
    for key, item in paper.items.items():
        names = [row.name for row in item.rows]
        assert len(set(names)) == len(names), key
        assert item.draw in ("", *DRAWN), key
        for row in item.rows:
            assert sum(map(bool, (row.run, row.tuned, row.missing))) == 1, (key, row.name)
            assert not row.run or row.run in paper.runs, (key, row.name)
            assert not row.tuned or row.tuned in (*paper.runs, "unpruned"), (key, row.name)
            assert (row.epoch is None) == (not row.head), (key, row.name)
            assert (row.head == "ensemble") == bool(row.members), (key, row.name)
        for claim in item.claims:
            assert claim.rows, (key, claim.says)
            assert set(claim.rows) <= set(names), (key, claim.says)
            kinds = (claim.above, claim.above_each, claim.order, claim.pairs, claim.near, claim.ratio, claim.level)
            assert sum(map(bool, (*kinds, claim.grows))) == 1, (key, claim.says)
            assert not claim.near or claim.within > 0, (key, claim.says)
            assert not (claim.ratio or claim.level) or (claim.least, claim.most) != (None, None), (key, claim.says)


@pytest.mark.parametrize(("place", "scores"), SCORES.items())
def test_scores_are_those_in_print(place, scores):
    paper = row_of(*place).paper
    assert (paper["exact"], paper["f1"]) == scores


@pytest.mark.parametrize(("place", "count"), PARAMETERS.items())
def test_parameters_are_those_in_print(place, count):
    assert row_of(*place).paper["trainable_parameters"] == count


@pytest.mark.parametrize(("row", "minutes"), MINUTES.items())
def test_training_times_are_those_in_print(row, minutes):
    """The paper has minutes, though table 2 is headed "s"."""
    table = "hulburd/table1" if row in ("L0", "L1", "L3", "L6", "L12") else "hulburd/table2"
    assert row_of(table, row).paper["train_seconds"] == 60 * minutes


@pytest.mark.parametrize(("place", "average"), AVERAGES.items())
def test_averages_are_those_in_print_and_those_of_their_scores(place, average):
    """The paper averages F1 of both SQuADs and the accuracies; it prints one decimal."""
    paper = row_of(f"schubert/{place[0]}", place[1]).paper
    parts = [paper[key] for key in ("squad1_f1", "squad2_f1", "MNLI_acc", "MRPC_acc", "SST-2_acc", "RTE_acc")]
    assert paper["average"] == average
    assert sum(parts) / len(parts) == pytest.approx(average, abs=0.11)


def test_shapes_are_those_in_print():
    sizes = {row.name: row.sizes["h"] for row in find_item("schubert/table10")[2].rows if row.name in HIDDEN}
    assert sizes == HIDDEN
    for table, ends in FFN.items():
        (row,) = find_item(f"schubert/{table}")[2].rows
        assert (row.sizes["f"][0], row.sizes["f"][-1], len(row.sizes["f"])) == (*ends, 12)


def test_rows_that_no_shape_satisfies_name_the_floor():
    """One head a layer leaves 82.9M, one FFN unit 52.3M."""
    told = {one["name"]: one["impossible"] for one in listing()}
    assert any("82.9M" in line for line in told["schubert/table13"])
    assert any("52.3M" in line for line in told["schubert/table15"])
    assert told["hulburd/table1"] == []


def test_the_cost_of_a_table():
    """Table 1 of Hulburd: five runs of three epochs of 132,300 windows. Pruning goes by the text that is given."""
    costs = {one["name"]: one for one in listing()}
    assert (costs["hulburd/table1"]["runs"], costs["hulburd/table1"]["windows"]) == (5, 5 * 3 * 132_300)
    assert costs["schubert/table7"]["windows"] is None
    assert costs["hulburd/figure1"]["runs"] == 0
    # figure 3 has the rows of three tables: fourteen runs, L0, L12 and L0-A64 each once
    assert costs["hulburd/figure3"]["runs"] == 14
    # heads on the encoder as it is loaded, after 0.3 and after 1 epoch, an epoch each; and the encoder itself
    assert costs["bertvision/table1"]["windows"] == 131_911 * 4


def test_tuned_rows_need_their_pruning_run_first():
    _, paper, item = find_item("schubert/table6")
    runs = runs_of(paper, item, ("BERT-base", "optBERT-h"), ("RTE", "squad2"))
    assert list(runs) == ["unpruned RTE", "unpruned squad2", "h 88M", "h 88M RTE", "h 88M squad2"]
    assert [run.after for run in runs.values()] == ["", "", "", "h 88M", "h 88M"]
    assert runs["unpruned RTE"].set["model"] == "bert-base-uncased"


@pytest.mark.parametrize(
    ("name", "near"),
    [("hulburd/tabel1", "hulburd/table1"), ("silva", "silva/"), ("", ""), ("schubert/table16", "schubert/")],
)
def test_an_unknown_item_is_one_line(name, near):
    with pytest.raises(QuothError, match=f"^{name}: no such table or figure; did you mean {near}"):
        find_item(name)


def test_an_unknown_row_is_one_line():
    with pytest.raises(QuothError, match=r"--rows L2: it has L12, L6, L3, L1, L0$"):
        chosen_rows(find_item("hulburd/table1")[2], ("L2",))
    with pytest.raises(QuothError, match=r"--rows L2: it has no rows$"):
        chosen_rows(find_item("hulburd/figure1")[2], ("L2",))
