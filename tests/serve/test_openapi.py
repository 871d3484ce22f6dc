"""The OpenAPI document; and schemathesis, which sends all that it allows, and much that it does not."""

import json
import os
import subprocess
import sys
from pathlib import Path

import jsonschema
import pytest

from search.writing import PdfPages
from serve.running import TOKEN

HERE = Path(__file__).parent
CASES = 2000


def test_the_document_has_examples_that_fit_its_schemas(server):
    document = server.client.get("/openapi.json").json()
    assert document["openapi"].startswith("3.1")
    body = document["paths"]["/v1/ask"]["post"]["requestBody"]["content"]["application/json"]
    assert len(body["examples"]) >= 4
    registry = {"$schema": "https://json-schema.org/draft/2020-12/schema", "components": document["components"]}
    for example in body["examples"].values():
        jsonschema.validate(example["value"], {**registry, **body["schema"]})
    answer = document["paths"]["/v1/ask"]["post"]["responses"]["200"]["content"]["application/json"]["schema"]
    found = server.client.post("/v1/ask", json=body["examples"]["questions"]["value"]).json()
    jsonschema.validate(found, {**registry, **answer})
    assert not [
        path
        for path in document["paths"]
        if not path.startswith("/v1/") and path not in ("/health", "/ready", "/metrics")
    ]


def test_nothing_in_the_document_leads_elsewhere(server):
    """Swagger's page would load scripts from another site: there is none."""
    assert server.client.get("/docs").status_code == 404
    assert server.client.get("/redoc").status_code == 404


@pytest.mark.slow
def test_schemathesis_finds_nothing(start, tmp_path):
    folder = tmp_path / "small"  # it sends 100 questions at a time
    folder.mkdir()
    (folder / "a.md").write_text("# Handbook\n\nThe harbour master is Ingrid Solberg.\n")
    (folder / "b.pdf").write_bytes(PdfPages().write(["The repair of the pier cost 310,000 euros."]))
    running = start(folder, "--timeout", "600", env={"QUOTH_TOKEN": TOKEN})
    report = tmp_path / "report.json"
    command = [
        sys.executable, "-m", "schemathesis.cli", "--config-file", str(HERE / "schemathesis.toml"), "run",
        f"{running.url}/openapi.json", "--request-timeout", "600", "--max-examples", "160", "--seed", "1", "--no-color",
        "-H", f"Authorization: Bearer {TOKEN}", "--report", "json", "--report-json-path", str(report),
    ]  # fmt: skip
    done = subprocess.run(command, capture_output=True, text=True, timeout=1500, cwd=tmp_path, env={**os.environ})
    stopped = running.stop()
    assert done.returncode == 0, done.stdout[-5000:] + done.stderr[-2000:]
    assert json.loads(report.read_text())["test_cases"]["generated"] >= CASES
    assert stopped == 0
    assert not [line for line in running.lines if "Traceback" in line]
