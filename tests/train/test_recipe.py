"""Recipes: every key, overrides, round trips, and mistakes that are one line."""

import math
import re
from dataclasses import asdict, replace
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from quoth.errors import QuothError
from quoth.heads import build_head
from quoth.train.recipe import TAKEN, make_recipe, read_recipe
from quoth.train.run import train
from train.material import table

LEAST = {"model": "m", "data": {"train": "t.json"}}
EVERY_KEY = """
model = "bert-base-cased"
seed = 7

[data]
train = ["a.json", "rajpurkar/squad_v2:train"]
evaluate = "b.json"
task = "span"
fraction = 0.1
held_out = 0.0
max_length = 320
step = 100
question_limit = 48
negatives = { moved = 0.1, negation = 0.25 }

[tuning]
kind = "adapters"
size = 64

[head]
kind = "cacnn"
width = 3

[optimisation]
epochs = 1.5
rate = 3e-4
windows = 8
accumulate = 2
schedule = "cosine"
restarts = 2
warmup = 0.05
decay = 0.02
clip = 0.5
beta1 = 0.8
beta2 = 0.99
epsilon = 1e-6
dropout = 0.2
precision = "bf16"
compile = true

[frozen]
at = [0, 0.3, 1.5]
evaluate = [0.01, 2]
cache = 0
epochs = 2
rate = 2e-3
tokens = 4096
schedule = "linear"
warmup = 0.1
decay = 0.01
clip = 0
beta1 = 0.85
beta2 = 0.98
epsilon = 1e-7

[frozen.heads]
lp = "pool(learned) > linear"
"LP + compress" = { head = "pool(learned) > compress(64) > linear", rate = 1e-4, schedule = "cosine", restarts = 1 }
[frozen.heads.cnn]
kind = "cacnn"
width = 3

[evaluation]
at = [0.1, 0.2, 1]
snapshots = [1.5]
max_answer_tokens = 20

[checkpoints]
seconds = 60
"""


def text(path, content):
    path.write_text(content, encoding="utf-8")
    return path


