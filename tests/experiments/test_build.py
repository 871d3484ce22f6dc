"""`quoth build`: teacher, student, cut, export and calibration from one recipe, in a folder that can be interrupted."""

import json
import tomllib
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors import safe_open

from experiments.building import RECIPE, files, make_place, stamps, words
from quoth import QuothError, Reader
from quoth.data import read
from quoth.experiments import build_data
from quoth.experiments import build_reader as stages
from quoth.experiments.build_reader import build_reader
from quoth.experiments.build_recipe import read_build_recipe
from quoth.model.loading import load
from quoth.score.calibrate_reader import fit_reader
from quoth.score.quality import span_quality
from quoth.tasks.examples import read_unlabelled
from quoth.tasks.settings import Unlabelled
from quoth.train.training import Interrupted
from train.material import assert_same_weights

WORK = ("train", "train", "prune", "export", "fit_reader")  # what the stages do, in their order
NAMES = ("teacher", "student", "cut", "quantise", "calibrate")


@pytest.fixture(scope="module", autouse=True)
def one_thread():
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="module")
def place(minilm, tmp_path_factory):
    return make_place(tmp_path_factory.mktemp("build"), minilm)


@pytest.fixture(scope="module")
def built(place):
    """The run and its facts."""
    run = place / "run"
    return run, build_reader(read_build_recipe(RECIPE, words(place)), run, device="cpu")


def stop_before(patch, number):
    """Let the stage of this number be interrupted as it begins; count what is done before."""
    done = []

    def counted(real):
        def call(*arguments, **options):
            if len(done) == number:
                raise KeyboardInterrupt
            done.append(1)
            return real(*arguments, **options)

        return call

    for name in set(WORK):
        patch.setattr(stages, name, counted(getattr(stages, name)))


@pytest.mark.slow
def test_an_interruption_before_any_stage_changes_nothing(built, place, tmp_path):
    """Runs that were finished before it are called again, and write nothing."""
    run, whole = tmp_path / "run", built[0]
    recipe = read_build_recipe(RECIPE, words(place))
    before = {}
    for number, name in enumerate(NAMES):
        with pytest.MonkeyPatch.context() as patch:
            stop_before(patch, number)
            with pytest.raises(KeyboardInterrupt):
                build_reader(recipe, run, device="cpu")
        assert not (run / "build.json").exists()
        assert name in json.loads((run / "seconds.json").read_text())
        kept = [folder for folder in ("teacher", "student", "cut") if (run / folder / "metrics.json").exists()]
        assert kept == list(NAMES[: min(number, 3)])
        assert {path: path.stat().st_mtime_ns for path in before} == before
        before = {path: stamp for folder in kept for path, stamp in stamps(run / folder).items()}
        before = {path: stamp for path, stamp in before.items() if path.name != "quoth.json"}  # which gets a threshold
    build_reader(recipe, run, device="cpu")
    assert files(run / "model") == files(whole / "model")
    for folder in ("teacher/model", "student/model", "cut/keep-0.5/model"):
        assert_same_weights(run / folder, whole / folder)


def test_each_stage_comes_from_the_one_before(built, place):
    run, facts = built
    recipes = {name: tomllib.loads((run / name / "recipe.toml").read_text()) for name in NAMES[:3]}
    assert recipes["student"]["teachers"] == [str(run / "teacher/model")]
    assert recipes["cut"]["model"] == str(run / "student/model")
    assert recipes["cut"]["teacher"] == [str(run / "teacher/model")]
    assert recipes["cut"]["states_of"] == "unpruned"
    teacher, student = (load(run / name / "model") for name in ("teacher", "student"))
    cut = load(run / "cut/keep-0.5/model").encoder.shape
    assert (teacher.family.name, student.family.name) == ("mpnet", "bert")
    assert (cut.hidden, len(cut.layers)) == (student.encoder.shape.hidden, 2)
    described = json.loads((run / "model/quoth.json").read_text())
    assert described["shape"] == cut.to_json()
    assert described["provenance"] == {"source": "small"}
    assert facts["exported"]["int8_bytes"] < facts["exported"]["bytes"]
    assert set(facts["stages"]) == {"teacher", "student", "cut"}
    assert set(facts["seconds"]) == {"data", *NAMES}


