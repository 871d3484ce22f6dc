"""`quoth build`: teacher, cut and quantised reader from one recipe, in a folder that can be interrupted."""

import json
import tomllib
from pathlib import Path

import pytest
import torch

from quoth import QuothError, Reader
from quoth.data import read
from quoth.experiments import build_reader as stages
from quoth.experiments.build_reader import build_reader, make_build_recipe, read_build_recipe
from quoth.model.loading import load
from quoth.score.quality import span_quality
from quoth.train.training import Interrupted
from train.material import make_model, make_questions

RECIPE = Path(__file__).parents[2] / "src/quoth/recipes/embedded.toml"
SMALL = (
    "data.max_length=64",
    "data.step=24",
    "data.max_query_length=24",
    "data.negatives={moved = 0.5, entity = 0.0}",
    "teacher.optimisation={epochs = 1, learning_rate = 1e-3, batch_size = 8}",
    "cut.start={layers = 2, epochs = 0.1}",
    "cut.target={keep = 0.5, embeddings = false, kinds = 'af'}",
    "cut.gates={steps = 2, batch_size = 8}",
    "cut.recovery={epochs = 0.3, batch_size = 8}",
)


@pytest.fixture(scope="module", autouse=True)
def one_thread():
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="module")
def place(minilm, tmp_path_factory):
    folder = tmp_path_factory.mktemp("build")
    make_model(folder / "base", minilm)
    make_questions(folder / "train.json", seed=1, passages=4)
    make_questions(folder / "dev.json", seed=2, passages=3)
    return folder


def words(place, *more):
    paths = (
        f"teacher.model={place / 'base'}",
        f"data.train={place / 'train.json'}",
        f"data.evaluate={place / 'dev.json'}",
    )
    return [*paths, *SMALL, *more]


@pytest.fixture(scope="module")
def built(place):
    """The run, stopped between teacher and cut and taken up again; the files of the teacher as they were then."""

    def stop(*_, **__):
        raise KeyboardInterrupt

    made, run = read_build_recipe(RECIPE, words(place)), place / "run"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(stages, "prune", stop)
        with pytest.raises(KeyboardInterrupt):
            build_reader(made, run, device="cpu")
    assert not (run / "build.json").exists()
    assert set(json.loads((run / "seconds.json").read_text())) == {"negatives", "teacher", "cut"}
    before = stamps(run / "teacher") | {run / "negatives.json": (run / "negatives.json").stat().st_mtime_ns}
    facts = build_reader(made, run, device="cpu")
    return run, facts, before


def stamps(folder):
    return {path: path.stat().st_mtime_ns for path in folder.rglob("*") if path.is_file() and path.name != ".lock"}


def test_the_teacher_is_not_trained_twice(built):
    run, _, before = built
    assert len(before) > 1
    assert {path: path.stat().st_mtime_ns for path in before} == before
    assert stamps(run / "teacher").keys() <= before.keys()


def test_each_stage_comes_from_the_one_before(built):
    run, facts, _ = built
    teacher, cut = load(run / "teacher/model").encoder.shape, load(run / "cut/keep-0.5/model").encoder.shape
    assert tomllib.loads((run / "cut/recipe.toml").read_text())["model"] == str(run / "teacher/model")
    assert (cut.hidden, len(cut.layers)) == (teacher.hidden, 2)
    for sizes in ("ffn", "heads"):
        assert sum(getattr(layer, sizes) for layer in cut.layers) <= sum(
            getattr(layer, sizes) for layer in teacher.layers[:2]
        )
    assert cut != teacher
    described = json.loads((run / "model/quoth.json").read_text())
    assert described["shape"] == cut.to_json()
    assert described["provenance"] == {"source": "base"}
    assert facts["exported"]["int8_bytes"] < facts["exported"]["bytes"]
    assert facts["exported"]["int8_f1"] is not None
    assert set(facts["seconds"]) == {"negatives", "teacher", "cut", "quantise"}


