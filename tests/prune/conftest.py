import sys
from types import SimpleNamespace

import pytest
import torch

from laconic.cli import main


@pytest.fixture(scope="module", autouse=True)
def one_thread():
    """Tiny models gain nothing from more."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture
def cli(capsys, monkeypatch):
    """The command line inside this process, on the CPU."""
    monkeypatch.setenv("COLUMNS", "200")
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)

    def run(*arguments):
        monkeypatch.setattr(sys, "argv", ["laconic", *map(str, arguments)])
        capsys.readouterr()
        code = 0
        try:
            main()
        except SystemExit as stop:
            code = stop.code or 0
        told = capsys.readouterr()
        return SimpleNamespace(returncode=code, stdout=told.out, stderr=told.err)

    return run
