"""Learning from the kept logits of teachers: against a teacher run beside, through kills, and what is refused."""

import json
from types import SimpleNamespace

import numpy as np
import pytest
import torch
import transformers

from quoth.errors import QuothError
from quoth.heads.linear import ClassHead, SpanHead
from quoth.model.loading import load
from quoth.model.model import Model
from quoth.model.saving import save
from quoth.tasks.span import SpanTask
from quoth.train.distillation import Distillation, DistillationLoss
from quoth.train.recipe import make_recipe
from quoth.train.teacher_logits import TaughtFeed, average, find_teachers
from quoth.train.training import Interrupted
from quoth.windows.alignment import LEAST, compared
from quoth.windows.packed import NOTHING, Size, Taught
from support.tokenizers_by_kind import bytelevel
from train.material import (
    CPU,
    assert_same_weights,
    farthest,
    make_model,
    prepare,
    stop_after,
    table,
    train,
)
from train.test_processes import torchrun


def with_head(source, folder, seed, hidden=32):
    """A span head with wide weights on an encoder: its distributions are far from even."""
    model = load(source)
    torch.manual_seed(seed)
    head = SpanHead(hidden)
    for value in head.parameters():
        torch.nn.init.normal_(value, 0, 0.7)
    save(Model(model.encoder, head, family=model.family.name, origin=model.origin), folder)
    return folder


@pytest.fixture(scope="module")
def models(material, minilm, tmp_path_factory):
    """A student, two teachers with its tokenizer, and a RoBERTa with byte-level BPE trained on the spot."""
    folder = tmp_path_factory.mktemp("teachers")
    made = {"student": with_head(material.model, folder / "student", 1)}
    for seed, name in enumerate(("one", "two")):
        base = make_model(folder / f"{name}-base", minilm, seed=seed + 5, initializer_range=0.3, hidden_size=48)
        made[name] = with_head(base, folder / name, seed + 2, 48)
    torch.manual_seed(9)
    config = transformers.RobertaConfig(
        vocab_size=500, hidden_size=32, num_hidden_layers=2, num_attention_heads=2, intermediate_size=64,
        max_position_embeddings=400, type_vocab_size=1, initializer_range=0.3,
    )  # fmt: skip
    transformers.RobertaModel(config, add_pooling_layer=False).save_pretrained(folder / "roberta-base")
    bytelevel().save(str(folder / "roberta-base/tokenizer.json"))
    made["roberta"] = with_head(folder / "roberta-base", folder / "roberta", 4)
    return SimpleNamespace(**made, train=material.train, dev=material.dev)


def recipe(models, *names, **sections):
    chosen = [str(getattr(models, name)) for name in names]
    return make_recipe(table(models.student, models.train, teachers=chosen, **sections))


def kept_feed(models, tmp_path, *names):
    task = prepare(recipe(models, *names), load(models.student))
    sources = [str(getattr(models, name)) for name in names]
    found = find_teachers(sources, "teachers", task, tmp_path, 1.0, CPU)
    return task, found.feed(SimpleNamespace(**ALONE), lambda: None, lambda _: None)


ALONE = {"is_main_process": True, "wait_for_everyone": lambda: None, "device": torch.device("cpu")}


def whole(feed):
    return feed.batch(np.arange(len(feed.lengths)))


class Masked:
    """A teacher that is run beside the student, its logits left out where nothing is compared."""

    def __init__(self, model, task):
        self.model = model
        self.nowhere = torch.from_numpy(~compared(task.examples.windows))

    def __call__(self, packed):
        assert packed.tokens == len(self.nowhere)
        return tuple(torch.stack(self.model(packed)).masked_fill(self.nowhere, float("-inf")))