def test_unanswerable_questions_are_made_for_the_teacher(built, place):
    run, facts, _ = built
    made = read(run / "negatives.json").questions
    asked = {question.question for question in read(place / "train.json").questions}
    assert facts["negatives"] == {"moved": len(made)}
    assert made
    assert all(question.impossible and question.question in asked for question in made)
    recipes = {stage: tomllib.loads((run / stage / "recipe.toml").read_text())["data"] for stage in ("teacher", "cut")}
    assert recipes["teacher"]["train"] == [str(place / "train.json"), str(run / "negatives.json")]
    assert recipes["cut"]["train"] == [str(place / "train.json")]
    assert not any(value for data in recipes.values() for value in data["negatives"].values())
    learnt = json.loads((run / "teacher/metrics.json").read_text())
    assert "negatives" not in learnt
    assert f"{len(made)} moved" in (run / "model/MODEL_CARD.md").read_text()


def test_a_cut_that_wants_the_same_ones_has_the_same_file(place, tmp_path):
    recipe = read_build_recipe(RECIPE, words(place, "cut.data.negatives.moved=0.5"))
    teacher, cut = stages.training_data(tmp_path, recipe)
    assert teacher == cut
    assert teacher.train == (str(place / "train.json"), str(tmp_path / "negatives.json"))


def test_questions_of_another_recipe_are_made_anew(place, tmp_path):
    """A recipe that was refused after its questions were made leaves them behind."""
    for part in (0.5, 0.25, 0.25):
        before = (tmp_path / "negatives.json").stat().st_mtime_ns if part == 0.25 else 0
        recipe = read_build_recipe(RECIPE, words(place, f"data.negatives.moved={part}"))
        stages.training_data(tmp_path, recipe)
        asked = len(read(place / "train.json").trainable)
        assert len(read(tmp_path / "negatives.json").questions) == round(part * asked)
    assert (tmp_path / "negatives.json").stat().st_mtime_ns == before


@pytest.mark.parametrize("word", ["cut.seed=1", "cut.data.negatives.moved=0.25"])
def test_a_cut_that_wants_others_makes_its_own(place, tmp_path, word):
    recipe = read_build_recipe(RECIPE, words(place, "cut.data.negatives.moved=0.5", word))
    teacher, cut = stages.training_data(tmp_path, recipe)
    assert teacher.train[-1] == str(tmp_path / "negatives.json")
    assert cut == recipe.cut.data
    assert cut.negatives.moved


def test_nothing_is_made_where_the_teacher_wants_nothing(place, tmp_path):
    recipe = read_build_recipe(RECIPE, words(place, "data.negatives.moved=0.0", "cut.data.negatives.moved=0.5"))
    assert stages.training_data(tmp_path, recipe) == (recipe.teacher.data, recipe.cut.data)
    assert not list(tmp_path.iterdir())


def test_the_threshold_is_fitted_and_kept(built, place):
    run, facts, _ = built
    reader, dataset = Reader.load(run / "model"), read(place / "dev.json")
    assert reader.abstention.to_json() == facts["abstention"]
    assert reader.abstention.fitted["data"] == "dev.json"
    quality = span_quality(dataset, reader.decode(dataset.questions), reader.abstention.threshold)[1]
    assert quality == facts["quality"]
    assert quality["f1"] == pytest.approx(quality["best_f1"])


def test_the_card_says_what_it_is(built, place):
    run, facts, _ = built
    card = (run / "model/MODEL_CARD.md").read_text()
    assert f"{facts['quality']['f1']:.2f}" in card
    assert f"{facts['parameters']:,} parameters" in card
    for word in ("CC BY-SA 4.0", "dev.json", "| teacher |", "| quantise |", f"torch {torch.__version__}"):
        assert word in card, word
    assert str(place) not in card
    recipe = tomllib.loads(card.split("```toml\n")[1].split("```")[0])
    assert recipe["teacher"]["model"] == "base"
    assert recipe["cut"]["target"]["keep"] == 0.5


def test_a_finished_run_is_told_again(built, place, cli, monkeypatch):
    run, facts, _ = built

    def never(*_, **__):
        raise AssertionError("it is finished")

    for stage in ("train", "prune", "export"):
        monkeypatch.setattr(stages, stage, never)
    done = cli("build", RECIPE, *words(place), "--out", run, "--json")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == json.loads(json.dumps(facts))
    shown = cli("build", RECIPE, *words(place), "--out", run).stdout
    for word in ("teacher", "cut", "quantise", str(run / "model")):
        assert word in shown