def test_the_teacher_is_asked_once(built):
    """Student and cut are trained on the same windows, and share what the teacher says of them."""
    run, _ = built
    (kept,) = (run / "teacher-logits").iterdir()
    assert not (run / "student/teacher-logits").exists()
    assert not (run / "cut/teacher-logits").exists()
    with safe_open(kept, framework="np") as file:
        assert file.get_tensor("logits").shape[0] == 2


def test_unanswerable_questions_are_made_once(built, place):
    run, facts = built
    made = read(run / "negatives.json").questions
    asked = {question.question for question in read(place / "train.json").questions}
    assert facts["negatives"] == {"moved": len(made)}
    assert made
    assert all(question.impossible and question.question in asked for question in made)
    for stage in NAMES[:3]:
        data = tomllib.loads((run / stage / "recipe.toml").read_text())["data"]
        assert data["train"] == [str(place / "train.json"), str(run / "negatives.json")]
        assert not any(data["negatives"].values())
    assert f"{len(made)} moved" in (run / "model/MODEL_CARD.md").read_text()


def test_questions_of_another_recipe_are_made_anew(place, tmp_path):
    """A recipe that was refused after its questions were made leaves them behind."""
    for part in (0.5, 0.25, 0.25):
        before = (tmp_path / "negatives.json").stat().st_mtime_ns if part == 0.25 else 0
        recipe = read_build_recipe(RECIPE, words(place, f"data.negatives.moved={part}"))
        build_data.training_data(tmp_path, recipe)
        asked = len(read(place / "train.json").trainable)
        assert len(read(tmp_path / "negatives.json").questions) == round(part * asked)
    assert (tmp_path / "negatives.json").stat().st_mtime_ns == before


@pytest.mark.parametrize("word", ["cut.data.negatives.moved=0.25", "cut.data.unlabelled.moved=0.5"])
def test_a_stage_that_wants_others_makes_its_own(place, tmp_path, word):
    recipe = read_build_recipe(RECIPE, words(place, word))
    data = build_data.training_data(tmp_path, recipe)
    assert data["teacher"] == data["student"]
    assert data["teacher"].train[-1] == str(tmp_path / "negatives.json")
    assert data["cut"] == recipe.cut.data
    assert data["cut"].negatives.moved
    assert not build_data.shares_examples(recipe, data)


def test_pairs_are_made_once_for_student_and_cut(place, tmp_path):
    recipe = read_build_recipe(RECIPE, words(place, "data.negatives.moved=0.5", "data.unlabelled.moved=0.5"))
    data = build_data.training_data(tmp_path, recipe)
    files = [str(tmp_path / name) for name in ("negatives.json", "unlabelled.json")]
    asked = read_unlabelled(recipe.student.data.unlabelled, read(place / "train.json").trainable, recipe.student.seed)
    made = read(tmp_path / "unlabelled.json").questions
    assert {(q.id, q.question, q.context) for q in made} == {(q.id, q.question, q.context) for q in asked[0]}
    assert data["teacher"].train == (str(place / "train.json"), files[0])
    for name in ("student", "cut"):
        assert data[name].train == data["teacher"].train
        assert data[name].unlabelled == Unlabelled(questions=(files[1],))
    assert build_data.shares_examples(recipe, data)
    before = (tmp_path / "unlabelled.json").stat().st_mtime_ns
    build_data.training_data(tmp_path, recipe)
    assert (tmp_path / "unlabelled.json").stat().st_mtime_ns == before


def test_nothing_is_made_where_the_teacher_wants_nothing(place, tmp_path):
    recipe = read_build_recipe(RECIPE, words(place, "data.negatives.moved=0.0", "cut.data.negatives.moved=0.5"))
    assert build_data.training_data(tmp_path, recipe) == recipe.data
    assert not list(tmp_path.iterdir())


