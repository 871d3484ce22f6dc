"""A search on tiny data: against `quoth train`, against limits, interrupted, with candidates that fail."""

import json
import os
import signal
from dataclasses import replace

import pytest

from experiments.advise_material import DIVERGES, TABLE, scores, search, timeless, use_table
from experiments.advise_material import four as four
from experiments.advise_material import given as given
from quoth.data import read
from quoth.errors import QuothError
from quoth.experiments import advise as module
from quoth.experiments import advise_training
from quoth.experiments.advise_candidates import read_candidates
from quoth.experiments.advise_limits import Limits
from quoth.tasks import Data, prepare
from quoth.train import build_model, read_recipe, train
from quoth.train.loop import make_batches
from quoth.train.training import Interrupted

NAMES = ["full 1e-3", "full 1e-2", "LoRA 1e-2", "half depth 1e-2"]


@pytest.fixture(scope="module")
def whole(given, tmp_path_factory):
    """A search that was not interrupted: its folder and what it found."""
    folder = tmp_path_factory.mktemp("whole")
    with pytest.MonkeyPatch.context() as patch:
        use_table(patch, folder, TABLE)
        told = []
        facts = search(given, folder / "out", tell=lambda board, line: told.append((board, line)))
    return folder / "out", facts, told


def test_the_rounds_and_what_they_took(whole):
    out, facts, _ = whole
    assert sorted(row["name"] for row in facts["rows"]) == sorted(NAMES)
    assert [one["candidates"] for one in facts["rounds"]] == [4, 2]
    assert sorted(row["rounds"] for row in facts["rows"]) == [1, 1, 2, 2]
    parts = [str(out / f"questions/{name}.json") for name in ("train", "held-out")]
    data = Data(train=tuple(parts), max_length=64, step=24, max_query_length=24)
    assert facts["windows"] == 8 * len(prepare(data, build_model(read_recipe(out / "train.toml"))).examples)
    assert facts["train_questions"] + facts["held_out_questions"] == 100
    assert facts["held_out"] == {"by": "passages", "groups": 2}
    assert facts["cost"]["windows"] == sum(row["windows"] for row in facts["rows"])
    assert facts["cost"]["share"] == pytest.approx(0.1, abs=0.02)
    assert facts["best"] == facts["rows"][0]["name"]
    assert facts["never_answering"] == pytest.approx(20)
    assert json.loads((out / "advise.json").read_text()) == facts


def test_nothing_is_left_but_what_the_search_found(whole):
    out, facts, _ = whole
    found = sorted(str(path.relative_to(out)) for path in out.rglob("*") if path.is_file())
    folders = [name.replace(" ", "-") for name in NAMES]
    wanted = [".lock", "advise.json", "asked.json", "plan.json", "train.toml"]
    wanted += ["questions/held-out.json", "questions/train.json"]
    wanted += [f"candidates/{name}/{file}" for name in folders for file in ("log.jsonl", "round-0.json")]
    wanted += [f"candidates/{row['name'].replace(' ', '-')}/round-1.json" for row in facts["rows"][:2]]
    assert found == sorted(wanted)


def test_a_round_is_a_run_of_quoth_train_at_a_constant_learning_rate(whole, four, given, tmp_path):
    out, facts, _ = whole
    one = next(one for one in read_candidates(str(given.model), str(given.data), 1, 0)[0] if one.name == NAMES[1])
    settings = replace(one.recipe.data, train=(str(out / "questions/train.json"),),
                       evaluate=str(out / "questions/held-out.json"))  # fmt: skip
    task = prepare(settings, build_model(one.recipe))
    epoch = make_batches(task.examples.windows.lengths, one.recipe.optimisation, 0, 1).count()
    steps = round(facts["rounds"][0]["windows"] / 6)
    optimisation = replace(one.recipe.optimisation, schedule="constant", epochs=steps / epoch)
    made = train(replace(one.recipe, data=settings, optimisation=optimisation), tmp_path / "run", device="cpu")
    kept = scores(out)["full-1e-2/round-0.json"]
    assert made.windows == kept["windows"]
    assert (made.quality["f1"], made.quality["exact"]) == (kept["f1"], kept["exact"])
    assert made.quality["best_f1"] == pytest.approx(kept["score"])
    assert 100 * sum(kept["scores"]) / len(kept["scores"]) == pytest.approx(kept["score"])


