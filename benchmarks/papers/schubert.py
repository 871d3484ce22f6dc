"""schuBERT (Khetan and Karnin 2020) on one GPU: learned shapes against dropped layers, on SQuAD and on plain text.

    python -m benchmarks.papers.schubert --model M --train train.json --evaluate dev.json --text books.txt --glue GLUE
    python -m benchmarks.papers.schubert … --distil --out runs/schubert-distilled
    python -m benchmarks.papers.schubert --plot runs/schubert/results.json --plots benchmarks/plots

1. teacher: M tuned on `--train`; the same without some articles, for the search; M with fitted heads of pre-training
2. search: at 0.6, first γ, learning rate and steps of the gates, for each of the two losses a study of Optuna
   (OUT/search) on row `all`; then the learning rate of recovery, row by row. The score is that on what was held out of
   training (articles: F1 at the best threshold; text: the loss): `--evaluate` has no say
3. task: the teacher pruned by its own task; text: M pruned on plain text, as in the paper; tune: what text left, tuned
   on SQuAD, MRPC, RTE and SST-2; more: T = 3, gates on 9 and on 6 layers, embeddings of size 128, FLOPs and latency in
   place of parameters (latency is measured: --workers 1); reader: the teacher at half its size without embeddings, by
   distillation, recovered for longer and on `--more` data too
4. time, cpu: all shapes in turns in one process (random weights: speed is the shape's), on the GPU, on the CPU

Gates and recovery are trained by the loss of the task or of pre-training itself, as in the paper; with --distil by
distillation from the unpruned model. Sizes are parts of all parameters, embeddings included. All rows are cut from the
trained model: fewer layers are not pre-trained, as the paper's are. A row whose size no shape satisfies fails with a
line that says the floor, and the others go on. Runs are done in `--workers` parallel processes. RESULTS has every
run as soon as it has ended, and what is there is not run again, unless its model is needed and gone. After `--seconds`
no run is begun any more: the same call again resumes.
"""

from __future__ import annotations

import argparse
import multiprocessing
import time
from collections.abc import Iterable, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from pathlib import Path

from benchmarks.papers.schubert_runs import DEFAULT, LOSSES, Run, best_settings, score, stage_runs, trial_run
from benchmarks.papers.schubert_tables import plot, speeds, table
from benchmarks.papers.schubert_work import LATE, receive, tokenised, work
from benchmarks.pool import Facts
from benchmarks.questions import hold_out
from quoth.files import read_json, write_json

STAGES = ("teacher", "search", "task", "more", "text", "tune", "reader", "time", "cpu")
WAVES = (("gates",), ("rates",), ("teacher", "reader", "text", "task", "more", "tune"))  # each needs those before
SPEEDS = {"time": "cuda", "cpu": "cpu"}


