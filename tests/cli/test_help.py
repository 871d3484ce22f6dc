"""What `quoth --help` shows."""

from quoth.cli import VERBS


def test_every_verb_has_a_whole_line_within_80_columns(cli, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    lines = cli("--help").stdout.splitlines()
    shown = dict(line.strip().split(maxsplit=1) for line in lines[lines.index("Commands:") + 1 :] if line.strip())
    assert shown == VERBS
    assert all(len(line) <= 80 for line in lines)
