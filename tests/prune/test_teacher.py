"""Distilling from another model than the unpruned one: what is learnt, and what is refused before any training."""

import json
from types import SimpleNamespace

import pytest
import torch

from prune.shapes import make_batch
from quoth.encoder.device import Device
from quoth.errors import QuothError
from quoth.heads.linear import ClassHead, SpanHead
from quoth.model.loading import load
from quoth.model.model import Model
from quoth.model.saving import save
from quoth.prune.recipe import make_prune_recipe
from quoth.prune.teacher import find_teacher
from quoth.train.distillation import Distillation, DistillationLoss, View
from quoth.train.loop import Loop
from quoth.train.recipe import make_recipe
from quoth.windows.alignment import compared
from quoth.windows.tokenizer import Tokenizer
from train.material import assert_same_weights, make_model, make_questions, prepare, prune, table, train

STATES = {"distillation": {"states_weight": 1.0}}
LOGITS = {"task_weight": 0.0, "logits_weight": 1.0}
DIFFERENT = {"num_hidden_layers": 4, "seed": 5, "initializer_range": 0.3}


@pytest.fixture(scope="module")
def material(minilm, tmp_path_factory):
    """A student of 2 layers and a teacher of 4, each tuned a little, and questions."""
    folder = tmp_path_factory.mktemp("teacher")
    questions = make_questions(folder / "train.json", seed=1, passages=3)
    for name, sizes in (("student", {"initializer_range": 0.2}), ("teacher", DIFFERENT)):
        base = make_model(folder / f"{name}-base", minilm, **sizes)
        train(make_recipe(table(base, questions)), folder / name, device="cpu")
    return SimpleNamespace(
        model=folder / "student/model", teacher=folder / "teacher/model", train=questions, base=folder / "teacher-base"
    )


def recipe(material, **sections):
    """Nothing is cut: all layers stay. A section that is None is left out."""
    made = {
        "model": str(material.model),
        "teacher": str(material.teacher),
        "data": table("", material.train)["data"],
        "start": {"layers": 2},
        "gates": {"steps": 2, "batch_size": 8, **LOGITS},
        "distillation": LOGITS,
        "recovery": {"epochs": 4.0, "batch_size": 8, "learning_rate": 1e-3, "dropout": 0.0},
    }
    for name, value in sections.items():
        made[name] = {**made.get(name, {}), **value} if isinstance(value, dict) else value
    return make_prune_recipe({name: value for name, value in made.items() if value is not None})


def kl(student, teacher, made):
    """KL(teacher ‖ student) a window over all of the training data, question and separators left out."""
    task = prepare(made, load(student))
    feed = task.feed(task.examples, torch.device("cpu"), 0)
    packed, _ = feed.batch(torch.arange(len(feed.lengths)).numpy())
    with torch.no_grad():
        found, wanted = (load(folder)(packed) for folder in (student, teacher))
        nowhere = torch.from_numpy(~compared(task.examples.windows))
        wanted = torch.stack(wanted).masked_fill(nowhere, float("-inf"))
        return float(task.distillation_loss(found, wanted, packed, 1.0)) / len(packed.lengths)


def states_apart(student, teacher, made):
    """The loss of states, by hand: states 0, 1, 2 of the student with 0, 2, 4 of the teacher."""
    task = prepare(made, load(student))
    feed = task.feed(task.examples, torch.device("cpu"), 0)
    packed, _ = feed.batch(torch.arange(len(feed.lengths)).numpy())
    with torch.no_grad():
        ours = load(student).encoder(packed, (0, 1, 2))
        theirs = load(teacher).encoder(packed, (0, 2, 4))
    return sum(float((a - b).square().mean()) for a, b in zip(ours, theirs)) / 3


