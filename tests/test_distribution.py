"""What is published: the sdist holds all that it takes to build, test and read the docs, the wheel only the package."""

import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

from train.conftest import material as material

ROOT = Path(__file__).resolve().parents[1]
PUBLISHED = ("src", "tests", "docs", "deploy", "examples", "benchmarks")
PLAIN = (
    "CHANGELOG.md",
    "CONTRIBUTING.md",
    "LICENSE",
    "MANIFEST.in",
    "Makefile",
    "README.md",
    "SECURITY.md",
    "constraints.txt",
    "pyproject.toml",
)
LEFT_OUT = shutil.ignore_patterns(".*", "__pycache__", "*.egg-info", "*.pyc")
MADE = r"PKG-INFO|setup\.cfg|src/quoth\.egg-info/.+"  # by setuptools

pytestmark = pytest.mark.slow


def build(kind, place, out):
    """By the build backend itself, in the environment of the tests: nothing is fetched."""
    code = f"from setuptools import build_meta; build_meta.build_{kind}({str(out)!r})"
    subprocess.run([sys.executable, "-c", code], cwd=place, check=True, capture_output=True, timeout=600)
    (made,) = out.iterdir()
    return made


def files(folder):
    return {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()}


@pytest.fixture(scope="module")
def source(tmp_path_factory):
    """The project as git has it, with some stray files in it."""
    place = tmp_path_factory.mktemp("source")
    for name in PUBLISHED:
        shutil.copytree(ROOT / name, place / name, ignore=LEFT_OUT)
    for name in PLAIN:
        shutil.copyfile(ROOT / name, place / name)
    return place


@pytest.fixture(scope="module")
def unpacked(source, tmp_path_factory):
    """The sdist, unpacked."""
    wanted = files(source)
    for stray in ("notes.txt", "src/quoth/__pycache__/x.pyc", "tests/.cache", "dist/old.whl", ".venv/bin/python"):
        (source / stray).parent.mkdir(parents=True, exist_ok=True)
        (source / stray).write_text("stray")
    made = build("sdist", source, tmp_path_factory.mktemp("sdist"))
    place = tmp_path_factory.mktemp("unpacked")
    with tarfile.open(made) as archive:
        archive.extractall(place, filter="data")
    (folder,) = place.iterdir()
    assert re.fullmatch(r"quoth-\d+\.\d+\.\d+\S*", folder.name)
    return folder, wanted


def test_the_sdist_is_complete(unpacked):
    folder, wanted = unpacked
    found = files(folder)
    assert not wanted - found
    assert all(re.fullmatch(MADE, name) for name in found - wanted), found - wanted


def test_its_tests_run_from_there(unpacked):
    folder, _ = unpacked
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "tests/test_docs.py", "tests/search"]
    done = subprocess.run(
        command, cwd=folder, env=environment(folder / "src"), capture_output=True, text=True, timeout=600
    )
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-1000:]
    collected = [*command[:4], "--collect-only", "tests"]
    done = subprocess.run(
        collected, cwd=folder, env=environment(folder / "src"), capture_output=True, text=True, timeout=600
    )
    assert done.returncode == 0, done.stdout[-3000:]


WHEEL = (
    r"quoth/([a-z_]+/)*[a-z_0-9]+\.py",
    r"quoth/py\.typed",
    r"quoth/embedded/(model\.onnx|model\.onnx\.data|quoth\.json|tokenizer\.json|MODEL_CARD\.md)",
    r"quoth/recipes/([a-z]+/)?[a-z0-9_-]+\.toml",
    r"quoth/experiments/(papers/)?[a-z]+\.toml",
    r"quoth/answer/ask\.schema\.json",
    r"quoth/report/comparison\.(css|js)",
    r"quoth/serve/page/[a-z]+\.(html|js|css|svg)",
    r"quoth-[^/]+\.dist-info/(METADATA|WHEEL|RECORD|top_level\.txt|entry_points\.txt|licenses/LICENSE)",
)


@pytest.fixture(scope="module")
def wheel(unpacked, tmp_path_factory):
    """Built from the sdist, as pip does where there is no wheel."""
    return build("wheel", unpacked[0], tmp_path_factory.mktemp("wheel"))


def test_the_wheel_holds_the_package_and_nothing_else(unpacked, wheel):
    assert re.fullmatch(r"quoth-[^-]+-py3-none-any\.whl", wheel.name)
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
        sizes = {info.filename: info.file_size for info in archive.infolist()}
    strange = [name for name in names if not any(re.fullmatch(pattern, name) for pattern in WHEEL)]
    assert not strange
    package = {f"quoth/{name}" for name in files(unpacked[0] / "src/quoth")}
    assert {name for name in names if name.startswith("quoth/")} == package
    for name in ("quoth/embedded/model.onnx", "quoth/embedded/model.onnx.data", "quoth/recipes/hulburd/l6.toml"):
        assert sizes[name] == (ROOT / "src" / name).stat().st_size
    for folder in ("recipes", "experiments"):
        found = [name for name in names if name.startswith(f"quoth/{folder}/") and name.endswith(".toml")]
        assert len(found) == len(list((ROOT / "src/quoth" / folder).rglob("*.toml"))) > 0


def test_the_wheel_answers(wheel, tmp_path):
    """Unpacked it is a package: pip does no more with it."""
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(tmp_path / "site")
        entry = next(name for name in archive.namelist() if name.endswith("entry_points.txt"))
        assert "quoth = quoth.__main__:main" in archive.read(entry).decode()
    command = [sys.executable, "-m", "quoth", "ask", "Who did it?", "-", "--min-score", "0"]
    done = subprocess.run(
        command,
        input=b"Bob did it.",
        cwd=tmp_path,
        env=environment(tmp_path / "site"),
        capture_output=True,
        timeout=120,
    )
    assert (done.returncode, done.stdout[:3]) == (0, b"Bob"), done.stderr
    names = subprocess.run(
        [sys.executable, "-c", "import quoth, quoth.recipes; print(quoth.__file__, len(quoth.recipes.recipe_names()))"],
        cwd=tmp_path, env=environment(tmp_path / "site"), capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert names.stdout.startswith(str(tmp_path / "site"))
    assert int(names.stdout.split()[-1]) > 10


def test_the_wheel_reproduces_a_table(wheel, material, tmp_path):
    """With the tables of the papers and their recipes from the package; and the report of what it has stored."""
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(tmp_path / "site")
    command = [sys.executable, "-m", "quoth", "reproduce"]
    short = ("data.max_length=64", "data.step=24", "data.max_query_length=24", "optimisation.batch_size=6")
    given = ("-m", material.model, "--data", material.train, "--evaluate", material.dev, "--device", "cpu")
    rest = ("--rows", "L0", "--epochs", "1", "--out", "out", "--json")
    settings = {"cwd": tmp_path, "env": environment(tmp_path / "site"), "capture_output": True, "timeout": 300}
    done = subprocess.run([*command, "hulburd/table1", *short, *map(str, (*given, *rest))], check=False, **settings)
    assert done.returncode == 0, done.stderr
    (row,) = json.loads(done.stdout)["rows"]
    assert (row["paper"]["f1"], row["seeds"]) == (53.1, [0])
    done = subprocess.run([*command, "--report", "p.html", "--runs", "out"], check=False, **settings)
    assert done.returncode == 0, done.stderr
    assert "hulburd/table1" in (tmp_path / "p.html").read_text()


def environment(source):
    return {**os.environ, "PYTHONPATH": str(source)}
