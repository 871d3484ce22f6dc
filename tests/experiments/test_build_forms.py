"""Builds with fewer stages or more teachers, and mistakes that are told before the first stage begins."""

import json
import tomllib

import pytest
import torch
import transformers

from experiments.building import RECIPE, make_place, words
from quoth import QuothError, Reader
from quoth.experiments import build_data
from quoth.experiments import build_reader as stages
from quoth.experiments.build_reader import build_reader
from quoth.experiments.build_recipe import make_build_recipe, read_build_recipe
from quoth.model.loading import load
from train.material import assert_same_weights, make_model, weights


@pytest.fixture(scope="module", autouse=True)
def one_thread():
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="module")
def place(minilm, tmp_path_factory):
    return make_place(tmp_path_factory.mktemp("forms"), minilm)


def build(place, run, *more):
    return build_reader(read_build_recipe(RECIPE, words(place, *more)), run, device="cpu")


def stage_recipe(run, stage):
    return tomllib.loads((run / stage / "recipe.toml").read_text())


@pytest.mark.slow
def test_two_teachers(place, tmp_path):
    """They differ by their seeds; student and cut learn from both."""
    run = tmp_path / "run"
    facts = build(place, run, "teachers=2", "teacher.seed=3", "calibrate={}")
    assert set(facts["stages"]) == {"teacher-0", "teacher-1", "student", "cut"}
    assert [stage_recipe(run, f"teacher-{i}")["seed"] for i in range(2)] == [3, 4]
    both = [str(run / f"teacher-{i}" / "model") for i in range(2)]
    assert stage_recipe(run, "student")["teachers"] == stage_recipe(run, "cut")["teacher"] == both
    assert len(list((run / "teacher-logits").iterdir())) == 2
    one, other = (weights(folder) for folder in both)
    assert any(not torch.equal(value, other[name]) for name, value in one.items())
    assert "2 teachers tuned" in (run / "model/MODEL_CARD.md").read_text()


@pytest.mark.slow
def test_without_a_student_the_teacher_is_cut(place, tmp_path):
    """And distilled from what it was, its states too."""
    run = tmp_path / "run"
    facts = build(place, run, "student={}", f"teacher.model={place / 'small'}", "calibrate={}")
    assert set(facts["stages"]) == {"teacher", "cut"}
    cut = stage_recipe(run, "cut")
    assert (cut["model"], cut["teacher"]) == (str(run / "teacher/model"), [])
    assert not (run / "teacher-logits").exists()
    assert not (run / "student").exists()
    assert json.loads((run / "model/quoth.json").read_text())["provenance"] == {"source": "small"}


@pytest.mark.slow
def test_without_a_student_the_first_of_two_teachers_is_cut(place, tmp_path):
    run = tmp_path / "run"
    build(place, run, "student={}", "teachers=2", f"teacher.model={place / 'small'}", "calibrate={}")
    cut = stage_recipe(run, "cut")
    assert cut["model"] == str(run / "teacher-0/model")
    assert len(cut["teacher"]) == len(list((run / "teacher-logits").iterdir())) == 2


@pytest.mark.slow
def test_without_a_cut_the_student_is_exported(place, tmp_path):
    run = tmp_path / "run"
    facts = build(place, run, "cut={}", "calibrate={}")
    assert set(facts["stages"]) == {"teacher", "student"}
    whole = load(run / "student/model").encoder.shape
    assert json.loads((run / "model/quoth.json").read_text())["shape"] == whole.to_json()
    assert Reader.load(run / "model").abstention.to_json() == facts["abstention"]
    assert "cut" not in facts["seconds"]


@pytest.mark.slow
def test_the_teacher_alone(place, tmp_path):
    facts = build(place, tmp_path / "run", "cut={}", "student={}", "calibrate={}")
    assert set(facts["stages"]) == {"teacher"}
    described = json.loads((tmp_path / "run/model/quoth.json").read_text())
    assert (described["family"], described["provenance"]) == ("mpnet", {"source": "large"})