class TestReading:
    def test_every_key(self, tmp_path):
        assert asdict(read_recipe(text(tmp_path / "r.toml", EVERY_KEY))) == {
            "model": "bert-base-cased",
            "seed": 7,
            "data": {
                "train": ("a.json", "rajpurkar/squad_v2:train"),
                "evaluate": "b.json",
                "task": "span",
                "fraction": 0.1,
                "held_out": 0.0,
                "max_length": 320,
                "step": 100,
                "question_limit": 48,
                "negatives": {"moved": 0.1, "lookalike": 0.0, "entity": 0.0, "negation": 0.25},
            },
            "tuning": {"kind": "adapters", "size": 64},
            "head": {"kind": "cacnn", "width": 3},
            "optimisation": {
                "epochs": 1.5,
                "rate": 3e-4,
                "tokens": None,
                "windows": 8,
                "accumulate": 2,
                "schedule": "cosine",
                "restarts": 2,
                "warmup": 0.05,
                "decay": 0.02,
                "clip": 0.5,
                "beta1": 0.8,
                "beta2": 0.99,
                "epsilon": 1e-6,
                "dropout": 0.2,
                "precision": "bf16",
                "compile": True,
            },
            "frozen": {
                "at": (0.0, 0.3, 1.5),
                "heads": {
                    "lp": "pool(learned) > linear",
                    "LP + compress": {
                        "head": "pool(learned) > compress(64) > linear",
                        "rate": 1e-4,
                        "schedule": "cosine",
                        "restarts": 1,
                    },
                    "cnn": {"kind": "cacnn", "width": 3},
                },
                "evaluate": (0.01, 2.0),
                "cache": 0.0,
                "epochs": 2.0,
                "rate": 2e-3,
                "tokens": 4096,
                "windows": None,
                "schedule": "linear",
                "restarts": 0,
                "warmup": 0.1,
                "decay": 0.01,
                "clip": 0.0,
                "beta1": 0.85,
                "beta2": 0.98,
                "epsilon": 1e-7,
            },
            "evaluation": {"at": (0.1, 0.2, 1.0), "snapshots": (1.5,), "max_answer_tokens": 20},
            "checkpoints": {"seconds": 60.0},
        }

    def test_defaults(self):
        made = asdict(make_recipe(LEAST))
        assert made["seed"] == 0
        assert made["data"] == {
            "train": ("t.json",),
            "evaluate": "",
            "task": "span",
            "fraction": 1.0,
            "held_out": 0.0,
            "max_length": 384,
            "step": 128,
            "question_limit": 64,
            "negatives": {"moved": 0.0, "lookalike": 0.0, "entity": 0.0, "negation": 0.0},
        }
        assert (made["tuning"], made["head"]) == ({"kind": "full"}, {"kind": "span"})
        assert made["optimisation"] == {
            "epochs": 3.0,
            "rate": 3e-5,
            "tokens": None,
            "windows": None,
            "accumulate": 1,
            "schedule": "linear",
            "restarts": 0,
            "warmup": 0.1,
            "decay": 0.01,
            "clip": 1.0,
            "beta1": 0.9,
            "beta2": 0.999,
            "epsilon": 1e-8,
            "dropout": None,
            "precision": "auto",
            "compile": False,
        }
        assert made["frozen"] == {
            "at": (),
            "heads": {},
            "evaluate": (),
            "cache": 0.0,
            "epochs": 1.0,
            "rate": 1e-3,
            "tokens": None,
            "windows": None,
            "schedule": "constant",
            "restarts": 0,
            "warmup": 0.0,
            "decay": 0.0,
            "clip": 0.0,
            "beta1": 0.9,
            "beta2": 0.999,
            "epsilon": 1e-8,
        }
        assert made["evaluation"] == {"at": (), "snapshots": (), "max_answer_tokens": 30}
        assert made["checkpoints"] == {"seconds": 300.0}

    def test_overrides(self, tmp_path):
        path = text(tmp_path / "r.toml", EVERY_KEY)
        words = [
            "model=google/bert_uncased_L-2_H-128_A-2",
            "data.train=../data/train.json.gz",
            "data.evaluate=",
            "optimisation.rate=1e-4",
            "optimisation.compile=false",
            "optimisation.schedule=cosine",
            "evaluation.at=[0.5, 1]",
            "evaluation.snapshots=1",
            'tuning.kind="freeze"',
            "seed=8",
            "checkpoints.seconds=0",
            "frozen.heads.ap=pool(average) > linear",
            "frozen.heads.cnn.width=5",
            "frozen.at=0",
            "frozen.evaluate=[0.1, 0.5]",
        ]
        made = read_recipe(path, words)
        assert made.model == "google/bert_uncased_L-2_H-128_A-2"
        assert made.data.train == ("../data/train.json.gz",)
        assert made.data.evaluate == ""
        assert made.data.step == 100  # what no word names stays
        assert made.optimisation.rate == 1e-4
        assert made.optimisation.compile is False
        assert made.evaluation.at == (0.5, 1.0)
        assert made.evaluation.snapshots == (1.0,)
        assert made.tuning == {"kind": "freeze", "size": 64}
        assert made.seed == 8
        assert made.checkpoints.seconds == 0.0
        assert list(made.frozen.heads) == ["lp", "LP + compress", "cnn", "ap"]
        assert made.frozen.heads["ap"] == "pool(average) > linear"
        assert made.frozen.heads["cnn"] == {"kind": "cacnn", "width": 5}
        assert made.frozen.at == (0.0,)
        assert made.frozen.evaluate == (0.1, 0.5)

    def test_an_override_makes_room_for_settings_of_one_head(self, tmp_path):
        """A line, and a table of a kind, become tables with `head`."""
        path = text(tmp_path / "r.toml", EVERY_KEY)
        words = [
            "frozen.heads.lp.rate=3e-4",
            "frozen.heads.lp.schedule=cosine",
            "frozen.heads.cnn.clip=2",
            "frozen.heads.cnn.head.width=7",
            "frozen.heads.LP + compress.rate=5e-4",
        ]
        made = read_recipe(path, words)
        assert made.frozen.heads == {
            "lp": {"head": "pool(learned) > linear", "rate": 3e-4, "schedule": "cosine"},
            "cnn": {"head": {"kind": "cacnn", "width": 7}, "clip": 2},
            "LP + compress": {
                "head": "pool(learned) > compress(64) > linear",
                **{"rate": 5e-4, "schedule": "cosine", "restarts": 1},
            },
        }
        assert made.frozen.each()["lp"][1].rate == 3e-4
        other = read_recipe(path, ["frozen.heads.lp=attend(dot)", "frozen.heads.lp.rate=1e-4"]).frozen.heads["lp"]
        assert other == {"head": "attend(dot)", "rate": 1e-4}

    def test_a_head_as_a_line(self, tmp_path):
        path = text(tmp_path / "r.toml", 'model = "m"\nhead = "pool(learned) > linear"\n[data]\ntrain = "t"\n')
        made = read_recipe(path)
        assert made.head == "pool(learned) > linear"
        assert read_recipe(path, ["head=attend(dot)"]).head == "attend(dot)"
        assert read_recipe(text(path, made.to_toml())) == made

    def test_each_head_has_the_settings_of_the_stage_and_its_own(self, tmp_path):
        frozen = read_recipe(text(tmp_path / "r.toml", EVERY_KEY)).frozen
        found = frozen.each()
        assert list(found) == ["lp", "LP + compress", "cnn"]
        assert found["lp"] == ("pool(learned) > linear", frozen)
        assert found["cnn"] == ({"kind": "cacnn", "width": 3}, frozen)
        assert found["LP + compress"] == (
            "pool(learned) > compress(64) > linear",
            replace(frozen, rate=1e-4, schedule="cosine", restarts=1),
        )

    def test_an_override_may_open_a_table(self, tmp_path):
        path = text(tmp_path / "r.toml", 'model = "m"')
        made = read_recipe(path, ["data.train=[\"a\", 'b']", "head.kind=cacnn", "head.width=3"])
        assert made.data.train == ("a", "b")
        assert made.head == {"kind": "cacnn", "width": 3}