@pytest.mark.parametrize(
    ("word", "line"),
    [
        ("teachr.model=x", "unknown table teachr; did you mean teacher?"),
        ("data=x", "data is 'x', a table is wanted"),
        ("teacher.optimisation.rates=1", "did you mean optimisation.learning_rate?"),
        ("cut.target.kind=a", "did you mean target.kinds?"),
        ("cut.model=x", "cut.model is always the teacher"),
        ("card.licence=x", "did you mean card.licences?"),
        ("data.evaluate=''", "data.evaluate is missing"),
        ("data.evaluate=nowhere.json", "nowhere.json: no such file"),
        ("data.train=nowhere.json", "nowhere.json: no such file"),
        ("data.task=answerable", "a reader is trained for 'span'"),
    ],
)
def test_mistakes_are_one_line(place, word, line, tmp_path, cli):
    done = cli("build", RECIPE, *words(place), word, "--out", tmp_path / "run", "--device", "cpu")
    assert done.returncode == 2
    assert line in done.stderr.splitlines()[-1]
    assert not (tmp_path / "run/teacher/model").exists()


def test_a_mistake_does_not_claim_the_folder(place, tmp_path, monkeypatch):
    """What was refused before anything was learnt can be put right in the same folder."""
    wrong = read_build_recipe(RECIPE, words(place, "data.train=nowhere.json"))
    with pytest.raises(QuothError, match="no such file"):
        build_reader(wrong, tmp_path / "run", device="cpu")
    begun = []
    monkeypatch.setattr(stages, "train", lambda *_, **__: begun.append(1) or {})
    with pytest.raises(QuothError, match="teacher/model"):  # there is none to cut
        build_reader(read_build_recipe(RECIPE, words(place)), tmp_path / "run", device="cpu")
    assert begun


def test_an_interruption_has_its_exit_code(built, place, tmp_path, cli, monkeypatch):
    def stop(*_, **__):
        raise Interrupted(1, 2, 15)

    monkeypatch.setattr(stages, "train", stop)
    done = cli("build", RECIPE, *words(place), "--out", tmp_path / "run", "--device", "cpu")
    assert done.returncode == 143
    assert done.stderr.splitlines()[-1] == "quoth: stopped at step 1 of 2; the same command goes on from there"


def test_data_that_fit_no_threshold(place, tmp_path):
    made = json.loads((place / "dev.json").read_text())
    for paragraph in made["data"][0]["paragraphs"]:
        paragraph["qas"] = [qa for qa in paragraph["qas"] if qa["answers"]]
    (tmp_path / "one.json").write_text(json.dumps(made))
    recipe = read_build_recipe(RECIPE, words(place, f"data.evaluate={tmp_path / 'one.json'}"))
    with pytest.raises(QuothError, match="it lacks one kind"):
        build_reader(recipe, tmp_path / "run", device="cpu")


def test_a_folder_of_something_else_is_refused(built, place, tmp_path):
    run, _, _ = built
    other = read_build_recipe(RECIPE, words(place, "cut.gates.steps=3"))
    with pytest.raises(QuothError, match=r"another recipe \(there, here: cut.gates.steps: 2, 3\)"):
        build_reader(other, run, device="cpu")
    (tmp_path / "notes.txt").write_text("mine")
    with pytest.raises(QuothError, match="is not a run folder"):
        build_reader(other, tmp_path, device="cpu")


def test_a_stage_may_have_data_of_its_own():
    shared = {"data": {"train": "a", "evaluate": "b", "negatives": {"moved": 0.1, "entity": 0.2}}}
    made = make_build_recipe(
        {
            **shared,
            "teacher": {"model": "m", "data": {"negatives": {"moved": 0.3}}},
            "cut": {"target": {"keep": 0.5}, "data": {"train": "c"}},
        }
    )
    assert (made.teacher.data.negatives.moved, made.teacher.data.negatives.entity) == (0.3, 0.2)
    assert (made.teacher.data.train, made.cut.data.train) == (("a",), ("c",))
    assert made.cut.data.negatives.moved == 0.1
