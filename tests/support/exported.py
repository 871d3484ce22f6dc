import pytest

from quoth.export.export import export


@pytest.fixture(scope="session")
def exported(span_model, tmp_path_factory):
    """MiniLM-L6 with the span head of tests/fixtures, as ONNX alone."""
    folder = tmp_path_factory.mktemp("exported") / "minilm-onnx"
    export(span_model, folder)
    return folder
