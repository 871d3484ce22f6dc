"""Recipes: every key, overrides and round trips."""

import re
from dataclasses import asdict, replace
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from quoth.config import differences
from quoth.errors import QuothError
from quoth.heads import build_head
from quoth.train.recipe import TAKEN, make_recipe, read_recipe
from train.recipe_material import EVERY_KEY, LEAST, text


class TestReading:
    def test_every_key(self, tmp_path):
        assert asdict(read_recipe(text(tmp_path / "r.toml", EVERY_KEY))) == {
            "model": "bert-base-cased",
            "teachers": ("large", "runs/other/model"),
            "seed": 7,
            "data": {
                "train": ("a.json", "rajpurkar/squad_v2:train"),
                "evaluate": "b.json",
                "task": "span",
                "fraction": 0.1,
                "held_out": 0.0,
                "whole_words": False,
                "max_length": 320,
                "step": 100,
                "max_query_length": 48,
                "negatives": {"moved": 0.1, "lookalike": 0.0, "entity": 0.0, "negation": 0.25},
                "unlabelled": {
                    "moved": 0.0,
                    "lookalike": 2.0,
                    "edited": 6.0,
                    "new": 0.5,
                    "cloze": 0.25,
                    "passages": ("books.txt",),
                    "questions": (),
                },
                "styles": {"no_mark": 0.3, "keywords": 0.0, "imperative": 0.0, "lower": 0.1},
                "layouts": {"markdown": 0.0, "list": 0.2, "heading": 0.0, "wrapped": 0.0, "code": 0.0},
            },
            "tuning": {"kind": "adapters", "size": 64},
            "head": {"kind": "cacnn", "width": 3},
            "optimisation": {
                "epochs": 1.5,
                "learning_rate": 3e-4,
                "batch_tokens": None,
                "batch_size": 8,
                "gradient_accumulation_steps": 2,
                "schedule": "cosine",
                "restarts": 2,
                "warmup_ratio": 0.05,
                "weight_decay": 0.02,
                "max_grad_norm": 0.5,
                "adam_beta1": 0.8,
                "adam_beta2": 0.99,
                "adam_epsilon": 1e-6,
                "dropout": 0.2,
                "precision": "bf16",
                "compile": "off",
            },
            "frozen": {
                "at": (0.0, 0.3, 1.5),
                "heads": {
                    "lp": "pool(learned) > linear",
                    "LP + compress": {
                        "head": "pool(learned) > compress(64) > linear",
                        "learning_rate": 1e-4,
                        "schedule": "cosine",
                        "restarts": 1,
                    },
                    "cnn": {"kind": "cacnn", "width": 3},
                },
                "evaluate": (0.01, 2.0),
                "cache_gb": 0.0,
                "epochs": 2.0,
                "learning_rate": 2e-3,
                "batch_tokens": 4096,
                "batch_size": None,
                "schedule": "linear",
                "restarts": 0,
                "warmup_ratio": 0.1,
                "weight_decay": 0.01,
                "max_grad_norm": 0.0,
                "adam_beta1": 0.85,
                "adam_beta2": 0.98,
                "adam_epsilon": 1e-7,
                "compile": "off",
            },
            "evaluation": {"at": (0.1, 0.2, 1.0), "snapshots": (1.5,), "max_answer_tokens": 20},
            "checkpoints": {"seconds": 60.0},
            "distillation": {
                "task_weight": 0.5,
                "logits_weight": 2.0,
                "temperature": 1.5,
                "cache_folder": "logits",
                "cache_gb": 1.0,
            },
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
            "whole_words": False,
            "max_length": 384,
            "step": 128,
            "max_query_length": 64,
            "negatives": {"moved": 0.0, "lookalike": 0.0, "entity": 0.0, "negation": 0.0},
            "unlabelled": {
                "moved": 0.0,
                "lookalike": 0.0,
                "edited": 0.0,
                "new": 0.0,
                "cloze": 0.0,
                "passages": (),
                "questions": (),
            },
            "styles": {"no_mark": 0.0, "keywords": 0.0, "imperative": 0.0, "lower": 0.0},
            "layouts": {"markdown": 0.0, "list": 0.0, "heading": 0.0, "wrapped": 0.0, "code": 0.0},
        }
        assert made["teachers"] == ()
        assert (made["tuning"], made["head"]) == ({"kind": "full"}, {"kind": "span"})
        assert made["optimisation"] == {
            "epochs": 3.0,
            "learning_rate": 3e-5,
            "batch_tokens": None,
            "batch_size": None,
            "gradient_accumulation_steps": 1,
            "schedule": "linear",
            "restarts": 0,
            "warmup_ratio": 0.1,
            "weight_decay": 0.01,
            "max_grad_norm": 1.0,
            "adam_beta1": 0.9,
            "adam_beta2": 0.999,
            "adam_epsilon": 1e-8,
            "dropout": None,
            "precision": "auto",
            "compile": "graphs",
        }
        assert made["frozen"] == {
            "at": (),
            "heads": {},
            "evaluate": (),
            "cache_gb": 0.0,
            "epochs": 1.0,
            "learning_rate": 1e-3,
            "batch_tokens": None,
            "batch_size": None,
            "schedule": "constant",
            "restarts": 0,
            "warmup_ratio": 0.0,
            "weight_decay": 0.0,
            "max_grad_norm": 0.0,
            "adam_beta1": 0.9,
            "adam_beta2": 0.999,
            "adam_epsilon": 1e-8,
            "compile": "graphs",
        }
        assert made["evaluation"] == {"at": (), "snapshots": (), "max_answer_tokens": 30}
        assert made["checkpoints"] == {"seconds": 300.0}
        assert made["distillation"] == {
            "task_weight": 0.0,
            "logits_weight": 1.0,
            "temperature": 1.0,
            "cache_folder": "",
            "cache_gb": 4.0,
        }

    def test_overrides(self, tmp_path):
        path = text(tmp_path / "r.toml", EVERY_KEY)
        words = [
            "model=google/bert_uncased_L-2_H-128_A-2",
            "data.train=../data/train.json.gz",
            "data.evaluate=",
            "optimisation.learning_rate=1e-4",
            "optimisation.compile=graphs",
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
        assert made.optimisation.learning_rate == 1e-4
        assert made.optimisation.compile == "graphs"
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

    def test_an_override_may_give_one_head_settings_of_its_own(self, tmp_path):
        """A line, and a table of a kind, become tables with `head`."""
        path = text(tmp_path / "r.toml", EVERY_KEY)
        words = [
            "frozen.heads.lp.learning_rate=3e-4",
            "frozen.heads.lp.schedule=cosine",
            "frozen.heads.cnn.max_grad_norm=2",
            "frozen.heads.cnn.head.width=7",
            "frozen.heads.LP + compress.learning_rate=5e-4",
        ]
        made = read_recipe(path, words)
        assert made.frozen.heads == {
            "lp": {"head": "pool(learned) > linear", "learning_rate": 3e-4, "schedule": "cosine"},
            "cnn": {"head": {"kind": "cacnn", "width": 7}, "max_grad_norm": 2},
            "LP + compress": {
                "head": "pool(learned) > compress(64) > linear",
                **{"learning_rate": 5e-4, "schedule": "cosine", "restarts": 1},
            },
        }
        assert made.frozen.each()["lp"][1].learning_rate == 3e-4
        other = read_recipe(path, ["frozen.heads.lp=attend(dot)", "frozen.heads.lp.learning_rate=1e-4"]).frozen.heads[
            "lp"
        ]
        assert other == {"head": "attend(dot)", "learning_rate": 1e-4}

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
            replace(frozen, learning_rate=1e-4, schedule="cosine", restarts=1),
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
        sections = {"data", "optimisation", "frozen", "evaluation", "checkpoints", "distillation"}
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
        assert (heads["lp"][1].learning_rate, heads["slow"][1].learning_rate) == (1e-3, 1e-4)
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
    epochs = draw(st.floats(1e-6, 1e4))
    schedule = draw(st.sampled_from(["linear", "constant", "cosine"]))
    moments = st.lists(st.floats(0, 1, exclude_min=True).map(lambda part: part * epochs).filter(bool), max_size=3)
    settings = st.dictionaries(
        st.from_regex(r"[a-z_]{1,8}", fullmatch=True), words | st.integers() | st.booleans() | st.lists(words)
    )
    budget = draw(st.sampled_from(["batch_tokens", "batch_size", ""]))
    lines = words | settings.filter(lambda table: "head" not in table)
    own = {
        "learning_rate": st.floats(1e-12, 1e3),
        "warmup_ratio": parts,
        "weight_decay": sizes,
        "max_grad_norm": sizes,
        "schedule": st.just("cosine"),
    }
    heads = st.dictionaries(
        st.from_regex(r"[A-Za-z0-9_][\w+ -]{0,8}[\w+-]", fullmatch=True).filter(lambda name: name not in TAKEN),
        lines | st.fixed_dictionaries({"head": lines}, optional=own),
        max_size=3,
    )
    own_epochs = draw(st.floats(1e-6, 1e4))
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
            "max_query_length": draw(st.integers()),
        },
        "tuning": draw(settings),
        "head": draw(lines),
        "optimisation": {
            "epochs": epochs,
            "learning_rate": draw(st.floats(1e-12, 1e3)),
            **({budget: draw(st.integers(1, 10**6))} if budget else {}),
            "gradient_accumulation_steps": draw(st.integers(1, 100)),
            "schedule": schedule,
            "restarts": draw(st.integers(0, 9)) if schedule == "cosine" else 0,
            "warmup_ratio": draw(parts),
            "weight_decay": draw(sizes),
            "max_grad_norm": draw(sizes),
            "adam_beta1": draw(parts),
            "adam_beta2": draw(parts),
            "adam_epsilon": draw(sizes),
            **draw(st.fixed_dictionaries({}, optional={"dropout": parts})),
            "precision": draw(st.sampled_from(["auto", "fp32", "bf16"])),
            "compile": draw(st.sampled_from(["graphs", "off"])),
        },
        "frozen": {
            "at": [0.0, *draw(moments)],
            "heads": draw(heads),
            "epochs": own_epochs,
            "evaluate": [part * own_epochs for part in draw(st.lists(st.floats(0.001, 1), max_size=3))],
            "learning_rate": draw(st.floats(1e-12, 1e3)),
            **({budget: draw(st.integers(1, 10**6))} if budget else {}),
            "warmup_ratio": draw(parts),
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
    assert differences(asdict(recipe), asdict(again)) == []
    assert again.to_toml() == recipe.to_toml()


@pytest.mark.slow
@settings(deadline=None)
@given(recipes(), recipes())
def test_differences(one, other):
    """They are found exactly where there are any, and name the key with both values."""
    mine, theirs = make_recipe(one), make_recipe(other)
    found = differences(asdict(mine), asdict(theirs))
    assert (found == []) == (mine == theirs)
    if mine.seed != theirs.seed:
        assert f"seed: {mine.seed}, {theirs.seed}" in found


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
