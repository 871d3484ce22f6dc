"""`quoth ask` and the texts that people have: empty, binary, odd, long, several, none at all."""

import io
import json
import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from answer.planted import planted_reader
from quoth.answer import Reader
from quoth.answer.abstention import Abstention
from quoth.encoder.shape import LayerShape
from support.exporting import make_folder, shape, with_tokenizer

FILLER = "The harbour was quiet, and nobody spoke of the weather.\n\n"
TEXT = "In spring they kept a heron there.\n"


@pytest.fixture
def ask(cli, minilm, monkeypatch):
    """`quoth ask`, with a reader that answers "heron" where the texts have one."""

    def run(*arguments, stdin=None, null=0.0, abstention=None):
        monkeypatch.setattr(Reader, "load", lambda *_, **__: planted_reader(minilm, "heron", null, abstention))
        if stdin is not None:
            monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=io.BytesIO(stdin), isatty=lambda: False))
        return cli("ask", "Which bird was kept there?", *arguments)

    return run


def write(folder, **files):
    """Files by name (`a_txt` is a.txt); their paths."""
    paths = []
    for name, content in files.items():
        path = folder / name.replace("_", ".")
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        paths.append(path)
    return paths


NO_TEXT = [
    (b"", "is empty"),
    (b" \r\n\t\n", "is empty"),
    (b"\xef\xbb\xbf", "is empty"),
    (b"\x7fELF\x02\x01\0\0heron", "is not a text file (byte 6 is zero)"),
    (FILLER.encode() * 2000 + b"heron\0", f"is not a text file (byte {2000 * len(FILLER) + 5} is zero)"),
    ("A heron.".encode("utf-16"), "is UTF-16"),
    ("A heron and caf\u00e9.".encode("latin-1"), "is not UTF-8 text (byte 15)"),
    (b"\x89PNG\r\n\x1a\n heron", "is not UTF-8 text (byte 0)"),
]


class TestNoText:
    @pytest.mark.parametrize(("content", "why"), NO_TEXT)
    def test_alone_it_is_an_error(self, ask, tmp_path, content, why):
        (path,) = write(tmp_path, a_txt=content)
        result = ask(path)
        assert (result.returncode, result.stdout) == (2, "")
        assert result.stderr.startswith(f"quoth: {path}: {why}")
        assert result.stderr.endswith(": there is no text to answer from\n")
        assert result.stderr.count("\n") == 1

    @pytest.mark.parametrize(("content", "why"), NO_TEXT)
    def test_among_others_it_is_left_out(self, ask, tmp_path, content, why):
        bad, good = write(tmp_path, a_txt=content, b_txt=TEXT)
        for order in ((bad, good), (good, bad), (tmp_path,)):
            result = ask(*order, "--json")
            assert result.returncode == 0
            assert json.loads(result.stdout)["answers"][0]["file"] == str(good)
            assert result.stderr.startswith(f"quoth: {bad}: {why}")
            assert result.stderr.count("\n") == 1

    def test_all_of_several(self, ask, tmp_path):
        paths = write(tmp_path, a_txt=b"", b_txt=b"\0", c_txt=b"\xff")
        result = ask(*paths)
        assert result.returncode == 2
        assert result.stderr == f"quoth: {paths[0]}: is empty (and 2 more like it): there is no text to answer from\n"

    def test_an_empty_pipe(self, ask):
        result = ask(stdin=b"")
        assert result.returncode == 2
        assert result.stderr == "quoth: standard input: is empty: there is no text to answer from\n"

    def test_what_is_not_there_is_an_error_whatever_else_is(self, ask, tmp_path):
        (good,) = write(tmp_path, a_txt=TEXT)
        (tmp_path / "hollow").mkdir()
        for name, why in (("none.txt", "no such file or folder"), ("hollow", "the folder has no .txt, .md, .rst")):
            result = ask(good, tmp_path / name)
            assert (result.returncode, result.stdout) == (2, "")
            assert result.stderr.startswith(f"quoth: {tmp_path / name}: {why}")

    def test_nothing_to_read(self, ask, monkeypatch):
        for stdin in (SimpleNamespace(isatty=lambda: True), None):
            monkeypatch.setattr(sys, "stdin", stdin)
            result = ask()
            assert result.returncode == 2
            assert "name the texts to answer from" in result.stderr
        assert "standard input: is closed" in ask("-").stderr


