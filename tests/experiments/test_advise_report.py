"""How candidates are ordered in a round, and what is said of a search: of made-up scores."""

import pytest

from quoth.experiments.advise import Ask
from quoth.experiments.advise_limits import Costs, Limits
from quoth.experiments.advise_race import order
from quoth.experiments.advise_report import commands, summary
from quoth.experiments.advise_training import Score


def score(f1, loss, error=""):
    return Score(f1, loss, f1, f1, 100, 1.0, 1.0, error=error)


def test_order_by_the_ranks_of_f1_and_loss():
    """F1 ranks 0, 1, 2, 3 and loss ranks 3, 0, 1, 2 make the sums 3, 1, 3, 5; of equal sums the higher F1 is first."""
    assert order([score(40, 4.0), score(39, 1.0), score(20, 2.0), score(10, 3.0)]) == [1, 0, 2, 3]


def test_equal_f1_is_decided_by_the_loss_and_equal_both_by_the_place():
    assert order([score(20, 4.0), score(20, 3.0), score(20, 5.0)]) == [1, 0, 2]
    assert order([score(20, 4.0)] * 3) == [0, 1, 2]


def test_of_two_that_ranks_do_not_decide_f1_does():
    assert order([score(50, 2.0), score(51, 3.0)]) == [1, 0]


def test_what_failed_is_last():
    assert order([score(0, 0.0, "the loss is nan"), score(1, 9.0)]) == [1, 0]


def row(name, f1, rounds=2, against=None, corrected=0.01, half=2.0, trainable=1000, **more):
    """A row of a report; against: its difference from the best one."""
    found = against and {"difference": against, "interval": [against - 1, against + 1], "corrected": corrected}
    made = {
        "name": name, "rounds": rounds, "score": f1, "interval": [f1 - half, f1 + half], "windows": 3840,
        "against_best": found, "trainable_parameters": trainable, "form": "float32", "bytes": 30e6, "error": "",
    }  # fmt: skip
    return {**made, **more}


def said(*rows, never=0.0):
    facts = {
        "rows": list(rows),
        "held_out_questions": 600,
        "windows": 12000.0,
        "cost": {"share": 0.1},
        "never_answering": never,
    }
    return summary(facts)


def test_the_best_one_and_what_it_took():
    lines = said(row("full", 60.0), row("lora", 50.0, against=-10.0))
    assert lines[0] == (
        "Train by 'full': F1 60.00 (95 % interval 58.00 to 62.00) on 600 held-out questions, after 3,840 windows; a "
        "whole training has 12,000. The search took 10 % of the training that all candidates would take whole."
    )
    assert lines[1:] == ["All others are worse by more than noise, each in its last round."]


def test_too_few_data_to_tell_two_finalists_apart():
    lines = said(row("full", 60.0, trainable=9000), row("lora", 59.5, against=-0.5, corrected=0.4, trainable=500))
    assert lines[1] == (
        "The data are too few to tell it from 'lora': -0.50 points (95 % interval -1.50 to +0.50). Either will do, or "
        "give more questions."
    )
    assert lines[2] == "'lora' trains fewer parameters: 500."


def test_one_that_is_cheaper_but_more_than_a_point_worse_is_not_named():
    lines = said(row("full", 60.0, trainable=9000), row("lora", 58.0, against=-2.0, corrected=0.4, trainable=500))
    assert not any("fewer parameters" in line for line in lines)


def test_dropped_within_noise_is_told_with_a_few_names():
    early = [row(f"m{i}", 30.0, rounds=1, against=-0.1, corrected=1.0) for i in range(5)]
    lines = said(row("full", 60.0), row("lora", 50.0, against=-10.0), *early)
    assert lines[1] == "Dropped earlier, though within noise of it then: m0, m1, m2 and 2 more."


def test_no_better_than_never_answering():
    lines = said(row("full", 21.0, half=3.0), never=20.0)
    assert lines[0].startswith("The data or the training are too few to tell which method is best")
    assert "F1 20.00" in lines[0]
    assert lines[1].startswith("Ahead so far is 'full'")
    assert said(row("full", 24.0, half=3.0), never=20.0)[0].startswith("Train by")
    assert said(row("full", 1.0, half=3.0), never=0.0)[0].startswith("Train by")  # all questions have an answer


def test_a_wide_interval_is_told():
    assert said(row("full", 60.0, half=6.0))[-1] == "600 held-out questions are few: the F1 is known to ± 6.0 points."
    assert not any("are few" in line for line in said(row("full", 60.0, half=4.9)))


@pytest.mark.parametrize(("form", "words"), [("int8", "in int8: about 30 MB"), ("pruned", "only pruned and in int8")])
def test_in_which_form_it_fits(form, words):
    assert words in said(row("full", 60.0, form=form))[-1]


def test_commands(tmp_path):
    ask = Ask("my data.json", "m", Limits(), device="cpu")
    out = tmp_path / "a b"
    assert commands(ask, Costs(1e6, "float32"), out) == [
        f"quoth train '{out}/train.toml' --out '{out}/trained' --device cpu"
    ]
    limited = Ask("my data.json", "m", Limits(size=1e6))
    assert commands(limited, Costs(1e6, "int8"), tmp_path)[1:] == [
        f"quoth export {tmp_path}/trained/model --to {tmp_path}/exported --int8 --data 'my data.json'"
    ]
    assert commands(limited, Costs(1e6, "pruned", 0.58), tmp_path)[1:] == [
        f"quoth prune {tmp_path}/trained/model --keep 0.58 --data 'my data.json' --out {tmp_path}/pruned",
        f"quoth export {tmp_path}/pruned/keep-0.58/model --to {tmp_path}/exported --int8 --data 'my data.json'",
    ]