@pytest.mark.slow
def test_a_cut_with_data_of_its_own(place, tmp_path):
    """It has logits of its own in the same folder, and pairs without a label."""
    run = tmp_path / "run"
    facts = build(place, run, "cut.data.unlabelled.moved=0.5", "calibrate={}")
    assert len(list((run / "teacher-logits").iterdir())) == 2
    assert facts["unlabelled"]["moved"] > 0
    assert "pairs of question and passage without a label" in (run / "model/MODEL_CARD.md").read_text().lower()


def test_shared_pairs_are_not_the_teachers(place):
    recipe = read_build_recipe(RECIPE, words(place, "data.unlabelled.moved=0.5"))
    wanted = {name: data.unlabelled.moved for name, data in recipe.data.items()}
    assert wanted == {"teacher": 0.0, "student": 0.5, "cut": 0.5}


@pytest.mark.slow
def test_one_prepared_task_gives_what_two_give(place, tmp_path, monkeypatch):
    """Examples that student and cut share are the same as if each had read the data by itself."""
    build(place, tmp_path / "shared", "calibrate={}")
    monkeypatch.setattr(stages, "shares_examples", lambda *_: False)
    monkeypatch.setattr(stages, "check_stages", lambda *_: None)
    build(place, tmp_path / "apart", "calibrate={}")
    for folder in ("student/model", "cut/keep-0.5/model"):
        assert_same_weights(tmp_path / "shared" / folder, tmp_path / "apart" / folder)


def test_a_stage_may_have_data_of_its_own():
    shared = {"data": {"train": "a", "evaluate": "b", "negatives": {"moved": 0.1, "entity": 0.2}}}
    made = make_build_recipe(
        {
            **shared,
            "teacher": {"model": "m", "data": {"negatives": {"moved": 0.3}}},
            "cut": {"target": {"keep": 0.5}, "data": {"train": "c"}},
        }
    )
    assert made.student is None
    assert (made.teacher.data.negatives.moved, made.teacher.data.negatives.entity) == (0.3, 0.2)
    assert (made.teacher.data.train, made.cut.data.train) == (("a",), ("c",))
    assert made.cut.data.negatives.moved == 0.1


@pytest.mark.parametrize(
    ("word", "line"),
    [
        ("teachr.model=x", "unknown table teachr; did you mean teacher"),
        ("data=x", "data is 'x', a table is wanted"),
        ("teachers=two", "teachers is 'two'; a whole number is wanted"),
        ("teachers=0", "teachers is 0; it must be from 1 to 16"),
        ("teacher.optimisation.rates=1", "did you mean optimisation.learning_rate?"),
        ("student.teachers=x", "student.teachers is always the tuned teachers"),
        ("student.distillation.states_weight=1", "unknown key distillation.states_weight"),
        ("student.model=nowhere/x/y", "nowhere/x/y"),
        ("cut.target.kind=a", "did you mean target.kinds?"),
        ("cut.model=x", "cut.model is always the stage before"),
        ("cut.teacher=x", "cut.teacher is always the tuned teachers"),
        ("cut.states_of=teacher", "cut.states_of is always"),
        ("cut.start.layers=9", "9 of 3 layers cannot be kept"),
        ("cut.target.keep=0.9", "what is done at the start leaves 0.6"),
        ("cut.target.keep=0.001", "target.keep = 0.001 cannot be reached"),
        ("cut.data.train=nowhere.json", "nowhere.json: no such file"),
        ("card.licence=x", "did you mean card.licences?"),
        ("quantise.int4=true", "did you mean quantise.int8?"),
        ("calibrate.data=nowhere.json", "nowhere.json: no such file"),
        ('calibrate.data=["a/x.json", "b/x.json"]', "calibrate.data is 'x.json'; it must be of files with different"),
        ("calibrate.weights=[1, 2, 3]", "calibrate.weights: has 3 weights for 2 files"),
        ("calibrate.weights=[1, 0]", "calibrate.weights: 0 is no weight"),
        ("data.evaluate=''", "data.evaluate is missing"),
        ("data.evaluate=nowhere.json", "nowhere.json: no such file"),
        ("data.train=nowhere.json", "nowhere.json: no such file"),
        ("data.task=answerable", "a reader is trained for 'span'"),
        ("data.unlabelled={new = 1, passages = 'nowhere.txt'}", "nowhere.txt"),
        ("data.max_length=200", "data.max_length is 200, but teacher.model = "),
    ],
)
def test_mistakes_are_one_line_before_the_first_stage(place, word, line, tmp_path, cli, monkeypatch):
    monkeypatch.setattr(stages, "train", None)
    done = cli("build", RECIPE, *words(place), word, "--out", tmp_path / "run", "--device", "cpu")
    assert done.returncode == 2
    assert line in done.stderr.splitlines()[-1]