@pytest.mark.parametrize(
    "raw",
    [
        b"\xef\xbb\xbfOne.\r\nTwo.\r\n\r\nA heron.\r\n",
        b"One.\rTwo.\r\rA heron.\r",
        "Größe \U0001f600.\nZwei.\n\nA heron.".encode(),
    ],
)
def test_places_are_those_of_the_file(ask, tmp_path, raw):
    """BOM aside, every byte counts: characters of the decoded file, lines by any line end."""
    (path,) = write(tmp_path, a_txt=raw)
    found = json.loads(ask(path, "--json").stdout)["answers"][0]
    text = raw.decode("utf-8-sig")
    assert (found["start"], found["end"]) == (text.index("heron"), text.index("heron") + 5)
    assert text.splitlines()[found["line"] - 1] == found["sentence"] == "A heron."
    assert f"{path}:4, characters {found['start']}–{found['end']}, score" in ask(path).stdout


def test_several_files(ask, tmp_path):
    one, two, three = write(tmp_path, a_txt=FILLER, b_md=TEXT, c_txt=FILLER + "Another heron.")
    found = json.loads(ask(tmp_path, one, "--top", 5, "--json").stdout)
    assert [answer["file"] for answer in found["answers"][:2]] == [str(two), str(three)]
    assert [answer["start"] for answer in found["answers"][:2]] == [TEXT.index("heron"), len(FILLER) + 8]
    assert found["answer"] == "heron"
    assert found["score"] == found["answers"][0]["score"] > 0.99
    shown = ask(one, three).stdout
    assert f"{three}:3, characters" in shown


@pytest.mark.parametrize("arguments", [(), ("-",), ("-", "-")])
def test_standard_input(ask, arguments):
    result = ask(*arguments, stdin=b"\xef\xbb\xbf" + TEXT.encode())
    assert result.returncode == 0, result.stderr
    assert "standard input:1, characters 22–27" in result.stdout
    assert result.stderr == "", "and it is read once"


def test_a_real_pipe(span_model):
    command = [sys.executable, "-m", "quoth", "ask", "Which bird?", "--model", str(span_model), "--min-score", "0"]
    done = subprocess.run([*command, "--json"], input=TEXT.encode(), capture_output=True, check=True, timeout=120)
    (found,) = json.loads(done.stdout)["answers"]
    assert found["file"] == "-"
    assert TEXT[found["start"] : found["end"]] == found["answer"]


class TestNoAnswer:
    def test_is_said_plainly_with_what_was_rejected(self, ask, tmp_path):
        (path,) = write(tmp_path, a_txt=TEXT)
        result = ask(path, null=11.0)
        assert (result.returncode, result.stderr) == (0, "")
        assert result.stdout.splitlines() == [
            "No answer in these texts (score 0.95).",
            "Rejected: heron",
            "  In spring they kept a **heron** there.",
            f"  {path}:1, characters 22–27, score 0.05",
            "  --min-score 0.04 gives this one, --min-score 0 always gives one",
        ]

    def test_is_null_with_its_score_and_what_was_rejected(self, ask, tmp_path):
        (path,) = write(tmp_path, a_txt=TEXT)
        result = ask(path, "--json", "--top", 3, null=11.0, abstention=Abstention(1.0, 3.0))
        assert result.returncode == 0
        found = json.loads(result.stdout)
        assert found.pop("score") == pytest.approx(0.7310586)
        rejected = found.pop("rejected")
        assert rejected.pop("score") == pytest.approx(1 - 0.7310586)
        assert found == {
            "schema": 1,
            "form": "top",
            "question": "Which bird was kept there?",
            "answer": None,
            "no_answer": True,
            "null_minus_best": 3.0,
            "min_score": None,
            "read": 1,
            "passages": 1,
            "answers": [],
        }
        answered = json.loads(ask(path, "--json", "--min-score", 0.04, null=11.0).stdout)
        assert answered["rejected"] is None
        (answer,) = answered["answers"]
        del answer["score"]
        assert rejected == answer

    @pytest.mark.parametrize(("null", "told"), [(11.0, 0.04), (9.0, 0.26), (8.2, 0.45), (12.5, 0.01)])
    def test_the_score_that_is_told_gives_the_answer(self, ask, tmp_path, null, told):
        (path,) = write(tmp_path, a_txt=TEXT)
        assert f"  --min-score {told:.2f} gives this one" in ask(path, null=null).stdout
        for least, answered in ((told, True), (told + 0.01, False), (0, True), (1, False)):
            found = json.loads(ask(path, "--json", "--min-score", least, null=null).stdout)
            assert (found["answer"] == "heron") == answered

    def test_without_any_span_nothing_was_rejected(self, ask, tmp_path):
        (path,) = write(tmp_path, a_txt="\u200b")
        result = ask(path)
        assert (result.stdout, result.stderr) == ("No answer in these texts (score 1.00).\n", "")
        found = json.loads(ask(path, "--json", "--min-score", "0").stdout)
        assert (found["answer"], found["rejected"], found["min_score"]) == (None, None, 0)

    def test_the_score_given_goes_before_the_threshold_stored(self, ask, tmp_path):
        """Without a calibration a score is a probability by the temperature and bias of the threshold."""
        (path,) = write(tmp_path, a_txt=TEXT)
        stored = Abstention(5.0, 3.0)  # null - best is 3: the answer has 0.27
        for arguments, answered in (((), True), (("--min-score", "0.28"), False), (("--min-score", "0.26"), True)):
            found = json.loads(ask(path, "--json", *arguments, null=11.0, abstention=stored).stdout)
            assert found["no_answer"] == (not answered)

    @pytest.mark.parametrize("score", ["nan", "-0.1", "1.5", "inf"])
    def test_a_score_is_a_probability(self, ask, tmp_path, score):
        (path,) = write(tmp_path, a_txt=TEXT)
        result = ask(path, "--min-score", score)
        assert (result.returncode, result.stdout) == (2, "")
        told = f"the least score of an answer is {float(score)}; it is a probability, from 0 to 1"
        assert result.stderr == f"quoth: {told}\n"


