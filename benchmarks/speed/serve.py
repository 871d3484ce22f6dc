"""`quoth serve` beside the Reader itself: questions a second and milliseconds at 1, 8 and 32 clients, CPU, one run.

    python -m benchmarks.speed.serve --data DATA.json                 # SQuAD's validation set, say
    python -m benchmarks.speed.serve --data DATA.json --questions 200 --passes 5

Every question comes with its own context. All take turns in each pass, on the same questions:

    one by one    `Reader.find` in this process, a question after the other: what a request asks the reader to do
    N at a time   `Reader.judge` of N questions after the other: what the reader does with as many as N clients have
    batched       `Reader.judge` of all questions at once: the most that the reader can do
    N clients     each in a closed loop over one connection, all in one process of their own

Clients share the cores with the server. Their CPU time is taken from the time that there was: with C cores, W seconds
of wall time and c seconds of CPU time of the clients, the rate is questions / (W − c / C). The CPU time of a question,
of all processes of the server, depends little on what else the machine does. Each answer is compared with the reader's.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any

from benchmarks.race import machine, markdown
from quoth.answer import Reader
from quoth.data import Question, read

CLIENTS = (1, 8, 32)
Turn = dict[str, float]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", required=True)
    parser.add_argument("--questions", type=int, default=160)
    parser.add_argument("--passes", type=int, default=3)
    parser.add_argument("--clients", type=int, help=argparse.SUPPRESS)  # this process is them
    parser.add_argument("--port", type=int, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.clients:
        asked = json.loads(Path(given.data).read_text("utf-8"))
        print(json.dumps(asyncio.run(load(given.port, given.clients, asked))))
        return
    questions = choose(given.data, given.questions)
    reader = Reader.load()
    own = [reader.ask(one.question, one.context).text for one in questions]
    turns: dict[str, list[Turn]] = {}
    with TemporaryDirectory() as folder, started() as (port, pid):
        file = Path(folder) / "questions.json"
        file.write_text(json.dumps([[one.question, one.context, right] for one, right in zip(questions, own)]), "utf-8")
        one_by_one(reader, questions[:20])
        clients(file, port, pid, 8)
        for number in range(given.passes):
            steps: list[tuple[str, Any]] = [
                ("one by one", lambda: one_by_one(reader, questions)),
                *((f"{n} at a time", lambda n=n: batched(reader, questions, n)) for n in CLIENTS[1:]),
                ("batched", lambda: batched(reader, questions, len(questions))),
                *((f"{n} clients", lambda n=n: clients(file, port, pid, n)) for n in CLIENTS),
            ]
            for name, step in steps if number % 2 == 0 else reversed(steps):
                turns.setdefault(name, []).append(step())
    show(turns, len(questions), given.passes)


def choose(data: str, count: int) -> list[Question]:
    """Questions over the whole dataset, each with a passage of its own."""
    found = {one.context: one for one in read(data).questions}
    some = list(found.values())
    return some[:: max(1, len(some) // count)][:count]


def one_by_one(reader: Reader, questions: list[Question]) -> Turn:
    times = []
    cpu, begun = time.process_time(), time.perf_counter()
    for one in questions:
        before = time.perf_counter()
        reader.find(one.question, [one.context])
        times.append(time.perf_counter() - before)
    return turn(len(questions), time.perf_counter() - begun, time.process_time() - cpu, times)


def batched(reader: Reader, questions: list[Question], count: int) -> Turn:
    """So many at a time."""
    cpu, begun = time.process_time(), time.perf_counter()
    for start in range(0, len(questions), count):
        reader.judge(questions[start : start + count])
    return turn(len(questions), time.perf_counter() - begun, time.process_time() - cpu, [])


def clients(file: Path, port: int, pid: int, count: int) -> Turn:
    cpu = cpu_seconds(pid)
    command = [sys.executable, "-m", "benchmarks.speed.serve", "--data", str(file)]
    done = subprocess.run(
        [*command, "--clients", str(count), "--port", str(port)], check=True, capture_output=True, text=True
    )
    found = json.loads(done.stdout)
    if found["wrong"]:
        raise SystemExit(f"{found['wrong']} answers of {count} clients are not those of the reader")
    wall = found["wall"] - found["cpu"] / cores()
    return turn(len(found["times"]), wall, cpu_seconds(pid) - cpu, found["times"])


def turn(count: int, wall: float, cpu: float, times: list[float]) -> Turn:
    ordered = sorted(times) or [0.0]
    at = lambda part: 1000 * ordered[min(len(ordered) - 1, int(part * len(ordered)))]  # noqa: E731
    return {"rate": count / wall, "cpu": 1000 * cpu / count, "p50": at(0.5), "p99": at(0.99)}


async def load(port: int, count: int, asked: list[list[str]]) -> dict[str, Any]:
    """Ask all questions with so many clients; how long each took, how long all, how much CPU, how many were wrong."""
    left = iter(asked)
    times: list[float] = []
    wrong = 0

    async def client() -> None:
        nonlocal wrong
        reading, writing = await asyncio.open_connection("127.0.0.1", port)
        for question, context, right in left:
            body = json.dumps({"question": question, "context": context}).encode()
            before = time.perf_counter()
            writing.write(
                b"POST /v1/ask HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
                b"Content-Length: %d\r\n\r\n%s" % (len(body), body)
            )
            head = await reading.readuntil(b"\r\n\r\n")
            size = re.search(rb"content-length: (\d+)", head)
            assert head.startswith(b"HTTP/1.1 200"), head
            assert size
            found = await reading.readexactly(int(size[1]))
            times.append(time.perf_counter() - before)
            wrong += (json.loads(found)["answer"] or "") != right
        writing.close()

    cpu, begun = time.process_time(), time.perf_counter()
    await asyncio.gather(*(client() for _ in range(count)))
    wall = time.perf_counter() - begun
    return {"wall": wall, "cpu": time.process_time() - cpu, "times": times, "wrong": wrong}


@contextmanager
def started() -> Iterator[tuple[int, int]]:
    """A server: its port and its process."""
    process = subprocess.Popen(
        [sys.executable, "-m", "quoth", "serve", "--port", "0"], stderr=subprocess.PIPE, text=True, encoding="utf-8"
    )
    assert process.stderr is not None
    try:
        found = next(filter(None, (re.search(r"ready at http://\S+:(\d+);", line) for line in process.stderr)))
        yield int(found[1]), process.pid
    finally:
        process.terminate()
        process.communicate()


def cpu_seconds(pid: int) -> float:
    """CPU time of a process and of those that it started (Linux)."""
    total = 0.0
    for place in Path("/proc").glob("[0-9]*"):
        try:
            fields = place.joinpath("stat").read_text().rpartition(")")[2].split()
        except OSError:  # it ended meanwhile
            continue
        if pid in (int(place.name), int(fields[1])):
            total += (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
    return total


def cores() -> int:
    return len(os.sched_getaffinity(0))


def show(turns: dict[str, list[Turn]], count: int, passes: int) -> None:
    middle = {name: {key: median(one[key] for one in some) for key in some[0]} for name, some in turns.items()}
    rows = []
    for name, found in middle.items():
        late = f"{found['p50']:.1f} | {found['p99']:.1f}" if found["p50"] else "— | —"
        same = name.replace("clients", "at a time")
        beside = [ratio(turns, name, base) for base in ("one by one", same, "batched")]
        rows.append([name, f"{found['rate']:.1f}", *beside, *late.split(" | "), f"{found['cpu']:.1f}"])
    heads = ["", "questions/s", "of one by one", "of as many at a time", "of batched", "p50 ms", "p99 ms",
             "CPU ms a question"]  # fmt: skip
    print(f"{machine()}; load {os.getloadavg()[0]:.1f}; {count} questions, {passes} passes\n")
    print(markdown(heads, rows))
    behind = middle["1 clients"]["p50"] - middle["one by one"]["p50"]
    print(f"\none client waits {behind:+.1f} ms longer than for the reader, by the medians of p50")


def ratio(turns: dict[str, list[Turn]], name: str, base: str) -> str:
    """The rate of one beside that of another in the same pass, median."""
    if base not in turns or base == name:
        return "—"
    return f"{100 * median(one['rate'] / other['rate'] for one, other in zip(turns[name], turns[base])):.0f} %"


if __name__ == "__main__":
    main()
