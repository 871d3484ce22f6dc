"""The package as a whole: what it imports, what its command line offers, what its files promise."""

import subprocess
import sys
from pathlib import Path

import quoth

ROOT = Path(__file__).parents[1]


def python(code, *arguments):
    command = [sys.executable, "-c", code, *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)


def test_plain_quoth_never_imports_torch():
    code = """
import sys
for name in ("torch", "transformers", "accelerate", "datasets"):
    sys.modules[name] = None            # importing it is an ImportError from here on
import quoth.cli, quoth.data, quoth.augment, quoth.windows, quoth.runtime, quoth.search
import quoth.model, quoth.answer, quoth.score, quoth.encoder
from quoth import Reader
"""
    result = python(code)
    assert result.returncode == 0, result.stderr


def test_without_torch_a_model_is_refused_in_one_line(span_model):
    code = "import sys; sys.modules['torch'] = None; from quoth.cli import main; main()"
    result = python(code, "ask", "Who?", str(ROOT / "README.md"), "--model", str(span_model))
    assert result.returncode == 2
    assert result.stderr.strip().endswith("to run it Quoth needs torch; pip install 'quoth[train]'")


def test_importing_quoth_is_light():
    code = "import sys, quoth; print(sorted(m for m in ('numpy', 'tokenizers', 'typer', 'torch') if m in sys.modules))"
    assert python(code).stdout.strip() == "[]"


def test_training_needs_no_parser_of_documents():
    """A machine that trains, such as a GPU that is lent, may lack them."""
    lacking = ("selectolax", "pypdfium2", "platformdirs")
    code = f"import sys; sys.modules.update(dict.fromkeys({lacking})); import quoth.experiments.build_reader, quoth.cli"
    result = python(code)
    assert result.returncode == 0, result.stderr


def test_version_and_verbs():
    result = subprocess.run([sys.executable, "-m", "quoth", "--version"], capture_output=True, text=True, check=True)
    assert result.stdout == f"quoth {quoth.__version__}\n"
    shown = subprocess.run([sys.executable, "-m", "quoth", "--help"], capture_output=True, text=True, check=True).stdout
    for verb in ("ask", "answer", "score", "evaluate", "inspect"):
        assert verb in shown


def test_nothing_names_a_place_on_one_machine():
    """No source, recipe or document names a folder that only one machine has."""
    for path in [*ROOT.glob("src/**/*.py"), *ROOT.glob("docs/*.md"), *ROOT.glob("examples/*.py"), ROOT / "README.md"]:
        text = path.read_text(encoding="utf-8")
        for place in ("../shared", "/work" + "/", "/tmp" + "/", "/root" + "/"):
            assert place not in text, f"{path} names {place}"


def test_local_links_of_the_documents_exist():
    import re

    for page in [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *ROOT.glob("docs/*.md")]:
        for link in re.findall(r"\]\(([^)#:]+)\)", page.read_text(encoding="utf-8")):
            assert (page.parent / link).exists(), f"{page.name} links to {link}"


def test_an_error_of_the_system_is_one_line():
    """A full disk or a forbidden folder: no traceback, code 2."""
    code = """
import quoth.cli, errno
def full(**_): raise OSError(errno.ENOSPC, "No space left on device", "out.json")
quoth.cli.app = full
quoth.cli.main()
"""
    result = python(code)
    assert (result.returncode, result.stderr) == (2, "quoth: out.json: No space left on device\n")
