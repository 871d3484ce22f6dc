"""The examples of extending Quoth run as a user would run them, and are as short as the documentation says."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = sorted((Path(__file__).parents[1] / "examples").glob("new_*.py"))
TOLD = {
    "new_head": r"ONNX logits within \de-\d\d of torch's; hidden size 24 after a cut",
    "new_tuning": r"130 parameters trained; ONNX logits within \de-\d\d of torch's",
}


def test_there_are_three():
    assert [path.stem for path in EXAMPLES] == ["new_head", "new_task", "new_tuning"]


@pytest.mark.slow
@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_an_example(path, tmp_path):
    done = subprocess.run(
        [sys.executable, path], capture_output=True, text=True, timeout=300, check=False, cwd=tmp_path
    )
    assert done.returncode == 0, done.stderr
    assert re.fullmatch(TOLD.get(path.stem, ".+"), done.stdout.strip()), done.stdout
    assert len(path.read_text(encoding="utf-8").splitlines()) <= 60
