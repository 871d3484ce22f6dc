from types import SimpleNamespace

import pytest

from experiments.comparison_material import write_all
from quoth.data import read
from quoth.experiments.compare import compare_results
from quoth.experiments.run_results import read_results
from quoth.report.comparison_page import write_report


@pytest.fixture(scope="session")
def comparison(tmp_path_factory):
    """The comparison of sixteen methods, and its page."""
    folder = tmp_path_factory.mktemp("comparison")
    written = write_all(folder)
    results, unfinished = read_results(written.runs)
    facts = compare_results(results, unfinished, read(str(written.dev)))
    facts["summary"][0] = facts["summary"][0].replace(str(written.dev), "dev.json")  # the same picture everywhere
    page = folder / "report.html"
    return SimpleNamespace(facts=facts, page=page, files=write_report(facts, page))