def test_the_threshold_is_fitted_and_kept(built, place):
    run, facts = built
    reader, dataset = Reader.load(run / "model"), read(place / "dev.json")
    assert reader.abstention.to_json() == facts["abstention"]
    assert reader.abstention.fitted["data"] == "dev.json"
    decoded = reader.decode(dataset.questions)
    quality = span_quality(dataset, decoded, reader.abstention.threshold)[1]
    assert quality == facts["quality"]
    every = [span_quality(dataset, decoded, limit)[1]["f1"] for limit in (-np.inf, *decoded.null_minus_best)]
    assert quality["f1"] == pytest.approx(max(every))


def test_the_calibration_is_that_of_quoth_calibrate(built, place):
    run, facts = built
    reader = Reader.load(run / "model")
    again, told = fit_reader(
        reader, [read(place / name) for name in ("one.json", "two.json")], ["one.json", "two.json"]
    )
    assert json.loads(json.dumps(again.to_json())) == json.loads(json.dumps(reader.confidence.to_json()))
    assert json.loads(json.dumps(told)) == json.loads(json.dumps(facts["calibration"]))


def test_the_card_says_what_it_is(built, place):
    run, facts = built
    card = (run / "model/MODEL_CARD.md").read_text()
    assert f"{facts['quality']['f1']:.2f}" in card
    assert f"{facts['parameters']:,} parameters" in card
    stated = ("CC BY-SA 4.0", "dev.json", f"torch {torch.__version__}", *(f"| {name} |" for name in ("data", *NAMES)))
    for word in stated:
        assert word in card, word
    for name, found in facts["calibration"]["cross_fitted"].items():
        for key, what in (("", "all"), ("first_half", "first half"), ("second_half", "the rest")):
            one = found[key] if key else found
            row = next(line for line in card.splitlines() if line.startswith(f"| {name} | {what} |"))
            shown = [cell.strip() for cell in row.split("|")[3:]]
            assert shown[:3] == [f"{one['questions']:,}", f"{one['f1']:.2f}", f"{one['HasAns_f1']:.2f}"]
            assert f"{one['raw']['area_under_risk_coverage']:.3f} → {one['area_under_risk_coverage']:.3f}" in row
    assert str(place) not in card
    recipe = tomllib.loads(card.split("```toml\n")[1].split("```")[0])
    assert recipe["teacher"]["model"] == "large"
    assert recipe["cut"]["target"]["keep"] == 0.5


def test_a_finished_run_is_told_again(built, place, cli, monkeypatch):
    run, facts = built

    def never(*_, **__):
        raise AssertionError("it is finished")

    for stage in WORK:
        monkeypatch.setattr(stages, stage, never)
    done = cli("build", RECIPE, *words(place), "--out", run, "--json")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == json.loads(json.dumps(facts))
    shown = cli("build", RECIPE, *words(place), "--out", run).stdout
    for word in ("teacher", "student", "cut", "quantise", "one.json", str(run / "model")):
        assert word in shown


def test_a_folder_of_something_else_is_refused(built, place, tmp_path):
    run, _ = built
    for word, told in (("cut.gates.steps=3", r"cut.gates.steps: 2, 3"), ("teachers=2", "teachers: 1, 2")):
        other = read_build_recipe(RECIPE, words(place, word))
        with pytest.raises(QuothError, match=rf"another recipe \(there, here: {told}\)"):
            build_reader(other, run, device="cpu")
    (tmp_path / "notes.txt").write_text("mine")
    with pytest.raises(QuothError, match="is not a run folder"):
        build_reader(other, tmp_path, device="cpu")


