"""What fuzzing has found, each with the smallest input that showed it."""

import json

import pytest

from fuzz.material import model_folders
from fuzz.run_formats import LATENCY
from quoth.cli.screen import say
from quoth.encoder.shape import Shape
from quoth.encoder.style import Style
from quoth.errors import LONGEST, QuothError
from quoth.prune.latency import Latency


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
            (["ask"], "quoth: Missing argument 'question'; see quoth ask --help"),
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
