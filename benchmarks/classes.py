"""Paper 2's classification on one GPU, by the recipes of recipes/bertvision: heads on the first token's frozen states.

    python benchmarks/classes.py --model M --squad-train train.json --squad-dev dev.json --glue GLUE --out runs/classes
    python benchmarks/classes.py --plot runs/classes/results.json --plots benchmarks/plots

Answer or no answer, and MRPC, RTE, SST-2, CoLA (GLUE/MRPC/train.tsv.gz, dev.tsv.gz, …), after 0.2, 1 and 3 epochs of
the encoder, each a run of its own: its rate is constant, so that a run of 0.2 epoch is the beginning of that of 3.
Dev sets of GLUE are small: without several seeds, differences are noise.

Runs lie beside each other in `--workers` processes. RESULTS has every run as soon as it has ended, and what is there is
not run again; a run that was cut short goes on.
"""

from __future__ import annotations

import argparse
import json
import statistics
from collections.abc import Iterator, Sequence
from concurrent.futures import as_completed
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from pool import Facts, Job, overrides, read, spread, work, workers
from quoth.data.source import read_source
from quoth.files import atomic_file, read_json, write_json

RECIPES = Path(__file__).parent.parent / "recipes" / "bertvision"
AT = (0.2, 1, 3)  # epochs of the encoder
ENCODER = "encoder"  # its own head, which learnt with it
ANSWERABLE = "answerable"
# Recipe, score, and the authors' follow-up: BERT-base after 1 epoch → with a head.
GLUE = {
    "MRPC": ("mrpc", "acc", "82.0 → 84.0"),
    "RTE": ("rte", "acc", "63.9 → 72.6"),
    "SST-2": ("sst2", "acc", "92.7 → 92.7"),
    "CoLA": ("cola", "mcc", "53.4 → 60.0"),
}
LARGEST_FIRST = (ANSWERABLE, "SST-2", "CoLA", "MRPC", "RTE")
# Paper 2, BERT-large: EM / F1 after 0.2, 1 and 3 epochs.
PAPER = {
    ENCODER: ("68.7 / 63.6", "76.1 / 72.0", "80.4 / 79.0"),
    "lp": ("69.7 / 65.0", "78.2 / 76.3", "81.1 / 79.5"),
    "lp-adapter-386": ("68.5 / 64.6", "78.1 / 76.5", "–"),
    "ap-adapter-386": ("69.1 / 62.4", "77.9 / 76.5", "–"),
    "xception-short": ("67.3 / 70.2", "78.5 / 78.2", "–"),
    "xception-short-cls": ("67.2 / 56.4", "78.3 / 78.0", "–"),
    "xception-full": ("70.7 / 71.0", "78.3 / 76.6", "–"),
}


@dataclass(frozen=True)
class Run:
    """A run to be: a task, so many epochs of the encoder and heads on it, a seed."""

    task: str
    at: float
    seed: int
    job: Job

    @property
    def name(self) -> str:
        """Its name in RESULTS."""
        return Path(self.job.out).name

    @property
    def words(self) -> list[str]:
        """What it is known again by."""
        return [*self.job.words, f"optimisation.tokens={self.job.tokens}"]


def make_runs(options: argparse.Namespace) -> list[Run]:
    """All runs asked for, the longest first, so that no worker ends long after the others."""
    tasks = {"answerable": (ANSWERABLE,), "glue": tuple(GLUE)}.get(options.only, LARGEST_FIRST)
    return [
        make_run(options, task, at, seed)
        for task in LARGEST_FIRST
        if task in tasks
        for at in sorted(AT, reverse=True)
        for seed in range(options.answerable_seeds if task == ANSWERABLE else options.seeds)
    ]


def make_run(options: argparse.Namespace, task: str, at: float, seed: int) -> Run:
    """A recipe brought to this model, these data, so many epochs."""
    if task == ANSWERABLE:
        recipe, train, dev = ANSWERABLE, options.squad_train, options.squad_dev
        rate, tokens, more = options.rate, options.tokens, [f"frozen.windows={options.head_windows}"]
    else:
        recipe = GLUE[task][0]
        train, dev = (Path(options.glue) / task / f"{part}.tsv.gz" for part in ("train", "dev"))
        rate, tokens = options.glue_rate, options.glue_tokens
        more = [f"data.fraction={options.sst2_fraction}"] if task == "SST-2" else []
    words = (
        *overrides(options.model, train, dev, rate, at),
        f"frozen.at=[{at:g}]",
        f"frozen.rate={options.head_rate}",
        f"seed={seed}",
        *more,
        *options.set,
    )
    out = f"{options.out}/{recipe}-{at:g}-seed{seed}"
    return Run(task, at, seed, Job(RECIPES / f"{recipe}.toml", words, tokens, out))


