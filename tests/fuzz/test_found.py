"""What fuzzing has found, each with the smallest input that showed it."""

import json
import tomllib

import pytest
import torch
from safetensors.torch import save_file

from fuzz.case import Case
from fuzz.hostile import toml
from fuzz.material import model_folders
from fuzz.run_formats import LATENCY, METRICS, PRUNED
from fuzz.verb_cases import BUILDING, PRUNING, RECIPE
from quoth.cli.screen import say
from quoth.config import dump_toml
from quoth.encoder.shape import Shape
from quoth.encoder.style import Style
from quoth.errors import LONGEST, QuothError
from quoth.experiments.build_data import count_made
from quoth.experiments.build_reader import _seconds
from quoth.hub import find_model
from quoth.model.loading import load
from quoth.prune.hpo import Search, open_study
from quoth.prune.latency import Latency
from quoth.train.cache import _wrong
from quoth.train.distillation import View
from quoth.train.recipe import read_recipe
from quoth.tune import build_tuning
from quoth.windows.settings import window_settings


class TestOneLine:
    @pytest.mark.parametrize("end", ["\n", "\r\n", "\r", "\v", "\f", "\x1c", "\x1e", "\x85", "\u2028", "\u2029"])
    def test_a_name_with_a_line_end(self, end, tmp_path, cli, capsys):
        assert len(str(QuothError(f"a{end}b: wrong")).splitlines()) == 1
        say(f"a{end}b: read")
        assert len(capsys.readouterr().err.splitlines()) == 1
        (tmp_path / "d.jsonl").write_text(json.dumps({"id": f"a{end}b", "question": "Who?"}) + "\n")
        done = cli("score", tmp_path / "d.jsonl", tmp_path / "p.json")
        assert (done.returncode, len(done.stderr.splitlines())) == (2, 1)

    def test_a_value_without_end(self):
        shown = str(QuothError("d.json: " + "x" * 10**6 + "; do this"))
        assert len(shown) < LONGEST
        assert shown.startswith("d.json: xx")
        assert shown.endswith("xx; do this")

    @pytest.mark.parametrize(
        ("arguments", "wanted"),
        [
            (["asks"], "quoth: No such command 'asks'. Did you mean 'ask'?; see quoth --help"),
            (["ask"], "quoth: give a question, -q FILE with questions, or -i to type them; see quoth ask --help"),
            (["ask", "Q", "--no"], "quoth: No such option: --no"),
            (["ask", "Q", "x", "--top", "0"], "quoth: Invalid value for '--top': "),
            (["score", "a", "b", "--na-threshold", "x"], "quoth: Invalid value for '--na-threshold': "),
        ],
    )
    def test_wrong_arguments(self, cli, arguments, wanted):
        done = cli(*arguments)
        assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1)
        assert done.stderr.startswith(wanted)

    def test_no_arguments_show_the_help(self, cli):
        done = cli()
        assert done.returncode == 2
        assert "Usage: " in done.stdout + done.stderr


class TestCulprits:
    """A message names the file, also where a value knows of none."""

    @pytest.mark.parametrize("change", [{"vocab": -1}, {"layers": []}, {"hidden": 2**31}, {"layers": [{"heads": 0}]}])
    def test_of_a_shape(self, change):
        value = json.loads(model_folders()["whole"]["quoth.json"])["shape"]
        with pytest.raises(QuothError, match=r"^m/quoth.json: shape"):
            Shape.from_json({**value, **change}, "m/quoth.json: shape")

    @pytest.mark.parametrize("value", [{"eps": 2.0}, {"dropout": 1.0}, {"eps": "x"}, 3])
    def test_of_a_style(self, value):
        with pytest.raises(QuothError, match=r"^m/quoth.json: "):
            Style.from_json(value, "m/quoth.json")


@pytest.mark.parametrize(
    "change",
    [
        {"attention": ["x"] * 7},
        {"attention": [1.0] * 6},
        {"ffn": [-1.0] * 4},
        {"ffn": None},
        {"table": 3},
        {"table": [[1]]},
        {"table": [["ffn", 3, "x"]]},
        {"tokens": "x"},
        {"other": 1},
    ],
)
def test_a_latency_that_is_none(change):
    with pytest.raises(QuothError, match=r"^latency.json: "):
        Latency.from_json({**LATENCY, **change}, "latency.json")
    with pytest.raises(QuothError, match=r"^latency.json: "):
        Latency.from_json([], "latency.json")