class Bench:
    """The results, and the runs that are still to be done."""

    def __init__(self, options: argparse.Namespace, path: Path) -> None:
        self.options, self.path = options, path
        self.results: Facts = read_json(path) if path.exists() else {"runs": {}, "choices": {}}
        self.until = time.time() + options.seconds
        self.failed: list[str] = []

    def runs(self, wave: str) -> list[Run]:
        """The runs of a stage or a part of it, with the best settings of the search so far."""
        return stage_runs(wave, self.options, self.results["choices"])

    def left(self, runs: Iterable[Run]) -> list[Run]:
        """Those that the results do not have."""
        known = self.results["runs"]
        return [run for run in runs if known.get(run.name, {}).get("overrides") != list(run.overrides)]

    def sources(self, runs: Iterable[Run]) -> list[Run]:
        """The runs whose models these begin from, as far as the models are not there."""
        makers = {run.model(self.options.out): run for wave in ("teacher", "text") for run in self.runs(wave)}
        wanted = {run.source for run in runs if not Path(run.source).exists()}
        return [makers[source] for source in sorted(wanted & makers.keys())]

    def go(self, stages: Sequence[str]) -> None:
        """All stages that train; those of a wave run in parallel."""
        chosen = {*stages, *(("gates", "rates") if "search" in stages else ())}
        waves = [[stage for stage in wave if stage in chosen] for wave in WAVES]
        todo = self.left(run for wave in waves for stage in wave for run in self.runs(stage))
        if "gates" in chosen:
            todo += [trial_run(self.options, loss, 0, DEFAULT) for loss in LOSSES if self._trials(loss)]
        if not todo:
            return
        before = self.sources(todo)
        data = tokenised([*self.sources(before), *before, *todo], self.options.model)
        context = multiprocessing.get_context("spawn")
        pool = ProcessPoolExecutor(self.options.workers, context, receive, (data, self.until))
        try:
            for wave in filter(None, waves):
                runs = [run for stage in wave for run in self.runs(stage)]
                left = self.left(runs)
                if not left and not (wave == ["gates"] and any(map(self._trials, LOSSES))):
                    continue
                print(f"{', '.join(wave)}: {len(runs) - len(left)} of {len(runs)} runs are there", flush=True)
                self._search(pool) if wave == ["gates"] else self._carry_out(pool, left)
                self.results["choices"] = best_settings(self.results)
                write_json(self.path, self.results)
        finally:
            pool.shutdown(cancel_futures=True)

    def _carry_out(self, pool: ProcessPoolExecutor, runs: Sequence[Run]) -> None:
        """Do runs in parallel, in this order but for those whose models are still to be made."""
        before = self.sources(runs)
        todo = list({run.name: run for run in (*self.sources(before), *before, *runs)}.values())
        waiting: dict[Future[tuple[Run, Facts]], Run] = {}
        late = 0
        while todo or waiting:
            ready = [run for run in todo if Path(run.source).exists()]
            for run in ready[: self.options.workers - len(waiting)]:
                todo.remove(run)
                waiting[pool.submit(work, run, self.options.out)] = run
            if not waiting:
                raise SystemExit(f"{todo[0].source}: is not there and was not made; failed: {self.failed or 'none'}")
            for future in wait(waiting, return_when=FIRST_COMPLETED)[0]:
                del waiting[future]
                late += self._note(*future.result()) == LATE
            if late:
                todo = []
        self._end(late)

    def _search(self, pool: ProcessPoolExecutor) -> None:
        """The studies of both losses in parallel; when a trial ends, the next of its study begins."""
        from quoth.prune.hpo import Search, open_study  # needs optuna

        search = Search(trials=self.options.trials, steps=tuple(self.options.gate_steps))
        self._carry_out(pool, self.sources(trial_run(self.options, loss, 0, DEFAULT) for loss in LOSSES))
        studies = {loss: open_study(Path(self.options.out) / "search" / loss, search, 0) for loss in LOSSES}
        left = {loss: self._trials(loss) for loss in LOSSES}
        waiting: dict[Future[tuple[Run, Facts]], tuple[str, int]] = {}
        late = 0

        def ask(loss: str) -> None:
            if left[loss] > 0 and not late:
                number, _ = studies[loss].ask()
                left[loss] -= 1
                row = studies[loss].row(number)
                run = trial_run(self.options, loss, number, [row[key] for key in ("gamma", "learning_rate", "steps")])
                waiting[pool.submit(work, run, self.options.out)] = loss, number

        for place in range(max(self.options.workers, len(LOSSES))):
            ask(LOSSES[place % len(LOSSES)])
        while waiting:
            for future in wait(waiting, return_when=FIRST_COMPLETED)[0]:
                loss, number = waiting.pop(future)
                run, facts = future.result()
                error = self._note(run, facts)
                late += error == LATE  # it stays asked for, and is the next to be asked
                if error is None:
                    studies[loss].tell(number, score({**run.facts, **facts}))
                elif error != LATE:
                    studies[loss].tell_failed(number)
                ask(loss)
        self._end(late)

    def _trials(self, loss: str) -> int:
        """How many trials of a study the results lack."""
        return int(self.options.trials) - sum(f"search/{loss}-trial" in name for name in self.results["runs"])

    def _note(self, run: Run, facts: Facts) -> str | None:
        """Print and keep the outcome of a run; why it has none."""
        print(f"{time.time() - self.until + self.options.seconds:6.0f} s  {run.name:40s} {line(facts)}", flush=True)
        if "error" in facts:
            self.failed += [run.name] if facts["error"] != LATE else []
            return str(facts["error"])
        machine = {key: facts.pop(key) for key in ("hardware", "versions") if key in facts}
        self.results |= {"machine": machine} if machine else {}
        self.results["runs"][run.name] = {**run.facts, "overrides": list(run.overrides), **facts}
        write_json(self.path, self.results)
        return None

    def _end(self, late: int) -> None:
        if late:
            raise SystemExit(f"the time is up, failed: {self.failed or 'none'}; the same call again resumes")