class TestLong:
    @pytest.fixture(scope="class")
    @classmethod
    def place(cls, tmp_path_factory, minilm):
        """20 MB of text with one heron in it, and a small exported model."""
        from quoth.export.export import export

        place = tmp_path_factory.mktemp("long")
        half = FILLER * (10_000_000 // len(FILLER))
        (place / "long.txt").write_text(half + TEXT + half, encoding="utf-8", newline="")
        sizes = {"hidden": 32, "embedding": 32, "vocab": 30522, "positions": 384}
        make_folder(place / "m", shape((LayerShape(2, 16, 16, 64),), **sizes), {"kind": "span"})
        export(with_tokenizer(place / "m", minilm), place / "onnx")
        return place

    def test_the_needle(self, ask, place):
        path = place / "long.txt"
        result = ask(path, "--json")
        assert result.returncode == 0
        found = json.loads(result.stdout)
        text = path.read_text(encoding="utf-8")
        assert found["answers"][0]["start"] == text.index("heron")
        assert found["answers"][0]["line"] == text[: text.index("heron")].count("\n") + 1
        assert found["read"] == 1 < found["passages"], "one passage has words of the question"
        told = f"read 1 of {found['passages']:,} passages, those most similar to the question; --read 0 reads all"
        assert (result.stderr, ask(path, null=11.0).stderr) == ("", f"quoth: {told}\n"), "where it matters"

    @pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="peak memory is asked of Linux")
    def test_memory_is_bounded_and_torch_is_not_touched(self, place):
        """Text and bytes are 40 MB; the limit is enough for libraries and a model, not for the tokens of 20 MB."""
        code = """
import sys
for name in ("torch", "transformers", "accelerate", "onnx"):
    sys.modules[name] = None
from quoth.cli import main
try:
    main()
finally:  # not from getrusage: Linux counts the memory of the process that started this one
    print(next(line.split()[1] for line in open("/proc/self/status") if line.startswith("VmHWM")), file=sys.stderr)
"""
        words = ["ask", "Which bird was kept there?", str(place / "long.txt"), "--model", str(place / "onnx"), "--json"]
        done = subprocess.run(
            [sys.executable, "-c", code, *words, "--min-score", "0"],
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
            env={**os.environ, "OMP_NUM_THREADS": "1"},
        )
        assert done.returncode == 0, done.stderr
        (found,) = json.loads(done.stdout)["answers"]
        text = (place / "long.txt").read_text(encoding="utf-8")
        assert text[found["start"] : found["end"]] == found["answer"]
        assert int(done.stderr.splitlines()[-1]) < 300_000, "kilobytes"

    def test_a_text_without_any_break(self, ask, tmp_path):
        (path,) = write(tmp_path, a_txt="x" * 300_000 + " kept heron there " + "y" * 300_000)
        found = json.loads(ask(path, "--json", "--min-score", "0").stdout)
        assert (found["answer"], found["answers"][0]["start"]) == ("heron", 300_006)
        assert len(found["answers"][0]["sentence"]) <= 5 + 2 * 500
