"""Costs: what is counted is what is there."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import numpy as np

from quoth.score.cost import Cost, file_bytes, hardware, peak_memory


def test_a_cost_is_json():
    cost = Cost(parameters=770, bytes=3080, questions=300, seconds=20.0, flops_per_question=1e9)
    found = json.loads(json.dumps(cost.to_dict()))
    assert found["questions_per_second"] == cost.questions_per_second == 15.0
    assert found["parameters"] == 770
    assert found["bytes"] == 3080
    assert found["flops_per_question"] == 1e9
    assert found["peak_memory"] > 0
    assert found["hardware"]["cores"] == os.cpu_count()
    assert Cost(parameters=0, bytes=0, questions=0, seconds=0.0).questions_per_second == 0.0


def test_peak_memory_is_in_bytes():
    held = np.ones(64 << 17)  # 64 MiB, written to
    peak = peak_memory()
    assert peak is not None
    assert held.nbytes < peak < 64 << 30


def test_hardware_names_the_machine():
    found = hardware()
    assert found["cpu"]
    assert found["usable_cores"] >= 1
    assert found["python"] == ".".join(map(str, sys.version_info[:3]))
    assert found["numpy"] == np.__version__


def test_file_bytes_counts_files_and_folders(tmp_path):
    (tmp_path / "deep").mkdir()
    (tmp_path / "one").write_bytes(b"x" * 10)
    (tmp_path / "deep" / "two").write_bytes(b"x" * 32)
    assert file_bytes(tmp_path / "one") == 10
    assert file_bytes(tmp_path) == 42


def test_scoring_needs_no_torch():
    code = "import sys, quoth.score; print({'torch', 'transformers', 'pandas', 'scipy'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"
