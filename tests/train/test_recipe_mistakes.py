"""Recipes that are wrong: one line that names the key, and what to do."""

import math
from dataclasses import asdict

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from quoth.errors import QuothError
from quoth.train.recipe import make_recipe, read_recipe
from train.material import table, train
from train.recipe_material import EVERY_KEY, LEAST, text


def with_(section, key, value):
    made = {"model": "m", "data": {"train": "t.json"}}
    if section:
        made.setdefault(section, {})[key] = value
    else:
        made[key] = value
    return made


RENAMED_HERE = [
    ("rate", "learning_rate"),
    ("decay", "weight_decay"),
    ("clip", "max_grad_norm"),
    ("windows", "batch_size"),
    ("tokens", "batch_tokens"),
    ("warmup", "warmup_ratio"),
    ("accumulate", "gradient_accumulation_steps"),
    ("beta1", "adam_beta1"),
    ("beta2", "adam_beta2"),
    ("epsilon", "adam_epsilon"),
    ("cache", "cache_gb"),
]


class TestMistakes:
    @pytest.mark.parametrize(
        ("wrong", "nearest"),
        [
            (("", "modle", "x"), "unknown key modle; did you mean model?"),
            (("", "optimization", {}), "unknown key optimization; did you mean optimisation?"),
            (
                ("optimisation", "learningrate", 1),
                "unknown key optimisation.learningrate; did you mean optimisation.learning_rate?",
            ),
            (
                ("optimisation", "warm_up", 0.1),
                "unknown key optimisation.warm_up; did you mean optimisation.warmup_ratio?",
            ),
            (("data", "maxlength", 1), "unknown key data.maxlength; did you mean data.max_length?"),
            (("evaluation", "snapshot", 1), "unknown key evaluation.snapshot; did you mean evaluation.snapshots?"),
            (("checkpoints", "secs", 1), "unknown key checkpoints.secs; did you mean checkpoints.seconds?"),
            (("frozen", "head", {}), "unknown key frozen.head; did you mean frozen.heads?"),
            (
                ("frozen", "heads", {"lp": {"head": "linear", "learningrate": 1}}),
                "unknown key frozen.heads.lp.learningrate; did you mean frozen.heads.lp.learning_rate?",
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
        ("section", "old", "new"),
        [
            *(("optimisation", *pair) for pair in RENAMED_HERE if pair[0] != "cache"),
            *(("frozen", *pair) for pair in RENAMED_HERE if pair[0] != "accumulate"),
        ],
    )
    def test_a_key_of_version_0_1_names_the_new_one(self, section, old, new):
        with pytest.raises(QuothError) as raised:
            make_recipe(with_(section, old, 1))
        assert str(raised.value) == f"recipe: unknown key {section}.{old}; it is called {section}.{new} now"

    @pytest.mark.parametrize(
        ("word", "line"),
        [
            ("optimisation.rate=1e-4", "unknown key optimisation.rate; it is called optimisation.learning_rate now"),
            (
                "frozen.heads.lp.clip=1",
                "unknown key frozen.heads.lp.clip; it is called frozen.heads.lp.max_grad_norm now",
            ),
            ("data.question_limit=48", "unknown key data.question_limit; did you mean data.max_query_length?"),
            ("rate=1", "unknown key rate; did you mean"),  # which was no key there
        ],
    )
    def test_so_does_an_override(self, tmp_path, word, line):
        path = text(tmp_path / "r.toml", EVERY_KEY)
        with pytest.raises(QuothError) as raised:
            read_recipe(path, [word])
        assert str(raised.value).startswith(f"{path}: {line}" if "heads" not in word else f"recipe: {line}")

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
            ("optimisation", "learning_rate", -1e-4, "optimisation.learning_rate is -0.0001; it must be above 0"),
            ("optimisation", "learning_rate", "fast", "optimisation.learning_rate is 'fast'; a number is wanted"),
            ("optimisation", "learning_rate", True, "optimisation.learning_rate is True; a number is wanted"),
            ("optimisation", "batch_tokens", 0, "optimisation.batch_tokens is 0; it must be at least 1"),
            ("optimisation", "batch_size", -2, "optimisation.batch_size is -2; it must be at least 1"),
            ("optimisation", "batch_size", 2.0, "optimisation.batch_size is 2.0; a whole number is wanted"),
            (
                "optimisation",
                "gradient_accumulation_steps",
                0,
                "optimisation.gradient_accumulation_steps is 0; it must be at least 1",
            ),
            ("optimisation", "schedule", "step", "'step'; one of linear, constant, cosine is wanted"),
            ("optimisation", "restarts", 1, "optimisation.restarts is 1; it must be 0 but for cosine"),
            ("optimisation", "warmup_ratio", 1.0, "optimisation.warmup_ratio is 1.0"),
            ("optimisation", "weight_decay", -0.1, "optimisation.weight_decay is -0.1; it must be not negative"),
            ("optimisation", "max_grad_norm", -1, "optimisation.max_grad_norm is -1.0; it must be not negative"),
            ("optimisation", "adam_beta1", 1.0, "optimisation.adam_beta1 is 1.0; it must be at least 0, below 1"),
            ("optimisation", "adam_beta2", -0.5, "optimisation.adam_beta2 is -0.5; it must be at least 0, below 1"),
            ("optimisation", "adam_epsilon", -1.0, "optimisation.adam_epsilon is -1.0; it must be not negative"),
            ("optimisation", "dropout", 1.0, "optimisation.dropout is 1.0; it must be at least 0, below 1"),
            ("optimisation", "precision", "fp16", "'fp16'; one of auto, fp32, bf16 is wanted"),
            ("optimisation", "compile", 1, "optimisation.compile is 1; one of graphs, off is wanted"),
            ("", "head", 3, "head is 3; it must be a line or a table of a head"),
            (
                "data",
                "task",
                "glu",
                "data.task 'glu' is unknown; did you mean glue? known: ",
            ),
            ("frozen", "heads", ["linear"], "frozen.heads is ['linear']; a table is wanted"),
            ("frozen", "heads", {"lp": 3}, "frozen.heads.lp is 3; it must be a line or a table of a head"),
            ("frozen", "heads", {"lp": {"head": ["x"]}}, "frozen.heads.lp is ['x']; it must be a line"),
            (
                "frozen",
                "heads",
                {"lp": {"head": "x", "learning_rate": "fast"}},
                "frozen.heads.lp.learning_rate is 'fast'; a number",
            ),
            (
                "frozen",
                "heads",
                {"lp": {"head": "x", "learning_rate": 0}},
                "frozen.heads.lp.learning_rate is 0.0; it must be above 0",
            ),
            ("frozen", "heads", {"lp": {"head": "x", "restarts": 1}}, "frozen.heads.lp.restarts is 1; it must be 0"),
            ("frozen", "heads", {"lp": {"head": "x", "warmup_ratio": 1}}, "frozen.heads.lp.warmup_ratio is 1.0"),
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
            ("frozen", "cache_gb", -1, "frozen.cache_gb is -1.0; it must be not negative"),
            (
                "frozen",
                "cache_gb",
                4,
                "frozen.cache_gb is 4.0; it must be 0 with data.task 'span', which reads every token",
            ),
            ("frozen", "heads", {"cache": "linear"}, "a head in frozen.heads is 'cache'"),
            ("frozen", "epochs", 0, "frozen.epochs is 0.0; it must be above 0"),
            ("frozen", "learning_rate", 0, "frozen.learning_rate is 0.0; it must be above 0"),
            ("frozen", "batch_size", 0, "frozen.batch_size is 0; it must be at least 1"),
            ("frozen", "restarts", 1, "frozen.restarts is 1; it must be 0 but for cosine"),
            ("frozen", "max_grad_norm", -1, "frozen.max_grad_norm is -1.0; it must be not negative"),
            ("evaluation", "at", [0.5, 4.0], "evaluation.at is 4.0; it must be at least 0, at most 3 epochs"),
            ("evaluation", "snapshots", [0.0], "evaluation.snapshots is 0.0; it must be above 0"),
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
    def test_batch_tokens_or_batch_size(self, section):
        with pytest.raises(QuothError, match=f"{section}.batch_tokens is 4096.*not both"):
            make_recipe({**LEAST, section: {"batch_tokens": 4096, "batch_size": 8}})

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
            (EVERY_KEY, ["optimisation.learning_rate.x=1"], "rate is not a table"),
            (EVERY_KEY, ["frozen.heads.lp.rte=1e-4"], "unknown key frozen.heads.lp.rte; did you mean frozen.heads.lp."),
            (
                EVERY_KEY,
                ["frozen.heads.lp.learning_rate.x=1"],
                "frozen.heads.lp.learning_rate is {'x': 1}; a number is wanted",
            ),
            (
                EVERY_KEY,
                ["optimisation.rat=1"],
                "unknown key optimisation.rat; did you mean optimisation.learning_rate?",
            ),
            (EVERY_KEY, ["rate=1e-4"], "unknown key rate; did you mean"),
            (EVERY_KEY, ["=1"], "unknown key ;"),
            ('model = "m"\nfrozen = 3', ["frozen.heads.lp.learning_rate=1"], "frozen is not a table"),
            ('model = "m"\nfrozen.heads = 3', ["frozen.heads.lp.learning_rate=1"], "heads is not a table"),
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
            ({"data": {"max_length": 20}}, "has no space for the passage"),
            ({"data": {"step": 0}}, "step is 0; it must be at least 1"),
            ({"tuning": {"kind": "frozen"}}, "tuning: kind 'frozen' is unknown"),
            ({"tuning": {"kind": "full", "size": 8}}, "tuning: full has no settings; leave out size"),
            ({"head": {"kind": "spam"}}, "head: kind 'spam' is unknown"),
            ({"head": {"kind": "span", "width": 8}}, "head: span has no settings; leave out width"),
            ({"head": {"kind": "class", "labels": 2}}, "head gives classes, but data.task = 'span' wants spans"),
            (
                {"optimisation": {"batch_size": 1, "gradient_accumulation_steps": 2}},
                "too few for 1 process(es) in 2 part(s)",
            ),
            ({"optimisation": {"batch_tokens": 32}}, "more than the budget of 32"),
        ],
    )
    def test_then_the_corrected_recipe_runs(self, sound, tmp_path, wrong, culprit):
        wrong = {
            key: {**sound.get(key, {}), **value} if isinstance(value, dict) else value for key, value in wrong.items()
        }
        if "batch_tokens" in wrong.get("optimisation", ()):
            del wrong["optimisation"]["batch_size"]
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
        (tmp_path / ".recipe.toml.k3x_9ab2.part").write_text("mod")
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
            ("optimisation.rte=1", "did you mean optimisation.learning_rate?"),
            ("optimisation.learning_rate=-1", "optimisation.learning_rate is -1.0; it must be above 0"),
            ("model=/no/such/model", "/no/such/model: no such file or folder"),
            ("optimisation.gradient_accumulation_steps=20", "too few for 1 process(es) in 20 part(s)"),
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
