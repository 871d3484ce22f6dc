"""Questions over a folder of some 1,500 real documents: manuals, policies, licences, changelogs in six formats.

    python -m benchmarks.reader.documents --fetch FOLDER     # once: 150 MB from PyPI and Debian, hashes checked
    python -m benchmarks.reader.documents --check FOLDER     # every evidence is in its document
    python -m benchmarks.reader.documents FOLDER [--half tuning] [--model READER] [--read 100] [--out RUN.jsonl]

Every question is asked of the whole folder, as `quoth ask` would. Of the questions with an answer:

    right    official F1 of at least 0.5 with an acceptable answer, or it holds one and is at most three times as long
    wrong    another answer
    refused  no answer, though there is one
    lost     format: the document is not read at all, the question is not asked and is not right;
             search: no passage that was read has an acceptable answer and 80 % of the words of the evidence
    first    the best span is right, whether or not the reader abstains; in 5: one of the five best is

Of those without, `refused` is right. Tune on the half `tuning` only; the half `test` has other packages. With --out
a line is written for each question at once, and the same command goes on where it was stopped.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from benchmarks.reader.collection import fetch
from benchmarks.reader.document_questions import HALVES, Asked, load_questions, problems
from benchmarks.reader.document_scores import Outcome, Reply, judge, report, tables, unread
from quoth import Reader
from quoth.answer.find import READ, passages_to_read
from quoth.errors import QuothError
from quoth.search import open_collection
from quoth.search.collection import Collection

TOP = 5


def ask(reader: Reader, question: str, collection: Collection, read: int) -> Reply:
    """Ask a question of all documents: the one place that knows how `quoth ask` searches.

    Asked with `min_score=0` there is always an answer, so that the first five can be scored where the reader abstains;
    whether it would have is decided here by the rule of `find_answers`. For five answers all `read` passages are read.
    """
    found = reader.find(question, collection, top=TOP, min_score=0.0, read=read)
    if reader.confidence:
        refused = not found.hits or found.no_answer > found.hits[0].probability
    else:
        refused = found.null_minus_best > reader.abstention.threshold
    passages = passages_to_read(question, collection, read)
    seen = tuple(collection.document(one.document).text[one.begin : one.past] for one in passages)
    score = found.hits[0].probability if found.hits else 0.0
    return Reply(tuple(hit.answer.text for hit in found.hits), refused, seen, score)


def run(reader: Reader, folder: Path, questions: Sequence[Asked], read: int, out: Path | None) -> dict[str, Outcome]:
    """Ask all questions that have no line in `out` yet; the outcomes of all, by id."""
    outcomes = _earlier(out)
    collection = open_collection([str(folder)])
    names = {Path(collection.document(i).name).relative_to(folder).as_posix() for i in range(len(collection))}
    begun, asked = time.monotonic(), 0
    for number, question in enumerate(questions, 1):
        if question.id in outcomes:
            continue
        if question.kind == "answer" and question.document not in names:
            outcome = unread(question)
        else:
            outcome = judge(question, ask(reader, question.question, collection, read))
            asked += 1
            pace = (time.monotonic() - begun) / asked
            print(f"{number} of {len(questions)}, {pace:.1f} s each: {outcome.result}", file=sys.stderr, flush=True)
        outcomes[question.id] = outcome
        if out:
            with out.open("a", encoding="utf-8") as file:
                file.write(json.dumps(asdict(outcome), ensure_ascii=False) + "\n")
    return outcomes


def _earlier(out: Path | None) -> dict[str, Outcome]:
    if out is None or not out.exists():
        return {}
    lines = out.read_text(encoding="utf-8").splitlines()
    return {one.id: one for one in (Outcome(**json.loads(line)) for line in lines)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--fetch", action="store_true", help="download the packages, write the documents to FOLDER")
    parser.add_argument("--check", action="store_true", help="check the questions against the documents in FOLDER")
    parser.add_argument("--half", choices=(*HALVES, "both"), default="both")
    parser.add_argument("--model", default="embedded", help="a reader; the embedded one")
    parser.add_argument("--read", type=int, default=READ, help="passages that are read")
    parser.add_argument("--out", type=Path, help="a file for a line of JSON about each question")
    parser.add_argument("--json", action="store_true", help="all counts and outcomes instead of tables")
    options = parser.parse_args()
    questions = load_questions(HALVES if options.half == "both" else (options.half,))
    try:
        if options.fetch:
            print(f"{len(fetch(options.folder)):,} documents in {options.folder}")
        elif options.check:
            found = problems(questions, options.folder)
            print("\n".join(found) or f"{len(questions)} questions, every evidence is in its document")
            sys.exit(2 if found else 0)
        else:
            reader = Reader.load(options.model)
            outcomes = run(reader, options.folder, questions, options.read, options.out)
            facts = report(questions, outcomes)
            print(json.dumps(facts, indent=1) if options.json else tables(questions, outcomes))
    except QuothError as error:
        sys.exit(f"{error}")


if __name__ == "__main__":
    main()