def thin(train: Path, folder: Path, share: float) -> Path:
    """A SQuAD file with all unanswerable questions, and so many of the others that those are `share` of all."""
    data = json.loads(read_source(train))
    passages = [passage for article in data["data"] for passage in article["paragraphs"]]
    places = [(i, j) for i, passage in enumerate(passages) for j, qa in enumerate(passage["qas"]) if qa["answers"]]
    count = sum(len(passage["qas"]) for passage in passages) - len(places)
    kept = np.random.default_rng(0).permutation(len(places))[: round(count * (1 - share) / share)]
    chosen = {places[i] for i in kept}
    for i, passage in enumerate(passages):
        passage["qas"] = [qa for j, qa in enumerate(passage["qas"]) if not qa["answers"] or (i, j) in chosen]
    for article in data["data"]:
        article["paragraphs"] = [passage for passage in article["paragraphs"] if passage["qas"]]
    data["data"] = [article for article in data["data"] if article["paragraphs"]]
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"train-{share:g}.json"
    write_json(path, data)
    return path


def carry_out(run: Run) -> tuple[Run, Facts]:
    """In a worker: train, and what tables and plots need of it."""
    _, facts = work(run.job)
    if "error" in facts:
        return run, facts
    (stage,) = facts["frozen"].values()
    heads = {
        name: {key: head[key] for key in ("quality", "curve", "parameters") if key in head}
        for name, head in stage["heads"].items()
    }
    if run.task == ANSWERABLE:
        for name, best in at_best_threshold(run).items():
            heads[name] |= best
    kept = {key: facts[key] for key in ("train_seconds", "windows_per_second", "wall", "hardware", "versions")}
    return run, {**kept, "heads_seconds": stage["train_seconds"], "heads": heads}


def at_best_threshold(run: Run) -> dict[str, dict[str, float]]:
    """The scores of every head at the thresholds of the logits that are best for them.

    Where "no answer" is rarer in the training data than in the dev data, every head says it too seldom by itself.
    """
    from quoth.model.loading import load
    from quoth.tasks.classes import class_data, class_logits
    from quoth.windows.tokenizer import Tokens

    recipe, folder = read(run.job), Path(run.job.out)
    stage = folder / "frozen" / f"epoch-{run.at:g}"
    places = {ENCODER: folder / "model", **{name: stage / name / "model" for name in recipe.frozen.heads}}
    tokens = Tokens.load(folder / "model")
    data = class_data((recipe.data.evaluate,), recipe.data, tokens)
    found = {}
    for name, place in places.items():
        logits = class_logits(load(place), data.windows, best_device(), None)
        scores = np.full(len(data.labels), -np.inf)
        np.maximum.at(scores, data.windows.question, logits[:, 1] - logits[:, 0])  # any window that says "no answer"
        found[name] = thresholds(scores, data.labels)
    return found


def thresholds(scores: np.ndarray, labels: np.ndarray) -> dict[str, float]:
    """The highest accuracy and the highest F1 of "scores ≥ threshold", over all thresholds, in per cent. (n,), (n,)"""
    order = np.argsort(-scores, kind="stable")
    said = np.arange(len(labels) + 1)
    hits = np.append(0, np.cumsum(labels[order]))
    ends = np.append(np.append(True, np.diff(scores[order]) != 0), True)  # equal scores fall on one side
    right = hits + (len(labels) - labels.sum()) - (said - hits)
    f1 = 2 * hits / np.maximum(said + labels.sum(), 1)
    return {"best_exact": 100 * float(right[ends].max()) / len(labels), "best_f1": 100 * float(f1[ends].max())}


def best_device() -> str:
    import torch

    return "cuda" if torch.cuda.is_available() else "cpu"