class TestLoss:
    @pytest.mark.parametrize("temperature", [1.0, 2.0])
    def test_that_of_a_teacher_run_beside(self, models, tmp_path, temperature):
        task, feed = kept_feed(models, tmp_path, "one")
        packed, labels = whole(feed)
        assert isinstance(packed, Taught)
        weights = DistillationLoss(0.3, 0.7, 0.0, temperature)
        found, grads = [], []
        for kept in (True, False):
            student = load(models.student)
            loss = Distillation(task, weights, CPU)
            if not kept:
                plain, _ = whole(task.feed(task.examples, torch.device("cpu"), 0))
                loss = Distillation(task, weights, CPU, load(models.one))
                loss.teacher = Masked(load(models.one), task)
            value = loss(student, packed if kept else plain, labels)
            value.backward()
            found.append(float(value.detach()))
            grads.append(torch.cat([p.grad.flatten() for p in student.parameters() if p.grad is not None]))
        assert found[0] == pytest.approx(found[1], rel=1e-3)
        assert torch.linalg.norm(grads[0] - grads[1]) < 5e-3 * torch.linalg.norm(grads[1])
        assert grads[0].isfinite().all()

    def test_a_model_against_itself(self, models, tmp_path):
        task, feed = kept_feed(models, tmp_path, "student")
        packed, labels = whole(feed)
        student = load(models.student)
        loss = Distillation(task, DistillationLoss(), CPU)(student, packed, labels)
        loss.backward()
        assert abs(float(loss.detach())) / len(packed.lengths) < 1e-5

    def test_the_mean_of_two(self, models, tmp_path):
        task, both = kept_feed(models, tmp_path, "one", "two")
        each = [kept_feed(models, tmp_path, name)[1] for name in ("one", "two")]
        rows = [whole(feed)[0].teacher.double().exp() for feed in each]
        wanted = (rows[0] + rows[1]) / 2
        found = whole(both)[0].teacher.double().exp()
        assert (found - wanted).abs().max() < 2e-3
        sums = torch.zeros(2, len(both.lengths), dtype=torch.float64)
        sums.index_add_(1, whole(both)[0].window_of_token(), found)
        assert (sums - 1).abs().max() < 5e-3
        assert task.name == "span"

    def test_one_teacher_alone_rules_no_token_out(self):
        one = np.array([[np.log(0.5), LEAST, -np.inf]] * 2, np.float16)
        two = np.array([[LEAST, np.log(0.25), -np.inf]] * 2, np.float16)
        found = average([one, two, two])
        assert np.exp(found.astype(np.float64))[0] == pytest.approx([1 / 6, 1 / 6, 0], abs=1e-3)
        assert np.isneginf(found[:, 2]).all()

    def test_a_batch_brought_to_a_size(self, models, tmp_path):
        """Inert windows change neither the loss nor the gradients."""
        task, feed = kept_feed(models, tmp_path, "one")
        indices = np.arange(0, len(feed.lengths), 3)
        tokens, most = int(feed.lengths[indices].sum()), int(feed.lengths.max())
        size = Size(tokens + 97, len(indices) + 4, most)
        grads = []
        for chosen in (None, size):
            student = load(models.student)
            packed, labels = feed.gather(feed.request(indices, 0, chosen).to(torch.device("cpu")))
            Distillation(task, DistillationLoss(0.5, 0.5), CPU)(student, packed, labels).backward()
            grads.append(torch.cat([p.grad.flatten() for p in student.parameters() if p.grad is not None]))
        assert torch.linalg.norm(grads[0] - grads[1]) < 1e-4 * torch.linalg.norm(grads[0])

    def test_other_tokens(self, models, tmp_path):
        """Byte-level BPE: the distributions are whole, and few tokens correspond."""
        task = prepare(recipe(models, "roberta"), load(models.student))
        told = []
        found = find_teachers([str(models.roberta)], "teachers", task, tmp_path, 1.0, CPU)
        feed = found.feed(SimpleNamespace(**ALONE), lambda: None, told.append)
        packed, labels = whole(feed)
        sums = torch.zeros(2, packed.windows, dtype=torch.float64)
        sums.index_add_(1, packed.window_of_token(), packed.teacher.double().exp())
        assert (sums - 1).abs().max() < 5e-3
        assert "compared over characters" in told[-1]
        loss = Distillation(task, DistillationLoss(), CPU)(load(models.student), packed, labels)
        assert float(loss.detach()) > 0.1


def divergence(student, feed, task):
    packed, labels = whole(feed)
    with torch.no_grad():
        return float(Distillation(task, DistillationLoss(), CPU)(load(student), packed, labels)) / len(packed.lengths)