class TestRecipes:
    @pytest.mark.parametrize("value", ["2020-01-01", "10:00:00", "[1, 2020-01-01T00:00:00]", "{a = 2020-01-01}"])
    def test_a_date(self, tmp_path, value):
        (tmp_path / "r.toml").write_text(f'model = "m"\n[data]\ntrain = "t"\n[tuning]\nkind = "full"\nsize = {value}\n')
        with pytest.raises(QuothError, match=r"r\.toml: tuning\.size.* is a date or a time"):
            read_recipe(tmp_path / "r.toml")
        (tmp_path / "r.toml").write_text('model = "m"\n[data]\ntrain = "t"\n')
        with pytest.raises(QuothError, match=r"head\.x.* is a date or a time"):
            read_recipe(tmp_path / "r.toml", [f"head.x={value}"])

    @pytest.mark.parametrize("change", ["tuning.kind=nan", "head.x=[inf]", "head.x={y=-inf}"])
    def test_a_number_that_is_none(self, tmp_path, change):
        """The recipe as written was another one, so that its run could not go on."""
        (tmp_path / "r.toml").write_text('model = "m"\n[data]\ntrain = "t"\n')
        with pytest.raises(QuothError, match=r"r\.toml: \w+\.\w+(\.y)? is (nan|-?inf); a number is wanted"):
            read_recipe(tmp_path / "r.toml", [change])

    @pytest.mark.parametrize("key", ["", " ", "a b", "a.b", "é", '"', "a\nb", "]", "=", "\x7f"])
    def test_any_key_reads_back(self, key):
        table = {"tuning": {key: 1, "more": {key: [1.5]}}, key: 2, f"{key}x": {key: "y"}}
        assert tomllib.loads(dump_toml(table)) == table

    @pytest.mark.parametrize("number", [float("inf"), float("-inf")])
    def test_numbers_that_json_does_not_have(self, number):
        assert tomllib.loads(dump_toml({"a": {"b": number}})) == {"a": {"b": number}}


@pytest.mark.parametrize("key", ["max_length", "step", "max_query_length"])
def test_windows_of_no_size(tmp_path, key):
    value = json.loads(model_folders()["whole"]["quoth.json"])
    value["windows"] = {"max_length": 64, "step": 16, "max_query_length": 16, key: -64}
    Case({**model_folders()["whole"], "quoth.json": json.dumps(value).encode()}).write(tmp_path)
    with pytest.raises(QuothError, match=rf"quoth\.json: windows\.{key} is -64; it must be at least 1"):
        window_settings(find_model(tmp_path))


def test_an_activation_that_nobody_knows(tmp_path):
    value = json.loads(model_folders()["whole"]["quoth.json"])
    value["style"]["activation"] = ""
    for name, data in {**model_folders()["whole"], "quoth.json": json.dumps(value).encode()}.items():
        (tmp_path / name).write_bytes(data)
    with pytest.raises(QuothError, match=r"quoth\.json: activation '' is not supported"):
        load(tmp_path)


@pytest.mark.parametrize("kind", ["sharded", "delta"])
def test_a_name_that_no_file_can_have(tmp_path, kind):
    """`Path.is_file` raises for one of thousands of characters."""
    Case(model_folders()[kind]).write(tmp_path)
    if kind == "sharded":
        (tmp_path / "model.safetensors.index.json").write_text(json.dumps({"weight_map": {"w": "x" * 3000}}))
        with pytest.raises(QuothError, match="x is missing, which"):
            load(tmp_path)
        return
    value = json.loads(model_folders()[kind]["delta/quoth.json"])
    value["base"]["source"] = "x" * 3000
    (tmp_path / "delta/quoth.json").write_text(json.dumps(value))
    with pytest.raises(QuothError, match="File name too long"):
        load(tmp_path / "delta")


def test_seconds_of_a_cache_that_are_no_number(tmp_path):
    (tmp_path / "cache.json").write_text(f'{{"seconds": 1{"0" * 400}}}')
    assert _wrong(tmp_path, {}) == "is damaged"