class TestDocumented:
    TEXT = (Path(__file__).parents[2] / "docs/train.md").read_text(encoding="utf-8")

    def test_every_key_stands_in_the_table(self):
        rows = re.findall(r"^\| `([a-z0-9_.]+)` \|", self.TEXT.partition("## Keys")[2].partition("\n## ")[0], re.M)
        known = asdict(make_recipe(LEAST))
        sections = {"data", "optimisation", "frozen", "evaluation", "checkpoints"}
        keys = [f"{name}.{key}" for name in sections for key in known[name]]
        assert sorted(rows) == sorted([*keys, *(known.keys() - sections)])

    def test_the_first_recipe_is_one(self, tmp_path):
        recipe = read_recipe(text(tmp_path / "r.toml", self.TEXT.partition("```toml")[2].partition("```")[0]))
        assert recipe.tuning == {"kind": "adapters", "size": 64}

    def test_so_is_that_of_many_heads(self, tmp_path):
        _, _, content = self.TEXT.split("```toml")
        recipe = read_recipe(text(tmp_path / "r.toml", content.partition("```")[0]))
        heads = recipe.frozen.each()
        assert list(heads) == ["lp", "compress 386 + skip", "slow"]
        assert (heads["lp"][1].rate, heads["slow"][1].rate) == (1e-3, 1e-4)
        with torch.device("meta"):
            made = {name: build_head(head, 1024, 24) for name, (head, _) in heads.items()}
        sizes = {name: sum(value.numel() for value in head.parameters()) for name, head in made.items()}
        assert sizes == {"lp": 2076, "compress 386 + skip": 414_952 + 2048, "slow": 1_643_202}  # BERTVision's


words = st.text(st.characters(codec="utf-8"), max_size=12)
parts = st.floats(0, 1, exclude_max=True)
sizes = st.floats(0, 1e9, allow_nan=False)