class TestRuns:
    def test_a_student_learns(self, models, tmp_path):
        for name in ("one", "roberta"):
            made = recipe(models, name, optimisation={"epochs": 6.0, "learning_rate": 3e-3}, evaluation={})
            facts = train(made, tmp_path / name, device="cpu")
            assert facts["teachers"] == [str(getattr(models, name))]
            task, feed = kept_feed(models, tmp_path / name / "teacher-logits", name)
            before, after = (divergence(s, feed, task) for s in (models.student, tmp_path / name / "model"))
            assert after < 0.7 * before, name

    def test_labels_do_not_matter_unless_asked_for(self, models, tmp_path):
        """With logits alone the same passages and questions with other answers give the same weights."""
        value = json.loads(models.train.read_text())
        for paragraph in value["data"][0]["paragraphs"]:
            for qa in paragraph["qas"]:
                qa["answers"], qa["is_impossible"] = [], True
        (tmp_path / "other.json").write_text(json.dumps(value))
        other = SimpleNamespace(**{**vars(models), "train": tmp_path / "other.json"})
        short = {"optimisation": {"epochs": 0.5}}
        for number, which in enumerate((models, other)):
            train(recipe(which, "one", **short), tmp_path / f"run{number}", device="cpu")
        assert_same_weights(tmp_path / "run0/model", tmp_path / "run1/model")
        weighted = recipe(other, "one", distillation={"task_weight": 1.0}, **short)
        train(weighted, tmp_path / "run2", device="cpu")
        with pytest.raises(AssertionError):
            assert_same_weights(tmp_path / "run0/model", tmp_path / "run2/model")

    def test_stopped_and_resumed(self, models, tmp_path, monkeypatch):
        made = recipe(models, "one", optimisation={"epochs": 3.0}, checkpoints={"seconds": 0.0})
        train(made, tmp_path / "whole", device="cpu")
        asked = counted(monkeypatch)
        with pytest.raises(Interrupted):
            train(made, tmp_path / "run", device="cpu", tell=stop_after(10))
        assert len(asked) == 1
        told = []
        train(made, tmp_path / "run", device="cpu", tell=told.append)
        assert len(asked) == 1
        assert not any("computing" in str(line) for line in told)
        assert_same_weights(tmp_path / "run/model", tmp_path / "whole/model")

    def test_killed_while_the_teacher_computes(self, models, tmp_path, monkeypatch):
        made = recipe(models, "one", "two", optimisation={"epochs": 0.2})
        asked = counted(monkeypatch, fail_at=2)
        with pytest.raises(KeyboardInterrupt):
            train(made, tmp_path / "run", device="cpu")
        assert len(list((tmp_path / "run/teacher-logits").glob("teacher-*"))) == 1  # what was done is kept
        train(made, tmp_path / "run", device="cpu")
        assert len(asked) == 3

    @pytest.mark.parametrize("how", ["cut", "flipped", "other"])
    def test_damaged_logits_are_computed_again(self, models, tmp_path, monkeypatch, how):
        short = {"optimisation": {"epochs": 0.2}, "distillation": {"cache_folder": str(tmp_path / "cache")}}
        train(recipe(models, "one", **short), tmp_path / "run0", device="cpu")
        path = next((tmp_path / "cache").iterdir())
        data = bytearray(path.read_bytes())
        if how == "flipped":
            data[-7] ^= 1
        path.write_bytes(data[:-10] if how == "cut" else data)
        if how == "other":  # those of another teacher under this name
            train(recipe(models, "two", **short), tmp_path / "other", device="cpu")
            (next(p for p in (tmp_path / "cache").iterdir() if p != path)).replace(path)
        asked, told = counted(monkeypatch), []
        train(recipe(models, "one", **short), tmp_path / "run1", device="cpu", tell=told.append)
        assert len(asked) == 1
        reason = "holds other logits" if how == "other" else "is damaged"
        assert any(reason in str(line) and "computing" in str(line) for line in told)
        assert_same_weights(tmp_path / "run0/model", tmp_path / "run1/model")

    def test_a_changed_teacher_is_noticed(self, models, tmp_path):
        save(load(models.one), tmp_path / "teacher")
        changing = SimpleNamespace(**{**vars(models), "one": tmp_path / "teacher"})
        made = recipe(changing, "one", optimisation={"epochs": 3.0}, checkpoints={"seconds": 0.0})
        with pytest.raises(Interrupted):
            train(made, tmp_path / "run", device="cpu", tell=stop_after(10))
        save(load(models.two), tmp_path / "teacher")
        with pytest.raises(QuothError, match="the teachers has changed since it was written"):
            train(made, tmp_path / "run", device="cpu")