@pytest.mark.parametrize(
    "line",
    [
        "[" * 100_000 + "]" * 100_000,
        '{"op_code": 2, "worker_id": "w", "study_id": 0, "user_attr": {"space": []}}',
        '{"op_code": 2, "worker_id": "w", "study_id": 0, "user_attr": {"space": {"other": 1}}}',
    ],
)
def test_a_journal_of_another_study(tmp_path, line):
    first = {"op_code": 0, "worker_id": "w", "study_name": "gates", "directions": [2]}
    (tmp_path / "study.log").write_text(f"{json.dumps(first)}\n{line}\n")
    with pytest.raises(QuothError, match=r"study\.log: (is not a study|holds another search)"):
        open_study(tmp_path, Search())


def test_a_plot_into_a_folder(cli, tmp_path, monkeypatch):
    """It was written to `.svg`, a hidden file."""
    monkeypatch.chdir(tmp_path)
    done = cli("inspect", "--plot", ".")
    assert (done.returncode, done.stderr) == (2, "quoth: .: is a folder; name an .svg file to write to\n")
    assert not list(tmp_path.iterdir())


class TestRunsThatWereChanged:
    """Files of a run, changed by hand between two commands."""

    @pytest.mark.parametrize(
        "tensors",
        [
            {},
            {"units": torch.ones(2, 2, dtype=torch.int64)},
            {"units": torch.arange(9)},
            {"units": torch.tensor([-1])},
            {"units": torch.ones(1)},
            {"units": torch.arange(0)},
            {"units": torch.arange(1), "more": torch.ones(1)},
        ],
    )
    def test_the_view_of_a_cut_model(self, tmp_path, tensors):
        save_file(tensors, tmp_path / "v")
        with pytest.raises(QuothError, match="units must be numbers below 8"):
            View.read(tmp_path / "v", 8)
        (tmp_path / "v").write_bytes(b"x")
        with pytest.raises(QuothError, match="missing or damaged"):
            View.read(tmp_path / "v", 8)

    @pytest.mark.parametrize("text", ["[]", '{"cut": "x"}', '{"cut": NaN}', '{"cut": -1}', '{"cut": true}'])
    def test_the_seconds_of_a_build(self, tmp_path, text):
        (tmp_path / "seconds.json").write_text(text)
        with pytest.raises(QuothError, match=r"seconds\.json: "):
            _seconds(tmp_path)

    @pytest.mark.parametrize("text", ["{}", '{"data": [3]}', '{"data": [{"paragraphs": [{"qas": [{}]}]}]}', "[]"])
    def test_the_made_questions_of_a_build(self, tmp_path, text):
        (tmp_path / "negatives.json").write_text(text)
        with pytest.raises(QuothError, match=r"negatives\.json: "):
            count_made(tmp_path / "negatives.json")

    @pytest.mark.parametrize("verb", ["train", "prune", "build"])
    def test_metrics_that_cannot_be_shown(self, tmp_path, cli, monkeypatch, verb):
        base = {"train": RECIPE, "prune": PRUNING, "build": BUILDING}[verb]
        kept = {
            "train": {**METRICS, "quality": {"f1": "x"}},
            "prune": {**PRUNED, "hpo": {"by": "f1"}},
            "build": {"recipe": base, "stages": 3},
        }[verb]
        name = "build.json" if verb == "build" else "metrics.json"
        files = {"r.toml": toml(base), "run/recipe.toml": toml(base), f"run/{name}": json.dumps(kept)}
        Case({key: text.encode() for key, text in {**files, "run/teacher/recipe.toml": ""}.items()}).write(tmp_path)
        monkeypatch.chdir(tmp_path)
        done = cli(verb, "r.toml", "--out", "run")
        assert (done.returncode, done.stdout) == (2, "")
        assert done.stderr.startswith(f"quoth: run/{name}: is not what Quoth writes there")


class TestTunings:
    """A rank of 2⁶³ in delta.json was a TypeError of torch."""

    @pytest.mark.parametrize("size", [2**63, 10**30, 16_385])
    def test_widths_are_bounded(self, size):
        for table in ({"kind": "lora", "rank": size}, {"kind": "adapters", "size": size}):
            with pytest.raises(QuothError, match=r"tuning: (rank|size) is .*; it must be at most 16,384"):
                build_tuning(table)
