"""`make fuzz SECONDS=900`: all targets with new seeds, on several processes, for so many seconds.

    PYTHONPATH=tests python -m fuzz --seconds 60 --targets squad,ask
    PYTHONPATH=tests python -m fuzz --replay fuzz-findings/squad-1/case.json

Prints its progress and last a table of targets, cases and findings; ends with 1 if there is a finding.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

from fuzz.case import Case, Finding
from fuzz.outcome import Scratch, judge
from fuzz.schedule import Schedule, Tally

PAUSE = 30.0  # seconds between two lines of progress
HARD = 180.0  # seconds after which a case that does not listen to its time limit is taken for a hang
WORKER = ["-m", "fuzz.worker"]
TESTS = Path(__file__).parents[1]


class Worker:
    """A process that runs batches."""

    def __init__(self, place: Path) -> None:
        self.place = place
        self.start()

    def start(self) -> None:
        """Start it, anew if it did not survive. Its temporary files, home and cache lie in its own folder."""
        for name in ("home", "tmp"):
            (self.place / name).mkdir(parents=True, exist_ok=True)
        paths = os.pathsep.join([str(TESTS), str(TESTS.parent / "src"), os.environ.get("PYTHONPATH", "")])
        own = {"HOME": str(self.place / "home"), "TMPDIR": str(self.place / "tmp"), "HF_HOME": str(self.place / "home")}
        self.process = subprocess.Popen(
            [sys.executable, *WORKER, str(self.place)], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            stderr=(self.place / "stderr").open("wb"), text=True, env={**os.environ, **own, "PYTHONPATH": paths},
        )  # fmt: skip
        assert self.process.stdout is not None
        if not self.process.stdout.readline():
            raise SystemExit(f"a worker does not start:\n{(self.place / 'stderr').read_text()}")

    def run(self, tally: Tally, seed: int) -> None:
        """One batch; its outcome goes into the tally."""
        pipe, answers = self.process.stdin, self.process.stdout
        assert pipe is not None
        assert answers is not None
        task = {"target": tally.name, "cases": tally.next_cases(), "seed": seed, "known": tally.known}
        print(json.dumps(task), file=pipe, flush=True)
        watch = threading.Timer(HARD, self._watch)
        watch.start()
        line = answers.readline()
        watch.cancel()
        if not line:
            self._lost(tally)
            return
        told = json.loads(line)
        tally.cases += told["cases"]
        tally.seconds += told["seconds"]
        if told["finding"]:
            found = told["finding"]
            case = Case.from_json(found["case"])[1]
            tally.findings.append(Finding(tally.name, found["signature"], found["detail"], case))

    def _watch(self) -> None:
        """End a process whose case has not ended for long; a batch of many short cases may take longer."""
        while self.process.poll() is None and time.time() - self._begun() < HARD:
            time.sleep(1)
        self.process.kill()

    def _begun(self) -> float:
        """When the case that runs now was written."""
        record = self.place / "case.json"
        return record.stat().st_mtime if record.exists() else time.time()

    def _lost(self, tally: Tally) -> None:
        """The process did not survive a case, which still lies in its folder."""
        code = self.process.wait()
        tally.lost += 1
        _, case = Scratch(self.place).left()
        tail = (self.place / "stderr").read_text(errors="replace")[-2000:]
        tally.findings.append(Finding(tally.name, f"the process ended with {code}", tail, case))
        self.start()


def fuzz(seconds: float, jobs: int, names: list[str], place: Path) -> Schedule:
    """Run for so long. Findings are saved below `place`."""
    from fuzz.targets import TARGETS  # takes seconds

    chosen = {name: TARGETS[name] for name in names or TARGETS}
    schedule = Schedule(((name, target.least) for name, target in chosen.items()), seconds)
    end, lock = time.monotonic() + seconds, threading.Lock()
    root = Path(tempfile.mkdtemp(prefix="fuzz-", dir="/dev/shm" if Path("/dev/shm").is_dir() else None))

    def work(number: int) -> None:
        worker = Worker(root / str(number))
        while time.monotonic() < end:
            with lock:
                tally = schedule.next()
                tally.busy += 1
                before = len(tally.findings)
            worker.run(tally, random.SystemRandom().getrandbits(64))
            with lock:
                tally.busy -= 1
                for finding in tally.findings[before:]:
                    print(f"finding: {tally.name}: {finding.signature}: {_replay(finding.save(place))}", flush=True)
        worker.process.kill()
        worker.process.wait()

    threads = [threading.Thread(target=work, args=(number,), daemon=True) for number in range(jobs)]
    for thread in threads:
        thread.start()
    while any(thread.is_alive() for thread in threads):
        for thread in threads:
            thread.join(PAUSE / len(threads))
        short = sum(tally.cases < tally.least for tally in schedule.tallies.values())
        left = max(0.0, end - time.monotonic())
        found = f"{schedule.cases:,} cases, {len(schedule.findings)} findings"
        print(f"{found}, {short} targets below their least, {left:.0f} s left", flush=True)
    shutil.rmtree(root, ignore_errors=True)
    return schedule


def _replay(folder: Path) -> str:
    return f"PYTHONPATH=tests python -m fuzz --replay {folder / 'case.json'}"


def replay(path: Path) -> int:
    """Run one case that was saved, and show what comes of it."""
    from fuzz.targets import TARGETS  # takes seconds

    name, case = Case.from_json(path.read_text())
    with tempfile.TemporaryDirectory() as place:
        found = judge(TARGETS[name], case, Scratch(Path(place)))
    print(f"{found.signature}\n{found.detail}" if found else "nothing is wrong")
    return int(found is not None)


def main() -> int:
    """Read the arguments, run, and show the table."""
    parser = argparse.ArgumentParser(prog="fuzz", description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=900.0)
    parser.add_argument("-j", "--jobs", type=int, default=2, help="processes")
    parser.add_argument("--targets", default="", help="names, with commas between them; by default all")
    parser.add_argument("--findings", type=Path, default=Path("fuzz-findings"), help="where findings are saved")
    parser.add_argument("--replay", type=Path, help="run one case that was saved")
    given = parser.parse_args()
    if given.replay:
        return replay(given.replay)
    schedule = fuzz(given.seconds, given.jobs, [name for name in given.targets.split(",") if name], given.findings)
    print(schedule.table())
    for finding in schedule.findings:
        print(f"{finding.target}: {finding.signature}")
    return int(bool(schedule.findings))


if __name__ == "__main__":
    sys.exit(main())