def test_progress_is_told(models, tmp_path, monkeypatch):
    """With the time that is left; a long pause between two lines would look as if nothing happened."""
    monkeypatch.setattr("quoth.train.teacher_logits.PAUSE", 0.0)
    task = prepare(recipe(models, "one"), load(models.student))
    found = find_teachers([str(models.one)], "teachers", task, tmp_path, 1.0, CPU)
    told = []
    found.feed(SimpleNamespace(**ALONE), lambda: None, told.append)
    lines = [line for line in told if line.startswith(f"logits of {models.one}: ")]
    assert lines
    assert lines[-1] == f"logits of {models.one}: 100%, about 0 s left"


def test_two_processes(models, tmp_path):
    """One of them runs the teacher, both learn from it; as one process does."""
    exact = {"epochs": 1.0, "learning_rate": 1e-4, "adam_epsilon": 1e-6, "dropout": 0.0}
    made = recipe(models, "one", optimisation=exact)
    (tmp_path / "recipe.toml").write_text(made.to_toml())
    both = torchrun("train", tmp_path / "recipe.toml", "--out", tmp_path / "two")
    train(made, tmp_path / "one", device="cpu")
    out, err = both.communicate(timeout=300)
    assert both.returncode == 0, err
    assert (out + err).count("computing the logits") == 1
    assert farthest(tmp_path / "two/model", tmp_path / "one/model") < 1e-5


def counted(monkeypatch, fail_at=0):
    """Which teachers are run; the one of this number is killed."""
    asked, ask = [], SpanTask.ask_teacher

    def counting(task, teacher, *more):
        asked.append(teacher)
        if len(asked) == fail_at:
            raise KeyboardInterrupt
        return ask(task, teacher, *more)

    monkeypatch.setattr(SpanTask, "ask_teacher", counting)
    return asked


COUNTS = {"lookalike": 52, "new": 30, "questions": 1}  # of some questions, asked twice, too few passages are left


@pytest.fixture(scope="module")
def unlabelled(models, tmp_path_factory):
    text = tmp_path_factory.mktemp("text") / "new.txt"
    lines = [f"The mill number {i} was built in the year {1700 + i} by the lake." for i in range(9)]
    text.write_text("\n\n".join(lines))
    rows = text.with_name("asked.jsonl")
    rows.write_text(json.dumps({"question": "Who rowed?", "context": "Nobody rowed across the lake."}) + "\n")
    pairs = {"lookalike": 1.0, "new": 0.5, "passages": [str(text)], "questions": [str(rows)]}
    return recipe(models, "one", data={"unlabelled": pairs}, optimisation={"epochs": 0.5})


class TestUnlabelled:
    def test_they_have_no_task_loss(self, models, unlabelled):
        task = prepare(unlabelled, load(models.student))
        plain = prepare(recipe(models, "one"), load(models.student))
        assert task.unlabelled == COUNTS
        count = len(plain.examples)
        assert (task.examples.labels[count:] == NOTHING).all()
        assert np.array_equal(task.examples.labels[:count], plain.examples.labels)
        losses = []
        for one in (task, plain):
            packed, labels = whole(one.feed(one.examples, torch.device("cpu"), 0))
            with torch.no_grad():
                losses.append(float(one.loss(load(models.student)(packed), packed, labels)))
        assert losses[0] == pytest.approx(losses[1], rel=1e-5)

    def test_they_are_learnt_from(self, models, unlabelled, tmp_path):
        facts = train(unlabelled, tmp_path / "run", device="cpu")
        assert facts["unlabelled"] == COUNTS
        assert json.loads((tmp_path / "run/metrics.json").read_text())["unlabelled"] == facts["unlabelled"]
        task = prepare(unlabelled, load(models.student))
        found = find_teachers([str(models.one)], "teachers", task, tmp_path / "run/teacher-logits", 1.0, CPU)
        assert found.kept[0].windows is None  # all of them were asked of the teacher

    def test_they_are_never_held_out(self, models, unlabelled):
        task = prepare(unlabelled, load(models.student)).hold_out(0.3, 20, 0)
        assert not {q.id for q in task.dataset.questions} & {q.id for q in task.questions}
        assert all(q.trainable for q in task.dataset.questions)
        assert task.examples.windows.question.max() == len(task.questions) - 1
        assert task.teacher_windows(task.tokenizer).ids.tolist() == task.examples.windows.ids.tolist()