def line(facts: Facts) -> str:
    """What is printed of a run."""
    if "error" in facts:
        return str(facts["error"])
    names = {"best_f1": "best F1", "f1": "F1", "acc": "acc", "loss": "loss"}
    scores = [f"{name} {facts['quality'][key]:.2f}" for key, name in names.items() if key in facts.get("quality", {})]
    losses = facts.get("losses", {})
    if isinstance(losses, dict):
        scores += [f"{name} {loss:.3f}" for name, loss in losses.items()]
    return f"{'  '.join(scores)}  {facts['wall']:.0f} s"


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", help="a folder or hub name")
    parser.add_argument("--train", help="a SQuAD 2.0 file to train on")
    parser.add_argument("--evaluate", help="a SQuAD 2.0 file to score on")
    parser.add_argument("--text", help="plain text, for the loss of pre-training")
    parser.add_argument("--glue", help="a folder with MRPC, RTE and SST-2, each with train.tsv.gz and dev.tsv.gz")
    parser.add_argument("--more", nargs="*", default=[], help="further questions for the reader")
    parser.add_argument("--out", default="runs/schubert", help="the folder of all runs")
    parser.add_argument("--only", nargs="*", choices=STAGES, default=STAGES[:-1], help="all but cpu")
    parser.add_argument("--workers", type=int, default=12, help="parallel processes")
    parser.add_argument("--seconds", type=float, default=1e9, help="after which no run is begun")
    parser.add_argument("--keep", type=float, nargs="*", default=[0.9, 0.8, 0.7, 0.6], help="parts of the parameters")
    parser.add_argument(
        "--distil", action="store_true", help="gates and recovery by distillation, not by the loss itself"
    )
    parser.add_argument("--seeds", type=int, default=3, help="of the rows that decide")
    parser.add_argument("--batch-tokens", type=int, default=16384, help="tokens a step; of GLUE --glue-batch-tokens")
    parser.add_argument("--teacher-epochs", type=float, default=3.0, help="of the teacher")
    parser.add_argument(
        "--teacher-learning-rate", type=float, default=2e-4, help="of the teacher, and of tuning after text"
    )
    parser.add_argument("--trials", type=int, default=12, help="of the gates, for each of the two losses")
    parser.add_argument("--head-steps", type=int, default=3000, help="of the heads of pre-training, at most")
    parser.add_argument("--gate-steps", type=int, nargs="*", default=[50, 100, 200], help="of the gates, to search")
    parser.add_argument("--gate-batch-tokens", type=int, default=8192, help="tokens a step of the gates")
    parser.add_argument("--learning-rates", type=float, nargs="*", default=[1e-4, 3e-4], help="of recovery, to search")
    parser.add_argument("--search-epochs", type=float, default=0.5, help="of recovery in the search")
    parser.add_argument("--epochs", type=float, default=1.5, help="of recovery by the task")
    parser.add_argument("--text-epochs", type=float, default=1.0, help="of recovery on text")
    parser.add_argument("--tune-epochs", type=float, default=1.5, help="on SQuAD after text")
    parser.add_argument("--glue-epochs", type=float, default=3.0, help="of tuning on GLUE")
    parser.add_argument("--glue-learning-rate", type=float, default=1e-4, help="of tuning on GLUE")
    parser.add_argument("--glue-batch-tokens", type=int, default=2048, help="tokens a step of tuning on GLUE")
    parser.add_argument("--sst2-fraction", type=float, default=0.3, help="of SST-2's training data")
    parser.add_argument(
        "--reader-kinds", nargs="*", default=["all", "af", "af@9"], help="what to cut; af@9: on 9 of the layers"
    )
    parser.add_argument("--reader-epochs", type=float, default=4.0, help="of the reader's recovery")
    parser.add_argument("--multiple", type=int, default=8, help="of the reader's sizes")
    parser.add_argument(
        "--set", nargs="*", default=[], metavar="KEY=VALUE", help="overrides of every recipe of pruning"
    )
    parser.add_argument(
        "--reader-set", nargs="*", default=[], metavar="KEY=VALUE", help="overrides of the recipe of the reader"
    )
    parser.add_argument("--questions", type=int, default=48, help="of cpu")
    parser.add_argument("--passes", type=int, default=5, help="of time and cpu")
    parser.add_argument("--results", help="where the figures go; by default OUT/results.json")
    parser.add_argument("--plot", metavar="RESULTS", help="draw an earlier run, print its tables, and end")
    parser.add_argument("--plots", default="benchmarks/plots", help="the folder of figures")
    options = parser.parse_args()
    trains = set(options.only) - set(SPEEDS)
    for name in ("model", "evaluate", *(("train", "text", "glue") if trains else ())):
        if not options.plot and not getattr(options, name):
            parser.error(f"--{name} is needed")
    return options


def main() -> None:
    options = parse()
    if options.plot:
        results = read_json(options.plot)
        print(f"wrote {', '.join(map(str, plot(results, Path(options.plots))))}\n")
        print(table(results))
        return
    bench = Bench(options, Path(options.results or f"{options.out}/results.json"))
    if set(options.only) - set(SPEEDS):
        options.searched = hold_out(Path(options.train), Path(options.out) / "data", 0.06)
        bench.go(options.only)
    for stage in sorted(set(options.only) & set(SPEEDS)):
        bench.results[stage] = speeds(bench.results, options, SPEEDS[stage])
        write_json(bench.path, bench.results)
    print(table(bench.results))
    if bench.failed:
        raise SystemExit(f"{', '.join(bench.failed)}: failed; {bench.path} has the others")


if __name__ == "__main__":
    main()
