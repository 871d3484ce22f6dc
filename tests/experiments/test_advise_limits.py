"""Limits of `quoth advise`: amounts with units, and candidates against limits."""

import re
from types import SimpleNamespace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from quoth.errors import QuothError
from quoth.experiments import advise_limits
from quoth.experiments.advise_candidates import read_candidates
from quoth.experiments.advise_limits import (
    Costs,
    Limits,
    excess,
    if_pruned,
    measure_latency,
    measure_training,
    parse_bytes,
    parse_seconds,
    show_bytes,
    show_seconds,
    sized,
    too_much,
)
from quoth.hub import find_model
from quoth.tasks import prepare
from quoth.train import build_model
from quoth.train.run import make_accelerator
from train.conftest import material as material
from train.conftest import one_thread as one_thread

TIMES = {"ms": 0.001, "s": 1, "sec": 1, "m": 60, "min": 60, "h": 3600}
SIZES = {"B": 1, "kB": 1e3, "MB": 1e6, "GB": 1e9, "KiB": 2**10, "MiB": 2**20, "GiB": 2**30}
AMOUNTS = st.integers(1, 9999).flatmap(lambda n: st.sampled_from([str(n), f"{n}.5", f"{n}.25", f".{n}"]))
SPACES = st.sampled_from(["", " ", "  "])
CASES = st.sampled_from([str, str.lower, str.upper])


@given(AMOUNTS, SPACES, st.sampled_from(sorted(TIMES)), CASES)
def test_times(amount, space, unit, case):
    assert parse_seconds(f"{space}{amount}{space}{case(unit)}", "--x") == pytest.approx(float(amount) * TIMES[unit])


@given(AMOUNTS, SPACES, st.sampled_from(sorted(SIZES)), CASES)
def test_sizes(amount, space, unit, case):
    assert parse_bytes(f"{amount}{space}{case(unit)}{space}", "--x") == pytest.approx(float(amount) * SIZES[unit])


def test_the_amounts_of_the_help():
    assert parse_seconds("20ms", "") == 0.02
    assert parse_seconds("10min", "") == 600
    assert parse_bytes("30MB", "") == 30_000_000


@pytest.mark.parametrize("parse", [parse_seconds, parse_bytes])
@given(text=st.one_of(st.text(max_size=12), st.from_regex(r"[-+]?[0-9.e_]{0,6} ?[a-zA-Z]{0,3}", fullmatch=True)))
def test_any_text_is_an_amount_above_0_or_one_line(parse, text):
    try:
        found = parse(text, "--max-size")
    except QuothError as error:
        found = 1.0 if re.fullmatch(r"--max-size .* is wanted", str(error), re.DOTALL) else 0.0
    assert 0 < found < float("inf")


@pytest.mark.parametrize("text", ["30", "30MB", "-1s", "0ms", "1e3s", "nan s", "inf s", "", "s", "1.s.", "1:30", "²s"])
def test_what_is_no_time(text):
    with pytest.raises(QuothError, match="a time such as 20ms"):
        parse_seconds(text, "--max-latency")


@pytest.mark.parametrize("text", ["30", "30ms", "30 megabytes", "0MB", "-5MB", "MB", "9" * 400 + "GB"])
def test_what_is_no_size(text):
    with pytest.raises(QuothError, match="a size such as 30MB"):
        parse_bytes(text, "--max-size")


@pytest.mark.parametrize(
    ("seconds", "shown"),
    [(0.0204, "20.4 ms"), (0.9, "900 ms"), (1.5, "1.5 s"), (90, "90 s"), (600, "10 min"), (7200, "2 h")],
)
def test_times_for_people(seconds, shown):
    assert show_seconds(seconds) == shown
    assert parse_seconds(shown, "") == pytest.approx(seconds)


def test_sizes_for_people():
    assert show_bytes(34_567_890) == "34.6 MB"