@st.composite
def recipes(draw):
    """Any recipe that can be made."""
    epochs = draw(st.floats(1e-6, 1e6))
    schedule = draw(st.sampled_from(["linear", "constant", "cosine"]))
    moments = st.lists(st.floats(0, 1, exclude_min=True).map(lambda part: part * epochs).filter(bool), max_size=3)
    settings = st.dictionaries(
        st.from_regex(r"[a-z_]{1,8}", fullmatch=True), words | st.integers() | st.booleans() | st.lists(words)
    )
    budget = draw(st.sampled_from(["tokens", "windows", ""]))
    lines = words | settings.filter(lambda table: "head" not in table)
    own = {
        "rate": st.floats(1e-12, 1e3),
        "warmup": parts,
        "decay": sizes,
        "clip": sizes,
        "schedule": st.just("cosine"),
    }
    heads = st.dictionaries(
        st.from_regex(r"[A-Za-z0-9_][\w+ -]{0,8}[\w+-]", fullmatch=True).filter(lambda name: name not in TAKEN),
        lines | st.fixed_dictionaries({"head": lines}, optional=own),
        max_size=3,
    )
    own_epochs = draw(st.floats(1e-6, 1e6))
    return {
        "model": draw(words),
        "seed": draw(st.integers(0, 2**70)),
        "data": {
            "train": draw(st.lists(words, min_size=1, max_size=3)),
            "evaluate": draw(words),
            "task": draw(st.sampled_from(["span", "answerable", "glue"])),
            "fraction": draw(st.floats(0, 1, exclude_min=True)),
            "max_length": draw(st.integers()),
            "step": draw(st.integers()),
            "question_limit": draw(st.integers()),
        },
        "tuning": draw(settings),
        "head": draw(lines),
        "optimisation": {
            "epochs": epochs,
            "rate": draw(st.floats(1e-12, 1e3)),
            **({budget: draw(st.integers(1, 10**6))} if budget else {}),
            "accumulate": draw(st.integers(1, 100)),
            "schedule": schedule,
            "restarts": draw(st.integers(0, 9)) if schedule == "cosine" else 0,
            "warmup": draw(parts),
            "decay": draw(sizes),
            "clip": draw(sizes),
            "beta1": draw(parts),
            "beta2": draw(parts),
            "epsilon": draw(sizes),
            **draw(st.fixed_dictionaries({}, optional={"dropout": parts})),
            "precision": draw(st.sampled_from(["auto", "fp32", "bf16"])),
            "compile": draw(st.booleans()),
        },
        "frozen": {
            "at": [0.0, *draw(moments)],
            "heads": draw(heads),
            "epochs": own_epochs,
            "evaluate": [part * own_epochs for part in draw(st.lists(st.floats(0.001, 1), max_size=3))],
            "rate": draw(st.floats(1e-12, 1e3)),
            **({budget: draw(st.integers(1, 10**6))} if budget else {}),
            "warmup": draw(parts),
        },
        "evaluation": {
            "at": draw(moments),
            "snapshots": draw(moments),
            "max_answer_tokens": draw(st.integers(1, 1000)),
        },
        "checkpoints": {"seconds": draw(sizes)},
    }


@settings(deadline=None)
@given(recipes())
def test_toml_reads_back_as_the_same_recipe(tmp_path_factory, given_table):
    recipe = make_recipe(given_table)
    path = text(tmp_path_factory.mktemp("r") / "r.toml", recipe.to_toml())
    again = read_recipe(path)
    assert again == recipe
    assert recipe.differences(again) == []
    assert again.to_toml() == recipe.to_toml()


@settings(deadline=None)
@given(recipes(), recipes())
def test_differences(one, other):
    """They are found exactly where there are any, and name the key with both values."""
    mine, theirs = make_recipe(one), make_recipe(other)
    found = mine.differences(theirs)
    assert (found == []) == (mine == theirs)
    if mine.seed != theirs.seed:
        assert f"seed: {mine.seed}, {theirs.seed}" in found


def with_(section, key, value):
    made = {"model": "m", "data": {"train": "t.json"}}
    if section:
        made.setdefault(section, {})[key] = value
    else:
        made[key] = value
    return made