def test_the_questions_to_score_on_are_about_other_passages(whole):
    out, _, _ = whole
    train_part, held_out = (read(out / f"questions/{name}.json").questions for name in ("train", "held-out"))
    assert not {q.context for q in train_part} & {q.context for q in held_out}


def test_the_recipe_trains_the_choice_on_all_questions(whole, four, given):
    out, facts, _ = whole
    recipe = read_recipe(out / "train.toml")
    chosen = next(
        one for one in read_candidates(str(given.model), str(given.data), 8, 0)[0] if one.name == facts["best"]
    )
    assert recipe == chosen.recipe
    assert recipe.data.train == (str(given.data),)


def test_progress(whole):
    """Every candidate of every round has a line, and what is done grows to the whole."""
    _, _, told = whole
    lines = [line for _, line in told if line]
    assert len(lines) == 4 + 2
    assert all(line.startswith(f"round {1 + (i >= 4)} of 2, ") and ": F1 " in line for i, line in enumerate(lines))
    boards = [board for board, _ in told if board.rounds]
    done = [board.done for board in boards]
    assert done == sorted(done)
    assert done[-1] == pytest.approx(boards[-1].windows)
    assert {(board.round, board.number) for board in boards} == {(0, 1), (0, 2), (0, 3), (0, 4), (1, 1), (1, 2)}
    assert any(board.status and board.status.loss > 0 for board in boards)


@pytest.mark.parametrize(
    "moment", [9, *(pytest.param(number, marks=pytest.mark.slow) for number in (1, 4, 12, 14, 17))]
)
def test_interrupted_it_goes_on_to_the_same(whole, four, given, tmp_path, moment):
    out, facts, _ = whole
    calls = 0

    def tell(board, line):
        nonlocal calls
        calls += 1
        if calls == moment:
            os.kill(os.getpid(), signal.SIGTERM)

    mine = tmp_path / "out"
    with pytest.raises(Interrupted):
        search(given, mine, tell=tell)
    assert not (mine / "advise.json").exists()
    again = search(given, mine)
    assert scores(mine) == scores(out)
    strip = {"commands": []}
    assert timeless(again) | strip == timeless(facts) | strip


def test_what_is_done_is_not_done_again(whole, four, given, monkeypatch):
    out, facts, _ = whole

    def fail(*_):
        raise AssertionError

    monkeypatch.setattr(advise_training.Trainer, "_train", fail)
    assert search(given, out) == facts


def test_another_search_does_not_take_its_folder(whole, four, given):
    out, _, _ = whole
    with pytest.raises(QuothError, match=r"limits\.size"):
        search(given, out, Limits(size=1e9))


def test_limits_that_nothing_keeps_name_the_nearest_and_leave_the_folder_free(four, given, tmp_path):
    with pytest.raises(QuothError, match=r"nearest is 'half depth 1e-2' with .* MB, not --max-size 0\.1 MB; raise"):
        search(given, tmp_path / "out", Limits(size=1e5))
    assert search(given, tmp_path / "out", Limits(size=1e9))["limits"]["size"] == 1e9


def test_candidates_above_measured_limits_are_left_out(four, given, tmp_path, monkeypatch):
    """Latencies of 10 and 20 ms against 15; then training times of which one is too long."""
    latencies = {"full 1e-3": 0.02, "full 1e-2": 0.01, "LoRA 1e-2": 0.01, "half depth 1e-2": 0.01}
    paces = {"full 1e-2": 1.0, "LoRA 1e-2": 2.0, "half depth 1e-2": 0.5}
    limits = module.limits_of
    monkeypatch.setattr(limits, "measure_latency", lambda found, *_: [latencies[one.name] for one in found])
    monkeypatch.setattr(limits, "measure_training", lambda one, *_: paces[one.name])
    facts = search(given, tmp_path / "out", Limits(latency=0.015, train=2000.0))
    assert facts["left_out"] == {
        "full 1e-3": "--max-latency 15 ms: 20 ms",
        "LoRA 1e-2": "--max-train 33.3 min: 43.7 min",  # 2 s for each of 1,312 windows
    }
    rows = {row["name"]: row for row in facts["rows"]}
    assert rows.keys() == {"full 1e-2", "half depth 1e-2"}
    assert rows["full 1e-2"]["train_seconds"] == facts["windows"] == 1312
    assert rows["full 1e-2"]["latency"] == 0.01