def measure(options: argparse.Namespace, path: Path) -> dict[str, Any]:
    """Do the runs that the results file does not have yet; it is written after each."""
    results: dict[str, Any] = read_json(path) if path.exists() else {"runs": {}}
    runs = make_runs(options)
    left = [run for run in runs if results["runs"].get(run.name, {}).get("words") != run.words]
    print(f"{len(runs) - len(left)} of {len(runs)} runs are there, {len(left)} to go", flush=True)
    failed = []
    if left:
        with workers(min(options.workers, len(left)), [run.job for run in left]) as pool:
            for future in as_completed([pool.submit(carry_out, run) for run in left]):
                run, facts = future.result()
                print(f"{run.name:24s} {summary(run, facts)}", flush=True)
                if "error" in facts:
                    failed.append(run.name)
                    continue
                own = {"task": run.task, "at": run.at, "seed": run.seed, "words": run.words}
                results["machine"] = {key: facts.pop(key) for key in ("hardware", "versions")}
                results["runs"][run.name] = {**own, **facts}
                write_json(path, results)
    if failed:
        raise SystemExit(f"{', '.join(failed)}: failed; {path} has the others")
    return results


def summary(run: Run, facts: Facts) -> str:
    if "error" in facts:
        return str(facts["error"])
    key = "f1" if run.task == ANSWERABLE else GLUE[run.task][1]
    scores = " ".join(f"{head['quality'][key]:.1f}" for head in facts["heads"].values())
    seconds = [facts[name] for name in ("train_seconds", "heads_seconds", "wall")]
    return f"{key} {scores}  encoder {seconds[0]:.1f} s, heads {seconds[1]:.1f} s, all {seconds[2]:.1f} s"


def chosen(results: dict[str, Any], task: str, at: float) -> list[dict[str, Any]]:
    """The heads of the runs of a task after so many epochs, by seed: the encoder's own first."""
    found = [run for run in results["runs"].values() if (run["task"], run["at"]) == (task, at)]
    found.sort(key=lambda run: int(run["seed"]))
    order = sorted(found[0]["heads"], key=lambda name: name != ENCODER) if found else []
    return [{name: run["heads"][name] for name in order} for run in found]


def table(results: dict[str, Any]) -> str:
    """The tables of RESULTS.md, so far as they were run."""
    return "\n\n".join("\n".join(lines) for lines in (answerable_table(results), glue_table(results)) if len(lines) > 2)


def answerable_table(results: dict[str, Any]) -> list[str]:
    """Answer or no answer: a row a head and epoch of the encoder."""
    lines = [
        "| epochs | head | parameters | EM / F1 | at its best epoch | at the best thresholds | paper, BERT-large |",
        "|---|---|---|---|---|---|---|",
    ]
    for number, at in enumerate(AT):
        seeds = chosen(results, ANSWERABLE, at)
        for name in seeds[0] if seeds else ():
            heads = [heads[name] for heads in seeds]
            looks = [max(head["curve"], key=lambda look: look["f1"]) for head in heads if "curve" in head]
            best = pair(looks) if looks else "–"
            size = f"{heads[0]['parameters']:,}" if "parameters" in heads[0] else "–"
            lines.append(
                f"| {at:g} | {name} | {size} | {pair([head['quality'] for head in heads])} | {best} | "
                f"{pair(heads, 'best_')} | {PAPER[name][number]} |"
            )
    return lines


def pair(values: Sequence[dict[str, float]], prefix: str = "") -> str:
    """EM / F1, of several seeds their means."""
    return " / ".join(spread([value[prefix + key] for value in values]) for key in ("exact", "f1"))


def glue_table(results: dict[str, Any]) -> list[str]:
    """GLUE: a row a task and epoch of the encoder. The best head is that of the highest mean on the same dev set."""
    lines: list[str] = []
    for task, (_, key, paper) in GLUE.items():
        for at in AT:
            seeds = chosen(results, task, at)
            if not seeds:
                continue
            scores = {name: [heads[name]["quality"][key] for heads in seeds] for name in seeds[0]}
            names = [name for name in scores if name != ENCODER]
            best = max(names, key=lambda name: statistics.mean(scores[name]))
            if not lines:
                head = ["task", "epochs", "full tuning", "best head", *names, "follow-up, BERT-base, 1 epoch"]
                lines += [f"| {' | '.join(head)} |", "|" + "---|" * len(head)]
            cells = [f"{task}, {key}", f"{at:g}", spread(scores[ENCODER]), f"{spread(scores[best])} ({best})"]
            cells += [*(spread(scores[name]) for name in names), paper if at == 1 else ""]
            lines.append(f"| {' | '.join(cells)} |")
    return lines


