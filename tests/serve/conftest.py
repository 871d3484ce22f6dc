from importlib.util import find_spec

import pytest

if find_spec("fastapi") is None:
    names = ("ask", "documents", "security", "batching", "limits", "faults", "openapi")
    collect_ignore_glob = [f"test_{name}*" for name in names]
else:
    from search.writing import PdfPages
    from serve.running import Running

FILES = {
    "handbook.md": "# Handbook\n\n## Staff\n\nThe harbour master is **Ingrid Solberg**. She lives in\nthe red house.\n",
    "sub/log.txt": "It rained. The old harbour master, Olav Berg, retired in the spring of 1998.\r\n",
    "rules.html": "<h1>Rules</h1><p>The speed limit is <b>4&nbsp;knots</b>. <script>alert(1)</script></p>",
}
PAGES = ["The year began with a storm. " * 300, "The repair of the north pier cost 310,000 euros. It took a year."]


@pytest.fixture(scope="session")
def harbour(tmp_path_factory):
    """A folder of documents, beside a file that is not in it and that a link leads to."""
    place = tmp_path_factory.mktemp("served")
    folder = place / "harbour"
    for name, text in FILES.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(text.encode())
    (folder / "report.pdf").write_bytes(PdfPages().write(PAGES))
    (place / "secret.txt").write_text("The secret of the safe is marmalade.")
    (folder / "link.txt").symlink_to("../secret.txt")
    return folder


@pytest.fixture
def start():
    """A function that starts a server for one test, which ends with it."""
    started = []

    def one(*arguments, **options):
        started.append(Running(*arguments, **options))
        assert started[-1].url, started[-1].lines
        return started[-1]

    yield one
    for running in started:
        if running.process.poll() is None:
            running.stop()


@pytest.fixture(scope="session")
def server(harbour):
    """A server of that folder, which all tests may ask."""
    running = Running(harbour, "--refresh", "0.3")
    assert running.url, running.lines
    yield running
    assert running.stop() == 0, running.lines
