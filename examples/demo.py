"""The embedded reader on a text that it has never seen: five questions that the text answers, and one that it does not.

python examples/demo.py        needs plain `quoth` alone; exit code 1 if an answer is not the right one
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

from quoth import Reader

TEXT = Path(__file__).parent / "longitude.txt"
QUESTIONS = {  # and what the text says
    "Where was John Harrison born?": "Foulby",
    "What reward did the Longitude Act offer?": "20,000 pounds",
    "What was H4's diameter?": "13 centimetres",
    "Who made a copy of the watch?": "Larcum Kendall",
    "Where are the timekeepers shown today?": "Royal Observatory in Greenwich",
    "Who painted Harrison's portrait?": None,
}


def main() -> None:
    """Ask, show, and compare."""
    begin = time.perf_counter()
    reader = Reader.load()
    loaded = time.perf_counter()
    text = TEXT.read_text(encoding="utf-8")
    wrong = []
    for question, wanted in QUESTIONS.items():
        hits = reader.search(question, [text])
        answer = hits[0].answer.text if hits else None
        line = text.count("\n", 0, hits[0].answer.start) + 1 if hits else 0
        print(f"{question}\n  {answer}   ({TEXT.name}:{line})" if hits else f"{question}\n  no answer in this text")
        if answer != wanted:
            wrong.append(f"{question!r}: {wanted!r} is right, not {answer!r}")
    seconds = time.perf_counter() - loaded
    print(f"loaded in {loaded - begin:.2f} s, {len(QUESTIONS)} questions answered in {seconds:.2f} s")
    if sys.modules.get("torch"):
        wrong.append("torch was imported")
    if wrong:
        sys.exit("\n".join(wrong))


if __name__ == "__main__":
    main()