class TestRefused:
    def refused(self, folder, match, made):
        with pytest.raises(QuothError, match=match) as caught:
            train(make_recipe(made) if isinstance(made, dict) else made, folder / "run", device="cpu")
        assert "\n" not in str(caught.value)
        assert not (folder / "run/recipe.toml").exists()

    def test_a_teacher_that_cannot_be_read(self, models, tmp_path):
        (tmp_path / "empty").mkdir()
        made = table(models.student, models.train, teachers=[str(tmp_path / "empty")])
        self.refused(tmp_path, "recipe: teachers: .*empty: has neither", made)

    def test_a_head_for_something_else(self, models, material, tmp_path):
        model = load(models.one)
        save(Model(model.encoder, ClassHead(48, 3), origin=model.origin), tmp_path / "classes")
        for folder, what in ((tmp_path / "classes", r"3 class\(es\)"), (material.model, "no logits, it has no head")):
            made = table(models.student, models.train, teachers=[str(folder)])
            self.refused(tmp_path, f"teachers = .* gives {what}, but .* gives spans", made)

    def test_windows_that_are_too_short(self, models, minilm, tmp_path):
        base = make_model(tmp_path / "base", minilm, max_position_embeddings=48)
        with_head(base, tmp_path / "short", 0)
        made = table(models.student, models.train, teachers=[str(tmp_path / "short")])
        self.refused(tmp_path, "data.max_length is 64, but teachers = .* ends at 48", made)

    def test_tokens_that_need_more_room(self, models, tmp_path):
        """The teacher could read 100 tokens, but needs more of its own for what the student reads in 96."""
        config = transformers.RobertaConfig.from_pretrained(models.roberta.parent / "roberta-base")
        config.max_position_embeddings = 102
        transformers.RobertaModel(config, add_pooling_layer=False).save_pretrained(tmp_path / "base")
        bytelevel().save(str(tmp_path / "base/tokenizer.json"))
        with_head(tmp_path / "base", tmp_path / "teacher", 0)
        made = table(models.student, models.train, teachers=[str(tmp_path / "teacher")], data={"max_length": 96})
        self.refused(tmp_path, r"needs \d+ tokens of its own for a window, but ends at 100; lower", made)

    def test_too_much_to_keep(self, models, tmp_path):
        made = recipe(models, "one", distillation={"cache_gb": 1e-6})
        self.refused(tmp_path, r"cache_gb is 1e-06 GB, but the logits of 1 teacher\(s\) for [\d,]+ tokens take", made)

    @pytest.mark.parametrize(
        ("sections", "match"),
        [
            ({"distillation": {"task_weight": 1.0}}, "teachers is .*given where the recipe has a table"),
            ({"data": {"unlabelled": {"moved": 1.0}}}, "data.unlabelled is .*empty without teachers"),
            ({"data": {"unlabelled": {"new": 1.0}}, "teachers": "x"}, "data.unlabelled.new is 1.0"),
            ({"data": {"unlabelled": {"moved": -1.0}}, "teachers": "x"}, "data.unlabelled.moved is -1.0"),
            ({"data": {"task": "glue"}, "teachers": "x"}, "teachers is .*empty with data.task 'glue'"),
            ({"teachers": "x", "distillation": {"temperature": 0.0}}, "distillation.temperature is 0.0"),
            ({"teachers": "x", "distillation": {"cache_gb": 0.0}}, "distillation.cache_gb is 0.0"),
            ({"teachers": "x", "distillation": {"logits_weight": 0.0}}, "distillation.logits_weight is 0.0"),
            ({"teachers": "x", "distillation": {"states_weight": 1.0}}, "unknown key distillation.states_weight"),
        ],
    )
    def test_recipes(self, models, sections, match):
        with pytest.raises(QuothError, match=match):
            make_recipe(table(models.student, models.train, **sections))


def test_the_feed_is_the_plain_one_with_logits(models, tmp_path):
    """The same windows and labels, and for each token its own logits, in any order of windows."""
    task, feed = kept_feed(models, tmp_path, "one")
    plain = task.feed(task.examples, torch.device("cpu"), 0)
    everything = whole(feed)[0]
    indices = np.random.default_rng(0).permutation(len(feed.lengths))[:7]
    (mine, labels), (other, theirs) = feed.batch(indices), plain.batch(indices)
    assert isinstance(feed, TaughtFeed)
    assert torch.equal(mine.ids, other.ids)
    assert torch.equal(labels, theirs)
    places = task.examples.windows.token_places(indices)
    assert torch.equal(mine.teacher, everything.teacher[:, places])
    moved = mine.map(lambda array: array.clone())
    assert isinstance(moved, Taught)
