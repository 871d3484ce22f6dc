"""The transcripts of docs/ask.md: what the commands in it print. `python -m tests.transcripts` writes them anew."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs/ask.md"
BLOCK = re.compile(r"^```\n\$ (?P<command>[^\n]*)\n(?P<shown>.*?)^```$", re.MULTILINE | re.DOTALL)


def run(command: str) -> str:
    """What a command of the shell prints in the folder `examples`, on standard output and standard error."""
    with tempfile.TemporaryDirectory() as cache:
        env = {**os.environ, "XDG_CACHE_HOME": cache, "COLUMNS": "200", "PYTHONUTF8": "1"}
        quoth = f'quoth() {{ "{sys.executable}" -m quoth "$@"; }}; '
        done = subprocess.run(
            ["bash", "-c", quoth + command],
            cwd=ROOT / "examples",
            env=env,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            encoding="utf-8",
            check=True,
            timeout=300,
        )
    return done.stdout


def main() -> None:
    """Write the page anew."""
    text = PAGE.read_text(encoding="utf-8")
    made = BLOCK.sub(lambda block: f"```\n$ {block['command']}\n{run(block['command'])}```", text)
    PAGE.write_text(made, encoding="utf-8")


if __name__ == "__main__":
    main()
