"""Classes: the loss and the merging of windows against loops, and GLUE from tables to scores by the command line."""

import json
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
import torch
import transformers
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import pearsonr, spearmanr
from sklearn.metrics import accuracy_score, f1_score, matthews_corrcoef

from quoth.data import read
from quoth.data.glue import read_glue
from quoth.errors import QuothError
from quoth.model.loading import load
from quoth.model.saving import save_hugging_face
from quoth.tasks import AnswerableTask, GlueTask
from quoth.tasks.examples import ClassExamples
from quoth.tasks.seeds import sample
from quoth.tasks.settings import Data
from quoth.train.build import build_model
from quoth.train.recipe import make_recipe
from quoth.windows.packed import NOTHING
from quoth.windows.questions import make_windows
from quoth.windows.sentences import make_pairs
from quoth.windows.tokenizer import Tokenizer
from train.material import FACTS, farthest, make_recipe_file, prepare, table, train, weights

NUMBERS = (  # each a token
    "one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen seventeen "
    "eighteen nineteen twenty"
)
PLAIN = {"kind": "class", "labels": 2}
POOLED = {"kind": "class", "labels": 2, "pooled": True}
DENSE = {"kind": "class", "labels": 2, "activation": "tanh"}

HEADS = {
    "lp": {"kind": "chain", "line": "pool(learned) > linear", "labels": 2, "pooled": True},
    "ap+compress": {
        "head": {"kind": "chain", "line": "pool(average) > compress(8) > linear", "labels": 2, "pooled": True},
        "learning_rate": 1e-2,
    },
    "bare": {"kind": "chain", "line": "compress(8) > skip > linear", "labels": 2},
    "plain": PLAIN,
    "pooled": POOLED,
}