def test_what_would_have_to_be_pruned_is_left_out_where_something_fits(four, given, tmp_path):
    """In int8 half the depth fits, and the others do not."""
    found = {one.name: one for one in read_candidates(str(given.model), "x", 1, 0)[0]}
    size = module.limits_of.sized(found["half depth 1e-2"], 1.0).size
    sizes = {name: module.limits_of.sized(one, 2e6) for name, one in found.items()}
    assert all(one.form == "int8" for one in sizes.values())
    limit = (sizes["half depth 1e-2"].size + sizes["full 1e-2"].size) / 2
    assert size < limit
    facts = search(given, tmp_path / "out", Limits(size=limit))
    assert facts["best"] == "half depth 1e-2"
    assert facts["left_out"].keys() == {"full 1e-3", "full 1e-2", "LoRA 1e-2"}
    assert "only if it is pruned to 99 %" in facts["left_out"]["full 1e-2"]
    assert "--int8" in facts["commands"][1]


def test_of_several_limits_the_nearest_candidate_is_one_that_was_measured(four, given, tmp_path, monkeypatch):
    """Of four, half the depth alone fits without pruning, and its latency is too long."""
    monkeypatch.setattr(module.limits_of, "measure_latency", lambda found, *_: [0.03 for _ in found])
    found = {one.name: one for one in read_candidates(str(given.model), "x", 1, 0)[0]}
    sizes = [module.limits_of.sized(found[name], 2e6).size for name in ("half depth 1e-2", "full 1e-2")]
    with pytest.raises(QuothError, match=r"nearest is 'half depth 1e-2' with 30 ms, not --max-latency 20 ms"):
        search(given, tmp_path / "out", Limits(latency=0.02, size=sum(sizes) / 2))


def test_a_budget_that_is_too_small(four, given, tmp_path, monkeypatch):
    monkeypatch.setattr(module.limits_of, "measure_training", lambda one, *_: 0.5)
    with pytest.raises(QuothError, match=r"^--budget: 4 candidates need at least 0\.6 minutes"):  # 12·4 + 12·2 windows
        search(given, tmp_path / "out", budget=35.9)


@pytest.mark.slow
def test_a_budget_is_spent(four, given, tmp_path, monkeypatch):
    monkeypatch.setattr(module.limits_of, "measure_training", lambda one, *_: 0.5)
    facts = search(given, tmp_path / "out", budget=120.0)  # 240 windows: 40 for each of four, and 40 more for two
    assert [one["windows"] for one in facts["rounds"]] == [40.0, 80.0]
    assert facts["cost"]["windows"] == pytest.approx(240, abs=24)


def test_a_loss_that_is_not_finite_drops_a_candidate_only(given, tmp_path, monkeypatch):
    use_table(monkeypatch, tmp_path, TABLE + DIVERGES)
    facts = search(given, tmp_path / "out")
    failed = next(row for row in facts["rows"] if row["name"] == "full 1e30")
    assert "the loss is" in failed["error"]
    assert failed["rounds"] == 1
    assert failed["interval"] is None
    assert failed["against_best"] is None
    assert facts["best"] in NAMES
    json.dumps(facts, allow_nan=False)


def test_if_every_loss_is_not_finite_no_method_is_named(given, tmp_path, monkeypatch):
    head = TABLE[: TABLE.index("[runs.")]
    use_table(monkeypatch, tmp_path, head + DIVERGES)
    with pytest.raises(QuothError, match="no candidate could be trained: the loss is"):
        search(given, tmp_path / "out")
    assert not (tmp_path / "out/advise.json").exists()


@pytest.mark.slow
def test_a_full_disk_is_no_fault_of_a_candidate(whole, four, given, tmp_path, monkeypatch):
    def full(folder, *_):
        raise QuothError(f"{folder}: could not be written (No space left on device)")

    with monkeypatch.context() as patch:
        patch.setattr(advise_training, "write_checkpoint", full)
        with pytest.raises(QuothError, match="No space left"):
            search(given, tmp_path / "out")
    search(given, tmp_path / "out")
    assert scores(tmp_path / "out") == scores(whole[0])


def test_a_plan_of_another_version_is_refused(whole, given, tmp_path, monkeypatch):
    out, _, _ = whole
    use_table(monkeypatch, tmp_path, TABLE.replace('"LoRA 1e-2"', '"LoRA 2e-2"'))
    with pytest.raises(QuothError, match="another version of Quoth"):
        search(given, out)