class TestMistakes:
    @pytest.mark.parametrize(
        ("wrong", "nearest"),
        [
            (("", "modle", "x"), "unknown key modle; did you mean model?"),
            (("", "optimization", {}), "unknown key optimization; did you mean optimisation?"),
            (
                ("optimisation", "learning_rate", 1),
                "unknown key optimisation.learning_rate; did you mean optimisation.rate?",
            ),
            (("optimisation", "warm_up", 0.1), "unknown key optimisation.warm_up; did you mean optimisation.warmup?"),
            (("data", "maxlength", 1), "unknown key data.maxlength; did you mean data.max_length?"),
            (("evaluation", "snapshot", 1), "unknown key evaluation.snapshot; did you mean evaluation.snapshots?"),
            (("checkpoints", "secs", 1), "unknown key checkpoints.secs; did you mean checkpoints.seconds?"),
            (("frozen", "head", {}), "unknown key frozen.head; did you mean frozen.heads?"),
            (
                ("frozen", "heads", {"lp": {"head": "linear", "learning_rate": 1}}),
                "unknown key frozen.heads.lp.learning_rate; did you mean frozen.heads.lp.rate?",
            ),
            (
                ("frozen", "heads", {"lp": {"head": "linear", "epochs": 1}}),
                "unknown key frozen.heads.lp.epochs; did you mean frozen.heads.lp.",
            ),
        ],
    )
    def test_an_unknown_key_names_the_nearest(self, wrong, nearest):
        with pytest.raises(QuothError, match=r"^recipe: ") as raised:
            make_recipe(with_(*wrong))
        assert nearest in str(raised.value)

    @pytest.mark.parametrize(
        ("section", "key", "value", "wanted"),
        [
            ("", "model", 3, "model is 3; a text is wanted"),
            ("", "seed", "x", "seed is 'x'; a whole number is wanted"),
            ("", "seed", 1.5, "seed is 1.5; a whole number is wanted"),
            ("", "seed", True, "seed is True; a whole number is wanted"),
            ("", "seed", -1, "seed is -1; it must be not negative"),
            ("", "data", 3, "data is 3, a table is wanted"),
            ("", "tuning", "full", "tuning is 'full'; a table is wanted"),
            ("data", "train", 5, "data.train is 5; a text is wanted"),
            ("data", "train", ["a", 5], "data.train is 5; a text is wanted"),
            ("data", "train", [], "data.train is ()"),
            ("data", "fraction", 0.0, "data.fraction is 0.0; it must be above 0"),
            ("data", "fraction", 1.01, "data.fraction is 1.01"),
            ("data", "max_length", "long", "data.max_length is 'long'; a whole number is wanted"),
            ("optimisation", "epochs", 0, "optimisation.epochs is 0.0; it must be above 0"),
            ("optimisation", "epochs", math.inf, "optimisation.epochs is inf; a number is wanted"),
            ("optimisation", "epochs", math.nan, "optimisation.epochs is nan; a number is wanted"),
            ("optimisation", "rate", -1e-4, "optimisation.rate is -0.0001; it must be above 0"),
            ("optimisation", "rate", "fast", "optimisation.rate is 'fast'; a number is wanted"),
            ("optimisation", "rate", True, "optimisation.rate is True; a number is wanted"),
            ("optimisation", "tokens", 0, "optimisation.tokens is 0; it must be at least 1"),
            ("optimisation", "windows", -2, "optimisation.windows is -2; it must be at least 1"),
            ("optimisation", "windows", 2.0, "optimisation.windows is 2.0; a whole number is wanted"),
            ("optimisation", "accumulate", 0, "optimisation.accumulate is 0; it must be at least 1"),
            ("optimisation", "schedule", "step", "'step'; one of linear, constant, cosine is wanted"),
            ("optimisation", "restarts", 1, "optimisation.restarts is 1; it must be 0 but for cosine"),
            ("optimisation", "warmup", 1.0, "optimisation.warmup is 1.0"),
            ("optimisation", "decay", -0.1, "optimisation.decay is -0.1; it must be not negative"),
            ("optimisation", "clip", -1, "optimisation.clip is -1.0; it must be not negative"),
            ("optimisation", "beta1", 1.0, "optimisation.beta1 is 1.0; it must be at least 0, below 1"),
            ("optimisation", "beta2", -0.5, "optimisation.beta2 is -0.5; it must be at least 0, below 1"),
            ("optimisation", "epsilon", -1.0, "optimisation.epsilon is -1.0; it must be not negative"),
            ("optimisation", "dropout", 1.0, "optimisation.dropout is 1.0; it must be at least 0, below 1"),
            ("optimisation", "precision", "fp16", "'fp16'; one of auto, fp32, bf16 is wanted"),
            ("optimisation", "compile", 1, "optimisation.compile is 1; true or false is wanted"),
            ("", "head", 3, "head is 3; it must be a line or a table of a head"),
            ("data", "task", "glu", "data.task is 'glu'; one of span, answerable, glue, pretrain is wanted"),
            ("frozen", "heads", ["linear"], "frozen.heads is ['linear']; a table is wanted"),
            ("frozen", "heads", {"lp": 3}, "frozen.heads.lp is 3; it must be a line or a table of a head"),
            ("frozen", "heads", {"lp": {"head": ["x"]}}, "frozen.heads.lp is ['x']; it must be a line"),
            ("frozen", "heads", {"lp": {"head": "x", "rate": "fast"}}, "frozen.heads.lp.rate is 'fast'; a number"),
            ("frozen", "heads", {"lp": {"head": "x", "rate": 0}}, "frozen.heads.lp.rate is 0.0; it must be above 0"),
            ("frozen", "heads", {"lp": {"head": "x", "restarts": 1}}, "frozen.heads.lp.restarts is 1; it must be 0"),
            ("frozen", "heads", {"lp": {"head": "x", "warmup": 1}}, "frozen.heads.lp.warmup is 1.0"),
            (
                "frozen",
                "heads",
                {"lp": {"head": "x", "schedule": "step"}},
                "frozen.heads.lp.schedule is 'step'; one of",
            ),
            ("frozen", "heads", {"a/b": "linear"}, "a head in frozen.heads is 'a/b'; it must be of letters"),
            ("frozen", "heads", {"..": "linear"}, "a head in frozen.heads is '..'"),
            ("frozen", "heads", {"": "linear"}, "a head in frozen.heads is ''"),
            ("frozen", "heads", {"a.b": "linear"}, "a head in frozen.heads is 'a.b'"),
            ("frozen", "heads", {"a ": "linear"}, "a head in frozen.heads is 'a '"),
            ("frozen", "heads", {"a\nb": "linear"}, "a head in frozen.heads is 'a\\nb'"),
            ("frozen", "heads", {"encoder": "linear"}, "a head in frozen.heads is 'encoder'"),
            ("frozen", "heads", {"checkpoints": "linear"}, "a head in frozen.heads is 'checkpoints'"),
            ("frozen", "at", [4.0], "frozen.at is 4.0; it must be at least 0, at most 3 epochs"),
            ("frozen", "at", [-1.0], "frozen.at is -1.0"),
            ("frozen", "evaluate", [0.5, 2.0], "frozen.evaluate is 2.0; it must be above 0, at most 1 epochs"),
            ("frozen", "evaluate", 0, "frozen.evaluate is 0.0; it must be above 0"),
            ("frozen", "cache", -1, "frozen.cache is -1.0; it must be not negative"),
            ("frozen", "cache", 4, "frozen.cache is 4.0; it must be 0 with data.task 'span', which reads every token"),
            ("frozen", "heads", {"cache": "linear"}, "a head in frozen.heads is 'cache'"),
            ("frozen", "epochs", 0, "frozen.epochs is 0.0; it must be above 0"),
            ("frozen", "rate", 0, "frozen.rate is 0.0; it must be above 0"),
            ("frozen", "windows", 0, "frozen.windows is 0; it must be at least 1"),
            ("frozen", "restarts", 1, "frozen.restarts is 1; it must be 0 but for cosine"),
            ("frozen", "clip", -1, "frozen.clip is -1.0; it must be not negative"),
            ("evaluation", "at", [0.5, 4.0], "evaluation.at, snapshots is 4.0; it must be above 0, at most 3 epochs"),
            ("evaluation", "snapshots", [0.0], "evaluation.at, snapshots is 0.0"),
            ("evaluation", "max_answer_tokens", 0, "evaluation.max_answer_tokens is 0; it must be at least 1"),
            ("checkpoints", "seconds", -1, "checkpoints.seconds is -1.0; it must be not negative"),
        ],
    )
    def test_a_wrong_value_is_named(self, section, key, value, wanted):
        with pytest.raises(QuothError) as raised:
            make_recipe(with_(section, key, value))
        assert wanted in str(raised.value)
        assert "\n" not in str(raised.value)

    @pytest.mark.parametrize("section", ["optimisation", "frozen"])
    def test_tokens_or_windows(self, section):
        with pytest.raises(QuothError, match=f"{section}.tokens is 4096.*not both"):
            make_recipe({**LEAST, section: {"tokens": 4096, "windows": 8}})

    def test_no_epochs_are_for_heads_alone(self):
        frozen = {"heads": {"lp": "pool(learned) > linear"}}
        assert make_recipe({**LEAST, "optimisation": {"epochs": 0}, "frozen": frozen}).optimisation.epochs == 0
        with pytest.raises(QuothError, match=r"optimisation.epochs is 0.0; it must be above 0, or 0 with frozen.heads"):
            make_recipe({**LEAST, "optimisation": {"epochs": 0}})

    @pytest.mark.parametrize(
        ("content", "words", "culprit"),
        [
            ("", (), "model is missing"),
            ('model = "m"', (), "data is missing"),
            ('model = "m"\n[data]', (), "data.train is missing"),
            ("model = ", (), "not valid TOML (Invalid value (at end of document))"),
            ('model = "m"\nmodel = "n"', (), "not valid TOML (Cannot overwrite a value"),
            (EVERY_KEY, ["rate"], "'rate': an override is written key=value"),
            (EVERY_KEY, ["optimisation.rate.x=1"], "rate is not a table"),
            (EVERY_KEY, ["frozen.heads.lp.rte=1e-4"], "unknown key frozen.heads.lp.rte; did you mean frozen.heads.lp."),
            (EVERY_KEY, ["frozen.heads.lp.rate.x=1"], "frozen.heads.lp.rate is {'x': 1}; a number is wanted"),
            (EVERY_KEY, ["optimisation.rat=1"], "unknown key optimisation.rat; did you mean optimisation.rate?"),
            (EVERY_KEY, ["rate=1e-4"], "unknown key rate; did you mean"),
            (EVERY_KEY, ["=1"], "unknown key ;"),
        ],
    )
    def test_what_cannot_be_read(self, tmp_path, content, words, culprit):
        with pytest.raises(QuothError) as raised:
            read_recipe(text(tmp_path / "r.toml", content), words)
        assert culprit in str(raised.value)
        assert "\n" not in str(raised.value)

    def test_no_such_file_and_not_text(self, tmp_path):
        with pytest.raises(QuothError, match="no such recipe"):
            read_recipe(tmp_path / "nowhere.toml")
        (tmp_path / "bad.toml").write_bytes(b"model = '\xff'")
        with pytest.raises(QuothError, match="not valid TOML"):
            read_recipe(tmp_path / "bad.toml")
        with pytest.raises(QuothError, match="Is a directory"):
            read_recipe(tmp_path)