def test_several_teachers_that_nobody_learns_from(place):
    with pytest.raises(QuothError, match=r"teachers is 2; it must be 1 without \[student\] and \[cut\]"):
        read_build_recipe(RECIPE, words(place, "teachers=2", "student={}", "cut={}"))


def test_a_cut_that_does_not_learn_from_the_teachers(place):
    """The default loss of pruning is the task's own; data without labels needs the teachers' logits in any case."""
    with pytest.raises(QuothError, match=r"no loss of \[cut\] compares with the teachers; set cut.distillation"):
        read_build_recipe(RECIPE, words(place, "cut.gates={}", "cut.distillation={}"))
    with pytest.raises(QuothError, match=r"distillation.logits_weight is 0.0; it must be above 0 with data.unlabelled"):
        read_build_recipe(RECIPE, words(place, "cut.distillation={}", "data.unlabelled.moved=0.5"))


def test_a_teacher_that_answers_something_else(place, tmp_path, monkeypatch):
    """A head that gives classes is refused by the recipe, one that a folder brings by its own line."""
    monkeypatch.setattr(stages, "train", None)
    with pytest.raises(QuothError, match="gives"):
        build(place, tmp_path / "run", 'teacher.head={kind = "class", labels = 3}')


def test_a_teacher_whose_windows_are_too_short(place, minilm, tmp_path, monkeypatch):
    """It splits words that the student has whole, and ends before the window does."""
    letters = sorted(set("abcdefghijklmnopqrstuvwxyz0123456789.?"))
    vocab = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *letters, *(f"##{letter}" for letter in letters)]
    folder = make_model(tmp_path / "letters", minilm, vocab_size=len(vocab), max_position_embeddings=96)
    for path in folder.glob("*token*"):
        path.unlink()
    (folder / "vocab.txt").write_text("".join(f"{word}\n" for word in vocab))
    assert isinstance(transformers.AutoConfig.from_pretrained(folder), transformers.BertConfig)
    monkeypatch.setattr(stages, "train", None)
    with pytest.raises(QuothError, match=r"teacher.model = .*letters' needs \d+ tokens of its own for a window"):
        build(place, tmp_path / "run", f"teacher.model={folder}")


@pytest.mark.parametrize("key", ["data.evaluate", "calibrate.data"])
def test_data_with_one_kind_of_question(place, tmp_path, key):
    made = json.loads((place / "dev.json").read_text())
    for paragraph in made["data"][0]["paragraphs"]:
        paragraph["qas"] = [qa for qa in paragraph["qas"] if qa["answers"]]
    (tmp_path / "some.json").write_text(json.dumps(made))
    recipe = read_build_recipe(RECIPE, words(place, f"{key}={tmp_path / 'some.json'}"))
    with pytest.raises(QuothError, match="it lacks one kind"):
        build_reader(recipe, tmp_path / "run", device="cpu")


def test_what_was_found_is_not_read_from_a_broken_file(place, tmp_path):
    (tmp_path / "quantise.json").write_text("{}")
    with pytest.raises(QuothError, match=r"quantise\.json: is not what Quoth writes there"):
        stages._kept(tmp_path, "quantise", {})
    (tmp_path / "negatives.json").write_text("{}")
    with pytest.raises(QuothError, match=r"negatives\.json: is not what Quoth writes there"):
        build_data.count_made(tmp_path / "negatives.json")
