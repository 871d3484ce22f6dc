"""The index of a folder: how long it takes to build, to check and to search, and how large it is.

    python -m benchmarks.speed.index --text BOOKS.txt.gz                          # 10,000 files, 100,000 passages
    python -m benchmarks.speed.index --text BOOKS.txt.gz --files 100000 --keep FOLDER

Files of `--characters` are cut from the text at paragraphs, again from another place when it ends: each has a line of
its own. Some paragraphs are then in several files, as in real folders. All is done in new processes, as a user would:

    build       `quoth index`, from nothing
    check       the same, of the unchanged folder: the time inside the process, and with its start
    update      the same, after one file changed
    search      the 100 best passages for each of `QUESTIONS`, in one process: the median and the longest
    warm        a question of an open collection, with the embedded reader: search and reading
    cold        `quoth ask`: a new process, from start to end
"""

from __future__ import annotations

import argparse
import gzip
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.race import machine, markdown
from quoth import Reader
from quoth.search import open_collection

QUESTIONS = (
    "Who was the captain of the ship?",
    "When did the king return to the city?",
    "How many soldiers were killed in the battle near the river?",
    "What did the old man give to his daughter?",
    "Which plant is used as a remedy against fever?",
    "Why was the bridge destroyed?",
    "Where is the oldest church in the county?",
    "What is the name of the doctor who treated the prisoner?",
)


def make_files(folder: Path, text: str, files: int, characters: int) -> None:
    """Files of about so many characters, a thousand in a folder."""
    place = 0
    for number in range(files):
        if len(text) - place < characters:
            place = (number * 7919) % characters  # begin again elsewhere: other cuts
        past = text.find("\n\n", place + characters)
        past = past + 2 if past >= 0 else len(text)
        inside = folder / f"{number // 1000:03d}"
        inside.mkdir(exist_ok=True)
        (inside / f"{number:06d}.txt").write_text(f"File {number}.\n\n{text[place:past]}", "utf-8")
        place = past


def timed(call: Callable[[], Any]) -> tuple[float, Any]:
    begun = time.perf_counter()
    given = call()
    return time.perf_counter() - begun, given


def command(*arguments: object) -> tuple[float, Any]:
    """A `quoth` command in a new process: seconds from start to end, and what it printed."""
    line = [sys.executable, "-m", "quoth", *map(str, arguments), "--json"]
    return timed(lambda: json.loads(subprocess.run(line, capture_output=True, check=True).stdout))


def measure(folder: Path, index: Path, passes: int) -> list[tuple[str, str]]:
    """All figures, a row each."""
    _, facts = command("index", folder, "--index", index, "--rebuild")
    rows = [
        ("files", f"{facts['documents']:,}"),
        ("passages", f"{facts['passages']:,}"),
        ("build", f"{facts['seconds']:.1f} s"),
        ("size", f"{facts['bytes'] / 1e6:,.0f} MB"),
    ]
    checks = [command("index", folder, "--index", index) for _ in range(passes)]
    inside = median(facts["seconds"] for _, facts in checks)
    rows.append(("check", f"{inside:.2f} s ({median(seconds for seconds, _ in checks):.2f} s with the process)"))
    one = next(folder.rglob("*.txt"))
    one.write_text(one.read_text("utf-8") + "One more sentence.\n", "utf-8")
    rows.append(("update of a file", f"{command('index', folder, '--index', index)[1]['seconds']:.2f} s"))

    collection = open_collection([str(folder)], index=index)
    searches = [timed(partial(collection.best, q, 100))[0] for _ in range(passes) for q in QUESTIONS]
    rows.append(("search", f"{median(searches):.3f} s (at most {max(searches):.3f})"))
    reader = Reader.load()
    asked = [timed(partial(reader.find, q, collection)) for _ in range(passes) for q in QUESTIONS]
    read = median(found.read for _, found in asked)
    seconds = [spent for spent, _ in asked]
    rows.append(("question, warm", f"{median(seconds):.2f} s (at most {max(seconds):.2f}; {read:.0f} passages read)"))
    cold = [command("ask", q, folder, "--index", index)[0] for q in QUESTIONS]
    rows.append(("question, cold", f"{median(cold):.2f} s (at most {max(cold):.2f})"))
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--text", type=Path, required=True, help="plain text, also .gz")
    parser.add_argument("--files", type=int, default=10_000)
    parser.add_argument("--characters", type=int, default=10_000, help="of a file; about ten passages")
    parser.add_argument("--passes", type=int, default=3)
    parser.add_argument("--keep", type=Path, help="make the files here, or use those that are here")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        folder = (arguments.keep or Path(temporary)) / "files"
        if not folder.exists():
            data = arguments.text.read_bytes()
            text = (gzip.decompress(data) if arguments.text.suffix == ".gz" else data).decode()
            folder.mkdir(parents=True)
            make_files(folder, text, arguments.files, arguments.characters)
        rows = measure(folder, folder.parent / "index.sqlite", arguments.passes)
    print(machine())
    print(markdown(("what", "measured"), rows))


if __name__ == "__main__":
    main()