@settings(deadline=None)
@given(st.sampled_from(sorted(asdict(make_recipe(LEAST))["optimisation"])), st.text(max_size=8))
def test_any_word_gives_a_recipe_or_one_line(tmp_path_factory, key, value):
    path = text(tmp_path_factory.mktemp("r") / "r.toml", 'model = "m"\n[data]\ntrain = "t"\n')
    told = ""
    try:
        read_recipe(path, [f"optimisation.{key}={value}"])
    except QuothError as error:
        told = str(error)
    assert len(told.splitlines()) <= 1


@pytest.fixture(scope="module")
def sound(material):
    """A recipe that runs for two steps."""
    return table(material.model, material.train, material.dev, optimisation={"epochs": 0.1})


class TestMistakesOfARun:
    """A mistake that shows only with model and data at hand leaves nothing that blocks the corrected recipe."""

    @pytest.mark.parametrize(
        ("wrong", "culprit"),
        [
            ({"model": "/no/such/model"}, "/no/such/model: no such file or folder"),
            ({"data": {"train": "/no/where.json"}}, "/no/where.json: no such file"),
            ({"data": {"evaluate": "/no/where.json"}}, "/no/where.json: no such file"),
            ({"data": {"max_length": 1024}}, "data.max_length is 1024, but"),
            ({"data": {"max_length": 20}}, "has no room for the passage"),
            ({"data": {"step": 0}}, "step is 0; it must be at least 1"),
            ({"tuning": {"kind": "frozen"}}, "tuning: kind 'frozen' is unknown"),
            ({"tuning": {"kind": "full", "size": 8}}, "tuning: full has no setting 'size'"),
            ({"head": {"kind": "spam"}}, "head: kind 'spam' is unknown"),
            ({"head": {"kind": "span", "width": 8}}, "head: span cannot be made of"),
            ({"head": {"kind": "class", "labels": 2}}, "head gives classes, but data.task = 'span' wants spans"),
            ({"optimisation": {"windows": 1, "accumulate": 2}}, "too few for 1 process(es) in 2 part(s)"),
            ({"optimisation": {"tokens": 32}}, "more than the budget of 32"),
        ],
    )
    def test_then_the_corrected_recipe_runs(self, sound, tmp_path, wrong, culprit):
        wrong = {
            key: {**sound.get(key, {}), **value} if isinstance(value, dict) else value for key, value in wrong.items()
        }
        if "tokens" in wrong.get("optimisation", ()):
            del wrong["optimisation"]["windows"]
        with pytest.raises(QuothError) as raised:
            train(make_recipe({**sound, **wrong}), tmp_path / "run", device="cpu")
        assert culprit in str(raised.value)
        assert "\n" not in str(raised.value)
        assert train(make_recipe(sound), tmp_path / "run", device="cpu")["steps"] == 2

    def test_a_folder_of_something_else_is_left_alone(self, sound, tmp_path):
        (tmp_path / "letter.txt").write_text("dear")
        with pytest.raises(QuothError, match="exists and is not a run folder"):
            train(make_recipe(sound), tmp_path, device="cpu")
        assert (tmp_path / "letter.txt").read_text() == "dear"
        with pytest.raises(QuothError, match="is a file"):
            train(make_recipe(sound), tmp_path / "letter.txt", device="cpu")

    def test_killed_while_the_recipe_was_written(self, sound, tmp_path):
        (tmp_path / ".lock").touch()
        (tmp_path / ".recipe.toml.k3x.part").write_text("mod")
        assert train(make_recipe(sound), tmp_path, device="cpu")["steps"] == 2
        assert not list(tmp_path.glob(".*.part"))

    @pytest.mark.parametrize("device", ["cuda", "tpu"])
    def test_device(self, sound, tmp_path, device, monkeypatch):
        monkeypatch.setattr("torch.cuda.is_available", lambda: False)
        with pytest.raises(QuothError, match=device):
            train(make_recipe(sound), tmp_path, device=device)

    @pytest.mark.parametrize(
        ("word", "culprit"),
        [
            ("optimisation.rte=1", "did you mean optimisation.rate?"),
            ("optimisation.rate=-1", "optimisation.rate is -1.0; it must be above 0"),
            ("model=/no/such/model", "/no/such/model: no such file or folder"),
            ("optimisation.accumulate=20", "too few for 1 process(es) in 20 part(s)"),
        ],
    )
    def test_on_the_command_line(self, sound, tmp_path, cli, word, culprit):
        """Exit code 2, one line on stderr; and the same --out takes the corrected recipe."""
        recipe = text(tmp_path / "r.toml", make_recipe(sound).to_toml())
        result = cli("train", recipe, word, "--out", tmp_path / "run")
        assert result.returncode == 2
        assert result.stdout == ""
        (line,) = result.stderr.splitlines()
        assert line.startswith("quoth: ")
        assert culprit in line
        assert cli("train", recipe, "--out", tmp_path / "run").returncode == 0


class TestHeadsAtSomeEpochs:
    def made(self, **heads):
        frozen = {"at": [0, 0.5, 1], "heads": {"lp": "pool(learned) > linear", **heads}}
        return make_recipe({"model": "m", "data": {"train": "t"}, "optimisation": {"epochs": 1}, "frozen": frozen})

    def test_a_head_of_some_epochs_is_left_out_of_others(self):
        recipe = self.made(deep={"head": "xception > linear", "at": [0.5]})
        assert {at: list(recipe.frozen.of_epoch(at).heads) for at in recipe.frozen.at} == {
            0: ["lp"],
            0.5: ["lp", "deep"],
            1: ["lp"],
        }

    def test_an_epoch_that_is_no_stage(self):
        with pytest.raises(QuothError, match=r"frozen.heads.deep.at is 0.3; it must be one of the epochs of frozen.at"):
            self.made(deep={"head": "xception > linear", "at": [0.3]})