def tables(folder, part, shift):
    """GLUE's four kinds of tables, as GLUE published them: 24 rows of train.tsv, of another part fewer."""
    rows = 24 if part == "train" else 14
    texts = [sentence for sentence, *_ in FACTS]
    pairs = []
    for row in range(rows):
        first = texts[(row + shift) % 12]
        other = first.replace(" the ", " a ") if row % 3 else texts[(5 * row + shift + 4) % 12]
        pairs.append((first, other, min(row % 3, 1)))
    sts = ["index", "genre", "filename", "year", "old_index", "source1", "source2", "sentence1", "sentence2", "score"]
    found = {
        "MRPC": [["Quality", "#1 ID", "#2 ID", "#1 String", "#2 String"]]
        + [[str(same), str(row), str(row), a, b] for row, (a, b, same) in enumerate(pairs)],
        "SST-2": [["sentence", "label"]] + [[a, str((row // 2) % 2)] for row, (a, _, _) in enumerate(pairs)],
        "CoLA": [["gj04", str(same), "" if same else "*", b] for _, b, same in pairs],
        "STS-B": [sts]
        + [
            [*(str(row), "news", "f", "2012", str(row), "s", "s"), a, b, f"{same * 4 + row % 2 / 2:.3f}"]
            for row, (a, b, same) in enumerate(pairs)
        ],
    }
    for task, lines in found.items():
        (folder / task).mkdir(exist_ok=True)
        (folder / task / f"{part}.tsv").write_text("".join("\t".join(line) + "\n" for line in lines))


@pytest.fixture(scope="module")
def glue(tmp_path_factory):
    folder = tmp_path_factory.mktemp("tables")
    tables(folder, "train", 0)
    tables(folder, "dev", 3)
    return folder


@pytest.fixture(scope="module")
def tokens(minilm):
    return Tokenizer.load(minilm)


def glue_recipe(place, glue, task, head, **sections):
    made = table(place.model, glue / task / "train.tsv", glue / task / "dev.tsv", head=head, **sections)
    made["data"]["task"] = "glue"
    return made


def glue_task(metrics, labels, classes):
    """Rows of a window each, to be evaluated on."""
    examples = ClassExamples(SimpleNamespace(question=np.arange(len(labels))), labels, labels)
    return GlueTask(metrics, ("x",) * classes, examples, examples)


def class_loss(logits, labels):
    return GlueTask("MNLI", ("x",) * logits.shape[1], None).loss(logits, None, labels)


class TestLoss:
    @settings(deadline=None)
    @given(st.integers(1, 9), st.integers(2, 5), st.integers(0, 2**31))
    def test_equals_a_loop_over_windows_gradients_too(self, count, classes, seed):
        rng = np.random.default_rng(seed)
        labels = torch.from_numpy(rng.integers(0, classes, count))
        logits = torch.from_numpy(rng.normal(0, 3, (count, classes)).astype(np.float32))
        mine, theirs = (logits.clone().requires_grad_() for _ in range(2))
        expected = torch.zeros(())
        for row, label in zip(theirs, labels, strict=True):
            expected = expected + row.exp().sum().log() - row[label]
        loss = class_loss(mine, labels)
        torch.testing.assert_close(loss, expected)
        loss.backward()
        expected.backward()
        torch.testing.assert_close(mine.grad, theirs.grad)

    @settings(deadline=None)
    @given(st.lists(st.tuples(st.floats(-9, 9, width=32), st.floats(0, 5)), min_size=1, max_size=9))
    def test_one_logit_is_a_score(self, rows):
        logits = torch.tensor([[found] for found, _ in rows], dtype=torch.float32)
        labels = torch.tensor([score for _, score in rows], dtype=torch.float64)  # as read_glue gives them
        expected = sum((found - score) ** 2 for found, score in rows)
        assert class_loss(logits, labels).item() == pytest.approx(expected, rel=1e-5, abs=1e-6)

    def test_half_precision_is_summed_in_fp32(self):
        logits = torch.randn(50, 3, generator=torch.Generator().manual_seed(0)).bfloat16()
        labels = torch.arange(50) % 3
        loss = class_loss(logits, labels)
        assert loss.dtype == torch.float32
        torch.testing.assert_close(loss, class_loss(logits.float(), labels))
        assert class_loss(logits[:, :1], labels.double()).dtype == torch.float32


class TestData:
    def test_a_window_without_the_whole_answer_is_no_answer(self, tokens, tmp_path):
        """By hand. 15 tokens hold [CLS], "who ?", two [SEP] and ten words of the passage: 0-9, 4-13, 8-17, 12-19."""
        source = tmp_path / "squad.json"
        answers = {
            "over the end of the first": ("ten eleven", [1, 0, 0, 1]),  # words 9 and 10
            "in the first two": ("seven", [0, 0, 1, 1]),  # word 6
            "in the last alone": ("twenty", [1, 1, 1, 0]),  # word 19
            "in all but the first": ("thirteen", [1, 0, 0, 0]),  # word 12
            "in none, it is too long": (NUMBERS[8:71], [1, 1, 1, 1]),
            "impossible": ("", [1, 1, 1, 1]),
            "elsewhere": ("ninety", [NOTHING] * 4),  # annotated, but not in the passage
        }
        asked = [
            {
                "id": name,
                "question": "who?",
                "is_impossible": not text,
                "answers": [{"text": text, "answer_start": max(NUMBERS.find(text), 0)}] if text else [],
            }
            for name, (text, _) in answers.items()
        ]
        paragraphs = [{"context": NUMBERS, "qas": asked}]
        source.write_text(json.dumps({"version": "v2.0", "data": [{"title": "t", "paragraphs": paragraphs}]}))
        data = Data((str(source),), str(source), task="answerable", max_length=15, step=4, max_query_length=8)
        task = AnswerableTask.prepare(data, tokens, None, 0, 30)
        expected = [labels for _, labels in answers.values()]
        assert task.evaluation.labels.reshape(-1, 4).tolist() == expected
        assert task.evaluation.classes.tolist() == [0, 0, 0, 0, 0, 1, 0]  # of the questions, as SQuAD has them
        assert task.examples.labels.reshape(-1, 4).tolist() == expected[:-1], "without the one that is nowhere"
        assert task.examples.classes.tolist() == [0, 0, 0, 0, 0, 1]

    def test_labels_of_windows_by_characters(self, material, tokens):
        """A loop over windows that looks at characters alone."""
        data = Data((str(material.train),), task="answerable", max_length=48, step=16, max_query_length=16)
        found = AnswerableTask.prepare(data, tokens, None, 0, 30)
        questions = read(str(material.train)).questions
        windows = make_windows(questions, tokens, max_length=48, step=16, max_query_length=16)
        examples = found.examples
        np.testing.assert_array_equal(examples.windows.ids, windows.ids)
        assert len(examples) == len(windows) > 1.5 * len(questions)
        differs = 0
        for w, label in enumerate(examples.labels.tolist()):
            question = questions[windows.question[w]]
            spans = windows.spans[windows.starts[w] : windows.starts[w + 1]]
            seen = spans[spans[:, 0] >= 0]
            gold = question.answers[0] if question.answers else None
            inside = gold is not None and seen[0, 0] <= gold.start and gold.end <= seen[-1, 1]
            assert label == (0 if inside else 1)
            differs += label != int(question.impossible)
        assert differs > 0, "some windows lack the answer of their question"
        assert found.examples.classes.tolist() == [int(question.impossible) for question in questions]
        assert (found.metrics, found.classes, found.labels) == ("answerable", ("answer", "no_answer"), 2)
        held = found.hold_out(0.3, 100, 0)
        for part in (held.examples, held.evaluation):  # a window with its answer belongs to a question with an answer
            assert int(part.windows.question[-1]) + 1 == len(part.classes)
            assert not part.classes[part.windows.question[part.labels == 0]].any()
        assert len(held.examples.classes) + len(held.evaluation.classes) == len(questions)

    def test_a_sample_of_the_questions(self, material, tokens):
        data = Data((str(material.train), str(material.dev)), task="answerable", fraction=0.3)
        questions = [q for source in data.train for q in read(source).questions]
        found = AnswerableTask.prepare(data, tokens, None, 5, 30).examples
        chosen = sample(questions, 0.3, 5)
        assert len(found.labels) == len(chosen) == 24  # one window a question at this length
        np.testing.assert_array_equal(found.windows.ids, make_windows(chosen, tokens).ids)
        assert found.labels.tolist() == [q.impossible for q in chosen]

    @pytest.mark.parametrize("name", ["MRPC", "SST-2", "CoLA", "STS-B"])
    def test_rows_of_glue(self, glue, tokens, name):
        data = Data((str(glue / name / "train.tsv"),), task="glue", max_length=20)
        task, other = (
            GlueTask.prepare(replace(data, fraction=fraction), tokens, None, 7, 30) for fraction in (1.0, 0.4)
        )
        whole, part = task.examples, other.examples
        sentences = read_glue(glue / name / "train.tsv")
        np.testing.assert_array_equal(whole.windows.ids, make_pairs(sentences, tokens, max_length=20).ids)
        assert whole.labels.tolist() == sentences.labels.tolist()
        assert task.labels == (1 if name == "STS-B" else 2)
        rows = sample(range(24), 0.4, 7)
        assert len(rows) == len(part.windows) == 10
        assert part.labels.tolist() == [sentences.labels[row] for row in rows]
        for w, row in enumerate(rows):
            for column in ("ids", "types", "spans"):
                np.testing.assert_array_equal(getattr(part.windows[w], column), getattr(whole.windows[row], column))
        assert part.windows.question.tolist() == list(range(10))
        assert part.windows.words.shape == part.windows.ids.shape
        kind = "f" if name == "STS-B" else "i"
        assert part.labels.dtype.kind == kind


@pytest.fixture(scope="module")
def asked(material, tokens):
    """Questions with several windows each, labelled by whether they have an answer."""
    dev = str(material.dev)
    data = Data((dev,), dev, task="answerable", max_length=40, step=8, max_query_length=16)
    found = AnswerableTask.prepare(data, tokens, None, 0, 30)
    assert np.bincount(found.evaluation.windows.question).min() >= 2
    return found


class TestQuality:
    @settings(deadline=None)
    @given(st.integers(0, 2**31), st.floats(0, 3))
    def test_a_question_is_no_answer_if_any_window_says_so(self, asked, material, seed, lean):
        windows = asked.evaluation.windows
        logits = np.random.default_rng(seed).normal(0, 1, (len(windows), 2)) - [0, lean]
        right = positives = found = both = 0
        labels, predicted = [], []
        for q, label in enumerate(int(question.impossible) for question in read(material.dev).questions):
            says_no = False
            for w in range(len(windows)):
                if windows.question[w] == q and logits[w, 1] > logits[w, 0]:
                    says_no = True
            right += says_no == bool(label)
            positives += label
            found += says_no
            both += label and says_no
            labels.append(label)
            predicted.append(int(says_no))
        quality = asked.quality(logits)
        assert quality == pytest.approx(
            {"exact": 100 * right / len(labels), "f1": 100 * 2 * both / max(1, positives + found)}
        )
        assert quality["f1"] == pytest.approx(100 * f1_score(labels, predicted, pos_label=1, zero_division=0))

    @settings(deadline=None)
    @given(st.data())
    def test_glue_by_scikit_learn(self, given_data):
        task = given_data.draw(st.sampled_from(["MRPC", "SST-2", "CoLA", "MNLI"]))
        count, classes = given_data.draw(st.integers(2, 30)), 3 if task == "MNLI" else 2
        rng = np.random.default_rng(given_data.draw(st.integers(0, 2**31)))
        labels, logits = rng.integers(0, classes, count), rng.normal(0, 1, (count, classes))
        found = glue_task(task, labels, classes).quality(logits)
        assert found == pytest.approx(expected_scores(task, logits, labels))

    def test_scores_by_scipy(self):
        rng = np.random.default_rng(0)
        labels, logits = rng.uniform(0, 5, 40), rng.normal(0, 1, (40, 1))
        found = glue_task("STS-B", labels, 0).quality(logits)
        assert found == pytest.approx(expected_scores("STS-B", logits, labels))


def expected_scores(task, logits, labels):
    """What GLUE asks for, by scikit-learn and scipy, in per cent."""
    if task == "STS-B":
        return {
            "pearson": 100 * pearsonr(logits[:, 0], labels)[0],
            "spearman": 100 * spearmanr(logits[:, 0], labels)[0],
        }
    predicted = logits.argmax(1)
    if task == "CoLA":
        return {"mcc": 100 * matthews_corrcoef(labels, predicted)}
    found = {"acc": 100 * accuracy_score(labels, predicted)}
    return {**found, "f1": 100 * f1_score(labels, predicted, zero_division=0)} if task == "MRPC" else found


def row_by_row(folder, windows):
    """The logits of a model folder, every window by itself. (n, classes)"""
    model = load(folder)
    with torch.no_grad():
        return np.concatenate([model(windows.packed([w]).map(torch.from_numpy)).numpy() for w in range(len(windows))])


class TestCommandLine:
    @pytest.mark.parametrize(
        ("task", "head"),
        [
            ("MRPC", POOLED),
            ("MRPC", {"kind": "chain", "line": "pool(learned) > compress(8) > linear", "labels": 2, "pooled": True}),
            ("SST-2", DENSE),
            ("CoLA", PLAIN),
            ("STS-B", {**POOLED, "labels": 1}),
        ],
    )
    def test_glue_end_to_end(self, lively, glue, tokens, tmp_path, cli, task, head):
        """The scores in metrics.json are those of the saved model, by other code than ours."""
        made = glue_recipe(
            lively, glue, task, head, optimisation={"epochs": 6, "learning_rate": 1e-3}, evaluation={"snapshots": [1]}
        )
        del made["data"]["task"]
        recipe = make_recipe_file(tmp_path / "r.toml", made)
        result = cli("train", recipe, "data.task=glue", "--out", tmp_path / "run", "--json", "--device", "cpu")
        assert result.returncode == 0, result.stderr
        facts = json.loads(result.stdout)
        assert (facts["steps"], facts["windows"]) == (24, 144)
        dev = read_glue(glue / task / "dev.tsv")
        windows = make_pairs(dev, tokens, max_length=64)
        logits = row_by_row(tmp_path / "run/model", windows)
        print(f"logits of class 0: {logits[:, 0].min():.4f} to {logits[:, 0].max():.4f}")
        assert np.ptp(logits[:, 0]) > 1e-3  # a model that tells rows apart by more than rounding
        assert facts["quality"] == pytest.approx(expected_scores(task, logits, dev.labels), abs=1e-3)
        assert not np.array_equal(logits, row_by_row(tmp_path / "run/snapshots/epoch-1", windows))
        assert result.stderr.startswith("epoch 6.00: ")
        assert not (tmp_path / "run/answers.jsonl.gz").exists()  # there are none
        if head is POOLED:
            self.as_transformers(tmp_path, dev, logits)

    def as_transformers(self, folder, dev, logits):
        """BertForSequenceClassification with transformers' own tokenizer gives the same logits."""
        save_hugging_face(load(folder / "run/model"), folder / "theirs")
        model = transformers.BertForSequenceClassification.from_pretrained(folder / "theirs").eval()
        tokenizer = transformers.AutoTokenizer.from_pretrained(folder / "theirs")
        ready = tokenizer(dev.first, dev.second, truncation=True, max_length=64, padding=True, return_tensors="pt")
        with torch.no_grad():
            np.testing.assert_allclose(model(**ready).logits.numpy(), logits, atol=1e-5)

    def test_answer_or_no_answer(self, lively, tokens, tmp_path, cli):
        made = table(
            lively.model, lively.train, lively.dev, head=POOLED, optimisation={"learning_rate": 3e-3, "dropout": 0.0}
        )
        made["data"]["task"] = "answerable"
        recipe = make_recipe_file(tmp_path / "r.toml", made)
        result = cli("train", recipe, "--out", tmp_path / "run", "--device", "cpu")
        assert result.returncode == 0, result.stderr
        facts = json.loads((tmp_path / "run/metrics.json").read_text())
        questions = read(str(lively.dev)).questions
        windows = make_windows(questions, tokens, max_length=64, step=24, max_query_length=24)
        logits = row_by_row(tmp_path / "run/model", windows)
        predicted = [int(logits[windows.question == q].argmax(1).any()) for q in range(len(questions))]
        labels = [int(question.impossible) for question in questions]
        assert facts["quality"]["exact"] == pytest.approx(100 * accuracy_score(labels, predicted))
        assert facts["quality"]["f1"] == pytest.approx(100 * f1_score(labels, predicted, zero_division=0))
        assert "exact" in result.stdout
        assert "F1" in result.stdout

    def test_a_fraction_of_the_rows(self, lively, glue, tmp_path, cli):
        recipe = make_recipe_file(tmp_path / "r.toml", glue_recipe(lively, glue, "SST-2", PLAIN))
        result = cli("train", recipe, "data.fraction=0.25", "--out", tmp_path / "run", "--json", "--device", "cpu")
        assert json.loads(result.stdout)["windows"] == 6

    @pytest.mark.parametrize(
        ("words", "culprit"),
        [
            (["head.labels=3"], "head has 3 label(s), but the data want 2"),
            (["head.labels=1"], "head has 1 label(s), but the data want 2"),
            (['head={{kind = "span"}}'], "head gives spans, but data.task = 'glue' wants classes"),
            (["head=pool(learned) > linear"], "head gives spans, but data.task = 'glue' wants classes"),
            (["data.task=span"], "head gives classes, but data.task = 'span' wants spans"),
            (["data.train={glue}/MRPC/test.tsv"], "test.tsv: has no labels; a test split cannot be trained on"),
            (["data.evaluate={glue}/MRPC/test.tsv"], "test.tsv: has no labels; a test split cannot be trained on"),
            (["data.evaluate={glue}/CoLA/dev.tsv"], "data.train is MRPC, but data.evaluate is CoLA"),
            (["data.train=['a.tsv', 'b.tsv']"], "a GLUE task is one table, 2 were given"),
            (["data.train=/no/where.tsv"], "/no/where.tsv: no such file"),
            (["data.max_length=3"], "max_length is 3; 3 special tokens leave no space for a sentence"),
            (["data.max_length=1000"], "data.max_length is 1000, but"),
            (["data.task=answerable", "data.train={glue}/none.json"], "none.json: no question in it can be trained on"),
        ],
    )
    def test_mistakes_are_one_line(self, lively, glue, tmp_path, cli, words, culprit):
        (glue / "MRPC/test.tsv").write_text("index\t#1 ID\t#2 ID\t#1 String\t#2 String\n0\t1\t2\tA\tB\n")
        (glue / "none.json").write_text('{"version": "v2.0", "data": []}')
        recipe = make_recipe_file(tmp_path / "r.toml", glue_recipe(lively, glue, "MRPC", PLAIN))
        result = cli("train", recipe, *(word.format(glue=glue) for word in words), "--out", tmp_path / "run")
        assert result.returncode == 2
        assert result.stdout == ""
        (line,) = result.stderr.splitlines()
        assert culprit in line
        assert not (tmp_path / "run/recipe.toml").exists()  # the folder is free for the corrected recipe


def test_labels_of_a_prepared_task_are_checked_too(lively, glue, tmp_path):
    recipe = make_recipe(glue_recipe(lively, glue, "SST-2", PLAIN))
    prepared = prepare(recipe, build_model(recipe))
    other = make_recipe(glue_recipe(lively, glue, "STS-B", {**PLAIN, "labels": 1}))
    with pytest.raises(QuothError, match=r"head has 1 label\(s\), but the data want 2"):
        train(other, tmp_path / "run", device="cpu", task=prepared)


class TestFrozen:
    """Heads on the first token's states of a frozen encoder, with the pooler's output as one more channel."""

    @pytest.fixture(scope="class")
    @classmethod
    def run(cls, lively, glue, tmp_path_factory):
        folder = tmp_path_factory.mktemp("frozen") / "run"
        frozen = {"heads": HEADS, "at": [0, 1], "epochs": 4, "batch_size": 6}
        made = glue_recipe(lively, glue, "MRPC", POOLED, frozen=frozen, optimisation={"learning_rate": 1e-4})
        return folder, train(make_recipe(made), folder, device="cpu")

    @pytest.mark.parametrize("epoch", ["0", "1"])
    def test_scores_are_those_of_the_saved_models(self, run, glue, tokens, epoch):
        folder, facts = run
        dev = read_glue(glue / "MRPC/dev.tsv")
        windows = make_pairs(dev, tokens, max_length=64)
        found = facts["frozen"][epoch]["heads"]
        own = {"encoder"} if epoch == "1" else set()  # the encoder as it was loaded has no head
        assert found.keys() == {*HEADS, *own}
        seen = []
        for name in HEADS:
            here = folder / f"frozen/epoch-{epoch}" / name / "model"
            assert all(tensor.startswith("head.") for tensor in weights(here))
            seen.append(row_by_row(here, windows))
            assert found[name]["quality"] == pytest.approx(expected_scores("MRPC", seen[-1], dev.labels))
        assert len({logits.tobytes() for logits in seen}) == len(seen)
        if own:
            logits = row_by_row(folder / "model", windows)
            assert found["encoder"]["quality"] == pytest.approx(expected_scores("MRPC", logits, dev.labels))
            assert found["encoder"]["quality"] == facts["quality"]

    @pytest.mark.parametrize(("task", "labels"), [("MRPC", 2), ("STS-B", 1)])
    def test_from_cached_states_they_are_the_same(self, lively, glue, tmp_path, task, labels):
        heads = {"lp": {"kind": "chain", "line": "pool(learned) > linear", "labels": labels, "pooled": True}}
        found = []
        for cache in (0.0, 0.1):
            frozen = {"heads": heads, "batch_size": 6, "epochs": 3.0, "evaluate": [1], "cache_gb": cache}
            made = glue_recipe(lively, glue, task, {**POOLED, "labels": labels}, frozen=frozen)
            found.append(train(make_recipe(made), tmp_path / str(cache), device="cpu")["frozen"]["1"])
            assert len(found[-1]["heads"]["lp"]["curve"]) == 2
        assert found[1]["cache"]["bytes"] == (24 + 14) * 3 * 32 * 4
        assert farthest(*(tmp_path / cache / "frozen/epoch-1/lp/model" for cache in ("0.0", "0.1"))) < 1e-5
        for name in ("lp", "encoder"):
            live, cached = (dict(stage["heads"][name]["quality"]) for stage in found)
            if task == "STS-B":  # two rows of the table stand in it twice, and rounding decides the ranks of equals
                assert live.pop("spearman") == pytest.approx(cached.pop("spearman"), abs=1)
            assert live == pytest.approx(cached, abs=1e-3)

    @pytest.mark.parametrize(
        ("heads", "culprit"),
        [
            ({"lp": "pool(learned) > linear"}, "frozen.heads.lp gives spans, but data.task = 'glue' wants classes"),
            ({"one": {**PLAIN, "labels": 1}}, "frozen.heads.one has 1 label(s), but the data want 2"),
        ],
    )
    def test_mistakes_are_found_before_the_encoder_is_trained(self, lively, glue, tmp_path, heads, culprit):
        made = glue_recipe(lively, glue, "MRPC", PLAIN, frozen={"heads": heads})
        with pytest.raises(QuothError) as raised:
            train(make_recipe(made), tmp_path / "run", device="cpu")
        assert culprit in str(raised.value)
        assert not (tmp_path / "run/recipe.toml").exists()