@pytest.fixture(scope="module")
def candidates(material):
    return read_candidates(str(material.model), str(material.train), 1, 0)[0]


@pytest.fixture(scope="module")
def task(material, candidates):
    recipe = candidates[0].recipe
    return prepare(recipe.data, build_model(recipe), 0, 30)


def test_the_first_form_that_fits(candidates):
    one = next(one for one in candidates if one.name == "full 1e-4")
    whole = sized(one, None)
    assert (whole.form, whole.keep) == ("float32", 1.0)
    rest = sum(path.stat().st_size for path in find_model(one.recipe.model).tokenizer)
    assert whole.size == 4 * one.parameters + rest
    assert sized(one, whole.size) == whole
    small = sized(one, whole.size - 1)
    assert (small.form, small.keep) == ("int8", 1.0)
    assert small.size < whole.size / 2
    pruned = sized(one, small.size - 1)
    assert pruned.form == "pruned"
    assert 0.9 < pruned.keep < 1
    assert pruned.size <= small.size - 1
    least = sized(one, 1.0)  # nothing fits
    assert least.keep == advise_limits.KEEP
    assert too_much(least, Limits(size=1.0))


def test_each_limit_is_compared_with_its_cost():
    costs = Costs(30e6, "int8", 1.0, 0.02, 0.1, 600.0)
    assert too_much(costs, Limits()) is None
    assert too_much(costs, Limits(0.02, 30e6, 600.0)) is None  # a limit may be reached
    assert too_much(costs, Limits(latency=0.01)) == "--max-latency 10 ms: 20 ms"
    assert too_much(costs, Limits(size=20e6)) == "--max-size 20 MB: 30 MB"
    assert too_much(costs, Limits(train=300.0)) == "--max-train 5 min: 10 min"
    unknown = Costs(30e6, "int8")
    assert too_much(unknown, Limits(0.01, None, 300.0)) is None  # not measured yet
    assert if_pruned(Costs(20e6, "pruned", 0.58), Limits(size=20e6)) == "--max-size 20 MB: only if it is pruned to 58 %"


def test_the_limit_that_is_broken_most():
    assert excess(Costs(30e6, "int8", 1.0, 0.02), Limits(0.01, 20e6, 60.0)) == 2.0
    assert excess(Costs(30e6, "int8"), Limits()) == 0.0


def test_latency_is_measured_once_for_each_head_and_tuning(candidates, task, monkeypatch):
    """Learning rates make no difference to it; the calls take turns, on a window of median length."""
    asked = []

    def median_seconds(calls, device):
        asked.append([call.args[1].lengths for call in calls])
        for call in calls:
            call()
        return [float(number) for number, _ in enumerate(calls)]

    monkeypatch.setattr(advise_limits, "median_seconds", median_seconds)
    found = dict(zip([one.name for one in candidates], measure_latency(candidates, task, "cpu")))
    assert found["full 5e-5"] == found["full 1e-4"] == found["full 2e-4"]
    assert found["half depth 1e-4"] == found["half depth 2e-4"] != found["full 1e-4"]
    assert found["LoRA 16 5e-4"] == found["LoRA 16 1e-3"] != found["adapters 64 1e-3"]
    lengths = sorted(task.examples.windows.lengths)
    assert asked == [[(lengths[len(lengths) // 2],)] * len(set(found.values()))]


def test_training_time_is_that_of_a_window(candidates, task, monkeypatch):
    """By a clock that goes on by a second at each look, three steps of four windows take a quarter of a second each."""
    now = iter(range(100))
    monkeypatch.setattr(advise_limits, "time", SimpleNamespace(perf_counter=lambda: next(now)))
    accelerator = make_accelerator("cpu")
    before = torch.get_rng_state()
    assert measure_training(candidates[0], task, accelerator) == 0.25
    assert not accelerator._models  # nothing is kept of a candidate
    torch.set_rng_state(before)