@pytest.fixture(scope="module")
def distilled(material, tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs") / "run"
    made = recipe(material)
    return SimpleNamespace(folder=folder, recipe=made, facts=prune(made, folder, device="cpu"))


class TestDistillation:
    def test_the_student_comes_nearer_to_its_teacher(self, material, distilled):
        student = distilled.folder / "start/model"
        before = kl(material.model, material.teacher, distilled.recipe)
        assert kl(student, material.teacher, distilled.recipe) < 0.5 * before
        assert load(student).encoder.shape == load(material.model).encoder.shape

    def test_not_to_itself(self, material, distilled, tmp_path):
        """Without a teacher it learns from what it was, and there is nothing to learn."""
        made = recipe(material, teacher="")
        facts = prune(made, tmp_path / "run", device="cpu")
        assert "teacher" not in facts
        alone, taught = tmp_path / "run/start/model", distilled.folder / "start/model"
        assert kl(alone, material.model, made) < 0.01 * kl(taught, material.model, made)
        assert kl(taught, material.teacher, made) < 0.5 * kl(alone, material.teacher, made)

    def test_its_logits_are_computed_once(self, material, distilled, tmp_path):
        """A second run that shares the folder runs no teacher, and comes to the same model."""
        kept = list((distilled.folder / "teacher-logits").iterdir())
        assert [path.name.split("-")[0] for path in kept] == ["teacher"]
        told = []
        made = recipe(material, distillation={"cache_folder": str(kept[0].parent)})
        prune(made, tmp_path / "run", device="cpu", tell=told.append)
        assert not any("computing the logits" in str(line) for line in told)
        assert_same_weights(tmp_path / "run/start/model", distilled.folder / "start/model")

    def test_two_teachers(self, material, tmp_path):
        both = [str(material.teacher), str(material.model)]
        facts = prune(recipe(material, teacher=both), tmp_path / "run", device="cpu")
        assert facts["teacher"] == both
        assert len(list((tmp_path / "run/teacher-logits").iterdir())) == 2
        student = tmp_path / "run/start/model"
        made = recipe(material)
        assert kl(student, material.teacher, made) < kl(material.model, material.teacher, made)

    def test_what_is_told(self, material, distilled):
        assert json.loads((distilled.folder / "metrics.json").read_text()) == distilled.facts
        assert distilled.facts["teacher"] == str(material.teacher)
        shape = distilled.facts["unpruned"]["shape"]
        assert shape == load(material.model).encoder.shape.to_json()

    def test_a_run_goes_on_to_the_same_model(self, distilled, tmp_path, monkeypatch):
        advance, steps = Loop.advance, []

        def killed(loop):
            steps.append(loop.step)
            if len(steps) == 5:
                raise KeyboardInterrupt
            advance(loop)

        with monkeypatch.context() as patched:
            patched.setattr(Loop, "advance", killed)
            with pytest.raises(KeyboardInterrupt):
                prune(distilled.recipe, tmp_path / "run", device="cpu")
        prune(distilled.recipe, tmp_path / "run", device="cpu")
        assert_same_weights(tmp_path / "run/start/model", distilled.folder / "start/model")

    def test_states_of_a_deeper_teacher(self, material, tmp_path):
        made = recipe(
            material, distillation={"logits_weight": 0.0, "states_weight": 1.0}, recovery={"learning_rate": 5e-3}
        )
        prune(made, tmp_path / "run", device="cpu")
        before = states_apart(material.model, material.teacher, made)
        assert states_apart(tmp_path / "run/start/model", material.teacher, made) < 0.9 * before
        task = prepare(made, load(material.model))
        loss = Distillation(task, DistillationLoss(0, 0, 1.0), Device.choose("cpu"), load(material.teacher))
        packed = make_batch(load(material.model).encoder.shape)
        with torch.no_grad():
            found = float(loss(load(material.model), packed, torch.zeros(4, 2)))
            ours, theirs = (
                load(material.model).encoder(packed, (0, 1, 2)),
                load(material.teacher).encoder(packed, (0, 2, 4)),
            )
        wanted = 4 * sum(float((a - b).square().mean()) for a, b in zip(ours, theirs)) / 3
        assert found == pytest.approx(wanted, rel=1e-4)


def test_gates_learn_from_it_too(material, tmp_path):
    """The α of a round are others with another teacher, and the states of a teacher serve where h stays whole."""
    sections = {
        "start": None,
        "recovery": {"epochs": 0.1},
        "gates": {"states_weight": 1.0},
        "distillation": {"states_weight": 1.0},
    }
    alphas = []
    for number, teacher in enumerate((str(material.teacher), "")):
        made = recipe(material, teacher=teacher, target={"keep": [0.8], "embeddings": False, "kinds": "af"}, **sections)
        prune(made, tmp_path / str(number), device="cpu")
        alphas.append((tmp_path / str(number) / "rounds/01/alpha.safetensors").read_bytes())
    assert alphas[0] != alphas[1]


def test_logits_of_a_teacher_and_states_of_the_unpruned_model(material, minilm, tmp_path):
    """Its hidden size is another one, and hidden units are cut: no state of its own could be compared."""
    base = make_model(tmp_path / "base", minilm, hidden_size=48, initializer_range=0.3)
    large = load(base)
    save(Model(large.encoder, SpanHead(48), origin=large.origin), tmp_path / "teacher")
    sections = {
        "teacher": [str(tmp_path / "teacher"), str(material.teacher)],
        "states_of": "unpruned",
        "gates": {"states_weight": 1.0},
        "start": None,
        "target": {"keep": [0.9], "kinds": "hf"},
        "recovery": {"epochs": 2.0},
    }
    apart = []
    for number, weight in enumerate((0.0, 30.0)):
        made = recipe(material, distillation={"states_weight": weight}, **sections)
        model = load(material.model)
        assert find_teacher(made, model) is model
        prune(made, tmp_path / str(number), device="cpu")
        assert len(list((tmp_path / str(number) / "teacher-logits").iterdir())) == 2
        task = prepare(made, model)
        view = View.read(tmp_path / str(number) / "rounds/01/view.safetensors", 32)
        distillation = Distillation(task, DistillationLoss(0, 0, 1.0), Device.choose("cpu"), model, view)
        packed, labels = task.feed(task.examples, torch.device("cpu"), 0).batch(torch.arange(4).numpy())
        with torch.no_grad():
            apart.append(float(distillation(load(tmp_path / str(number) / "keep-0.9/model"), packed, labels)))
    assert apart[1] < 0.8 * apart[0]


def test_without_states_no_model_is_run_beside(material):
    made = recipe(material, states_of="unpruned")
    assert find_teacher(made, load(material.model)) is None


def test_the_model_as_its_own_teacher_is_no_other(material):
    model = load(material.model)
    made = recipe(
        material, teacher=str(material.model.parent / "../student/model"), distillation={"states_weight": 1.0}
    )
    assert find_teacher(made, model) is model


def test_made_negatives_are_counted(material, tmp_path):
    made = recipe(material, data={"negatives": {"moved": 0.5}}, recovery={"epochs": 0.0})
    facts = prune(made, tmp_path / "run", device="cpu")
    counted = prepare(made, load(material.model)).negatives
    assert facts["negatives"] == counted
    assert counted["moved"] > 0


class TestRefused:
    def refused(self, material, folder, match, **sections):
        with pytest.raises(QuothError, match=match) as caught:
            prune(recipe(material, **sections), folder / "run", device="cpu")
        assert "\n" not in str(caught.value)
        assert not (folder / "run/recipe.toml").exists()

    def test_a_teacher_that_does_not_exist(self, material, tmp_path):
        (tmp_path / "empty").mkdir()
        self.refused(material, tmp_path, r"teacher: .*empty: has neither", teacher=str(tmp_path / "empty"))

    def test_no_head(self, material, tmp_path):
        self.refused(material, tmp_path, "gives no logits, it has no head, but", teacher=str(material.base))

    def test_a_head_of_another_task(self, material, tmp_path):
        self.altered(material, tmp_path / "classes", head=ClassHead(32, 3))
        self.refused(material, tmp_path, r"gives 3 class\(es\), but .* gives spans", teacher=str(tmp_path / "classes"))

    def test_another_vocabulary(self, material, minilm, tmp_path):
        """Where the teacher is run beside the student, since states are compared."""
        base = make_model(tmp_path / "base", minilm, vocab_size=30528)
        self.altered(material, tmp_path / "teacher", source=base, head=SpanHead(32))
        self.refused(material, tmp_path, "has 30,528 words, but", teacher=str(tmp_path / "teacher"), **STATES)

    def test_another_tokenizer(self, material, tmp_path):
        """Of the same size, with two words changed about."""
        self.altered(material, tmp_path / "teacher")
        place = tmp_path / "teacher/tokenizer.json"
        table = json.loads(place.read_text())
        words = table["model"]["vocab"]
        words["mill"], words["heron"] = words["heron"], words["mill"]
        place.write_text(json.dumps(table))
        self.refused(material, tmp_path, "does not have the tokenizer of", teacher=str(tmp_path / "teacher"), **STATES)

    def test_several_whose_states_are_compared(self, material, tmp_path):
        both = [str(material.teacher), str(material.model)]
        self.refused(material, tmp_path, "teacher is .* must be one model with states_weight", teacher=both, **STATES)

    def test_states_of_the_unpruned_model_with_another_task(self, material, tmp_path):
        sections = {"data": {"task": "answerable"}, "states_of": "unpruned"}
        self.refused(material, tmp_path, "states_of is 'unpruned'; it must be 'teacher' with data.task", **sections)

    def test_windows_that_it_cannot_read(self, material, minilm, tmp_path):
        base = make_model(tmp_path / "base", minilm, max_position_embeddings=48)
        self.altered(material, tmp_path / "teacher", source=base, head=SpanHead(32))
        self.refused(material, tmp_path, r"max_length is 64, but .* ends at 48", teacher=str(tmp_path / "teacher"))

    def test_states_of_another_size(self, material, minilm, tmp_path):
        """Which is no matter if logits alone are compared."""
        base = make_model(tmp_path / "base", minilm, hidden_size=48)
        self.altered(material, tmp_path / "teacher", source=base, head=SpanHead(48))
        teacher = str(tmp_path / "teacher")
        for key in ("distillation", "gates"):
            match = f"{key}.states_weight = 0.5 compares states, but .* hidden size of 48 and .* of 32"
            self.refused(material, tmp_path, match, teacher=teacher, **{key: {"states_weight": 0.5}})
        made = recipe(material, teacher=teacher, recovery={"epochs": 1.0})
        prune(made, tmp_path / "run", device="cpu")
        assert kl(tmp_path / "run/start/model", teacher, made) < kl(material.model, teacher, made)

    @pytest.mark.parametrize("kinds", ["all", "hf"])
    def test_states_where_hidden_units_are_cut(self, material, tmp_path, kinds):
        sections = {"distillation": {"states_weight": 1.0}, "start": None}
        self.refused(material, tmp_path, "cuts hidden units", target={"keep": [0.8], "kinds": kinds}, **sections)

    def altered(self, material, folder, source=None, head=None):
        """The teacher with another encoder, or another head."""
        model = load(source or material.teacher)
        save(Model(model.encoder, head or model.head, origin=model.origin), folder)


def test_padding_and_truncation_are_no_difference(material, tmp_path):
    """Files that say how to pad and where to end, which windows do not care for."""
    save(load(material.teacher), tmp_path / "teacher")
    place = tmp_path / "teacher/tokenizer.json"
    tokenizer = Tokenizer.load(place).backend
    table = json.loads(tokenizer.to_str())
    tokenizer.enable_truncation(77)
    tokenizer.enable_padding(length=99)
    place.write_text(tokenizer.to_str())
    changed = json.loads(place.read_text())
    assert (changed["truncation"], changed["padding"]) != (table["truncation"], table["padding"])
    made = recipe(material, teacher=str(tmp_path / "teacher"), target={"kinds": "af"}, **STATES)
    found = find_teacher(made, load(material.model))
    assert len(found.encoder.shape.layers) == 4