def plot(results: dict[str, Any], folder: Path) -> Path | None:
    """The paper's figure 3: F1 over the epochs of the heads, a panel an epoch of the encoder."""
    import matplotlib
    from matplotlib.figure import Figure

    from quoth.report.plots import STYLE

    panels = {at: seeds for at in AT if (seeds := chosen(results, ANSWERABLE, at))}
    if not panels:
        return None
    with matplotlib.rc_context(STYLE):
        figure = Figure(figsize=(1.5 + 3.2 * len(panels), 3.8))
        axes = figure.subplots(1, len(panels), sharey=True, squeeze=False)[0]
        for axis, (at, seeds) in zip(axes, panels.items()):
            own = statistics.mean(heads[ENCODER]["quality"]["f1"] for heads in seeds)
            axis.axhline(own, color="black", linestyle="--", label="encoder itself")
            for name, epochs, scores in curves(seeds):
                axis.plot(epochs, scores, marker="o", ms=3, label=name)
            axis.set_title(f"encoder after {at:g} epoch{'s' if at != 1 else ''}", fontsize="medium")
            axis.set_xlabel("epochs of the heads")
        axes[0].set_ylabel('F1 of "no answer"')
        axes[-1].legend(loc="upper left", bbox_to_anchor=(1.0, 1.0), fontsize="small")
        path = folder / "answerable.svg"
        with atomic_file(path) as part:
            figure.savefig(part, format="svg", metadata={"Date": None}, bbox_inches="tight")
    return path


def curves(seeds: Sequence[dict[str, Any]]) -> Iterator[tuple[str, list[float], list[float]]]:
    """Of every head on frozen states its name, the epochs at which it was scored, and F1 there, the mean over seeds."""
    for name, head in seeds[0].items():
        if "curve" not in head:
            continue
        looks = zip(*([look["f1"] for look in heads[name]["curve"]] for heads in seeds))
        yield name, [look["epoch"] for look in head["curve"]], [statistics.mean(values) for values in looks]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="bert-base-uncased")
    parser.add_argument("--squad-train")
    parser.add_argument("--squad-dev")
    parser.add_argument("--glue", help="a folder with MRPC, RTE, SST-2 and CoLA, each with train.tsv.gz and dev.tsv.gz")
    parser.add_argument("--out", default="runs/classes")
    parser.add_argument("--only", choices=("answerable", "glue"))
    parser.add_argument(
        "--share", type=float, help="of unanswerable questions in training, by leaving others out (SQuAD 2.0: 0.33)"
    )
    parser.add_argument("--seeds", type=int, default=3, help="of GLUE")
    parser.add_argument("--answerable-seeds", type=int, default=1)
    parser.add_argument("--workers", type=int, default=8)
    parser.add_argument("--tokens", type=int, default=16384, help="a step of the encoder; answerable")
    parser.add_argument("--rate", type=float, default=1e-4, help="of the encoder; answerable")
    parser.add_argument(
        "--glue-tokens", type=int, default=1024, help="some 16 pairs, as in the recipes, or 80 sentences"
    )
    parser.add_argument("--glue-rate", type=float, default=5e-5)
    parser.add_argument("--head-windows", type=int, default=128, help="a step of the heads; answerable")
    parser.add_argument("--head-rate", type=float, default=1e-3)
    parser.add_argument("--sst2-fraction", type=float, default=0.3, help="of SST-2's training data")
    parser.add_argument("--set", nargs="*", default=[], metavar="KEY=VALUE", help="laid over every recipe")
    parser.add_argument("--results", help="where the figures go; by default OUT/results.json")
    parser.add_argument(
        "--plot", metavar="RESULTS", help="draw the figure of an earlier run, print its tables, and end"
    )
    parser.add_argument("--plots", default="benchmarks/plots")
    options = parser.parse_args()
    if options.plot:
        results = read_json(options.plot)
        print(f"wrote {plot(results, Path(options.plots))}\n")
    else:
        for key in {"answerable": ("squad_train", "squad_dev"), "glue": ("glue",)}.get(
            options.only, ("squad_train", "squad_dev", "glue")
        ):
            if not getattr(options, key):
                parser.error(f"--{key.replace('_', '-')} is needed")
        if options.share:
            options.squad_train = thin(Path(options.squad_train), Path(options.out) / "data", options.share)
        results = measure(options, Path(options.results or f"{options.out}/results.json"))
    print(table(results))


if __name__ == "__main__":
    main()