def test_a_mistake_does_not_claim_the_folder(place, tmp_path, monkeypatch):
    """What was refused before anything was learnt can be put right in the same folder."""
    wrong = read_build_recipe(RECIPE, words(place, "data.train=nowhere.json"))
    with pytest.raises(QuothError, match="no such file"):
        build_reader(wrong, tmp_path / "run", device="cpu")

    def stop(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr(stages, "train", stop)
    with pytest.raises(KeyboardInterrupt):
        build_reader(read_build_recipe(RECIPE, words(place)), tmp_path / "run", device="cpu")


def test_an_interruption_has_its_exit_code(place, tmp_path, cli, monkeypatch):
    def stop(*_, **__):
        raise Interrupted(1, 2, 15)

    monkeypatch.setattr(stages, "train", stop)
    done = cli("build", RECIPE, *words(place), "--out", tmp_path / "run", "--device", "cpu")
    assert done.returncode == 143
    assert done.stderr.splitlines()[-1] == "quoth: stopped at step 1 of 2; the same command goes on from there"


class TestLastStages:
    """What trains nothing may change in a folder, and is then done again alone."""

    @pytest.fixture
    def copied(self, built, place, tmp_path, monkeypatch):
        """A finished run, copied by its links, in which nothing may be trained."""
        run = place / f"copy-{tmp_path.name}"  # beside it, so that the paths in the recipes of its stages are right
        source = built[0]
        for path in source.rglob("*"):
            if path.is_file():
                target = run / path.relative_to(source)
                target.parent.mkdir(parents=True, exist_ok=True)
                text = path.read_bytes()
                if path.name == "recipe.toml":
                    text = text.replace(str(source).encode() + b"/", str(run).encode() + b"/")
                target.write_bytes(text)
        return run

    def test_another_calibration(self, copied, built, place, monkeypatch):
        def never(*_, **__):
            raise AssertionError("the model is the same")

        monkeypatch.setattr(stages, "export", never)
        other = f'calibrate.data=["{place / "one.json"}"]'
        facts = build_reader(read_build_recipe(RECIPE, words(place, other)), copied, device="cpu")
        assert list(facts["calibration"]["cross_fitted"]) == ["one.json"]
        assert facts["quality"] == built[1]["quality"]
        assert facts["calibration"]["cross_fitted"]["one.json"]["left_out_f1"] is None
        none = build_reader(read_build_recipe(RECIPE, words(place, "calibrate={}")), copied, device="cpu")
        assert "calibration" not in none
        assert Reader.load(copied / "model").confidence is None
        assert "### Calibrated" not in (copied / "model/MODEL_CARD.md").read_text()

    def test_another_card(self, copied, built, place, monkeypatch):
        for name in ("export", "fit_reader"):
            monkeypatch.setattr(stages, name, None)
        facts = build_reader(read_build_recipe(RECIPE, words(place, "card.title=Mine")), copied, device="cpu")
        assert (copied / "model/MODEL_CARD.md").read_text().startswith("# Mine\n")
        assert facts["calibration"] == json.loads(json.dumps(built[1]["calibration"]))

    def test_without_int8(self, copied, place):
        recipe = read_build_recipe(RECIPE, words(place, "quantise.int8=false"))
        facts = build_reader(recipe, copied, device="cpu")
        assert facts["exported"]["int8_bytes"] is None
        assert facts["quality"]["f1"] == pytest.approx(facts["exported"]["f1"])
        assert Reader.load(copied / "model").confidence is not None
        card = (copied / "model/MODEL_CARD.md").read_text()
        assert "exported in float32, calibrated" in card
        assert "in int8" not in card.split("## How")[0]


def test_halves_are_of_articles_in_the_order_of_the_file(built):
    """Five articles of 14 questions: three and two."""
    found = built[1]["calibration"]["cross_fitted"]["one.json"]
    assert (found["questions"], found["first_half"]["questions"], found["second_half"]["questions"]) == (70, 42, 28)
    both = np.average([found[half]["f1"] for half in ("first_half", "second_half")], weights=[42, 28])
    assert found["f1"] == pytest.approx(both)
    assert sum(count for count, _, _ in found["reliability"]) == 70


def test_the_folder_of_the_recipe_is_the_shipped_one():
    assert Path(stages.__file__).parents[1] == RECIPE.parents[1]
