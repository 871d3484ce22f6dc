"""Paper 4's table and curves on one GPU, by the recipes of recipes/silva: layer attention, trained with the encoder.

    python benchmarks/silva.py --model M --train train.json --evaluate dev.json --out runs/silva
    python benchmarks/silva.py --plot runs/silva/results.json --plots benchmarks/plots

1. search: each row at each of `--search-rates` for 1 epoch, on `--train` without some articles, scored by F1 at the
   best threshold on those articles: `--evaluate` has no say in the rate, and no row is favoured
2. train: each row at its rate on all of `--train`, for `--epochs` with each seed and for `--long` with seed 0, scored
   on `--evaluate` on the way and at the end

Runs lie beside each other in `--workers` processes. RESULTS has every run as soon as it has ended, and what is there is
not run again: `--only search`, then `--only train`, may be two calls, and a call that was cut short goes on.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from pool import Job, best_rate, finished, hold_out, overrides, read, slug, spread, submit, workers
from quoth.files import atomic_file, read_json, write_json

RECIPES = Path(__file__).parent.parent / "recipes" / "silva"
STAGES = ("search", "train")
LOOKS = {"short": 8, "long": 10}  # evaluations of a run
POINTS = 200  # of a curve of losses, at most
SCORES = {"f1": "F1 at 0", "exact": "EM at 0", "best_f1": "F1 at best"}
CURVES = {
    "best_f1": "F1 at the best threshold",
    "f1": "F1 at threshold 0",
    "best_exact": "EM at the best threshold",
    "exact": "EM at threshold 0",
}
KEPT = ("quality", "evaluations", "trainable_parameters", "steps", "windows", "train_seconds", "peak_memory", "wall")


@dataclass(frozen=True)
class Row:
    """A row of the table: its recipe, and the paper's F1 / EM after 2 and after 5 epochs."""

    name: str
    recipe: str
    short: str = "–"
    long: str = "–"


ROWS = (
    Row("plain encoder", "albert", "79.64 / 76.54", "77.74 / 73.92"),
    Row("weighted", "weighted", "78.14 / 75.16"),
    Row("dot", "dot", "79.95 / 76.88", "78.40 / 74.58"),
    Row("multiplicative", "multiplicative", long="76.82 / 72.92"),
    Row("encoder block", "encoder", long="76.57 / 72.64"),
)


@dataclass(frozen=True)
class Run:
    """A run to be: of which row, for what, and the job."""

    row: str
    kind: str  # search, short or long
    rate: float
    seed: int
    job: Job

    @property
    def name(self) -> str:
        """Its name in RESULTS."""
        return f"{self.kind}/{Path(self.job.out).name}"


def make_run(options: argparse.Namespace, row: Row, kind: str, rate: float, seed: int, *words: str) -> Run:
    """A run in a folder of its own."""
    out = f"{options.out}/{kind}/{slug(row.name)}-{rate:g}-seed{seed}"
    return Run(row.name, kind, rate, seed, Job(RECIPES / f"{row.recipe}.toml", words, options.tokens, out))


def search_runs(options: argparse.Namespace, row: Row) -> list[Run]:
    """A row at each of the rates."""
    made = []
    learnt, held_out = options.searched
    for rate in options.search_rates:
        words = overrides(options.model, learnt, held_out, rate, options.search_epochs)
        made.append(make_run(options, row, "search", rate, 0, *words))
    return made


def train_runs(options: argparse.Namespace, row: Row, rate: float) -> list[Run]:
    """A row at its rate: the long run, and the short ones with each seed."""
    made = []
    for kind, epochs, seeds in (("long", options.long, 1), ("short", options.epochs, options.seeds)):
        at = [epochs * i / LOOKS[kind] for i in range(1, LOOKS[kind] + 1)]
        words = overrides(options.model, options.train, options.evaluate, rate, epochs)
        for seed in range(seeds):
            made.append(make_run(options, row, kind, rate, seed, *words, f"seed={seed}", f"evaluation.at={at}"))
    return made


def stage_runs(stage: str, options: argparse.Namespace, rates: dict[str, float]) -> list[Run]:
    """All runs of a stage, the longest first, so that no worker ends long after the others."""
    if stage == "search":
        return [run for row in ROWS for run in search_runs(options, row)]
    made = [run for row in ROWS for run in train_runs(options, row, rates[row.name])]
    return sorted(made, key=lambda run: run.kind != "long")


def choose_rates(results: dict[str, Any], options: argparse.Namespace) -> None:
    """Put into the results the scores of the search, and the rate of every row; `--rate` where nothing was searched."""
    scores: dict[str, dict[str, float]] = {row.name: {} for row in ROWS}
    for run in results["runs"].values():
        if run["kind"] == "search":
            scores[run["row"]][f"{run['rate']:g}"] = run["quality"]["best_f1"]
    ordered = {name: dict(sorted(found.items(), key=lambda item: float(item[0]))) for name, found in scores.items()}
    results["scores"] = ordered
    results["rates"] = {name: best_rate(found) if found else options.rate for name, found in ordered.items()}


def losses(folder: str) -> dict[str, list[float]]:
    """The losses that a run logged, as means of as few neighbours as make them `POINTS` at most."""
    with (Path(folder) / "log.jsonl").open(encoding="utf-8") as file:
        lines = [line for line in map(json.loads, file) if "loss" in line]
    size = -(-len(lines) // POINTS)
    groups = [lines[i : i + size] for i in range(0, len(lines), size)]
    means = [float(np.mean([line["loss"] for line in group])) for group in groups]
    return {"steps": [group[-1]["step"] for group in groups], "loss": [round(mean, 5) for mean in means]}


def record(run: Run, facts: dict[str, Any]) -> dict[str, Any]:
    """What tables and plots need of a run, and its words, by which it is known again."""
    own = {"row": run.row, "kind": run.kind, "rate": run.rate, "seed": run.seed, "words": words_of(run)}
    kept = {key: facts[key] for key in (*KEPT, "layer_weights") if key in facts}
    return {**own, **kept, "losses": losses(run.job.out)}


def words_of(run: Run) -> list[str]:
    return [*run.job.words, f"optimisation.tokens={run.job.tokens}"]


def carry_out(pool: Any, runs: Sequence[Run], results: dict[str, Any], path: Path) -> list[str]:
    """Do the runs that the results do not have yet; write these after each. Returns what failed."""
    known = results["runs"]
    left = [run for run in runs if known.get(run.name, {}).get("words") != words_of(run)]
    print(f"{len(runs) - len(left)} of {len(runs)} runs are there, {len(left)} to go", flush=True)
    failed = []
    by_folder = {run.job.out: run for run in left}
    for out, facts in finished(submit(pool, [run.job for run in left])):
        run = by_folder[out]
        if "error" in facts:
            failed.append(run.name)
            continue
        known[run.name] = record(run, facts)
        results["machine"] = {"hardware": facts["hardware"], "versions": facts["versions"]}
        write_json(path, results)
    return failed


def head_parameters(options: argparse.Namespace) -> dict[str, int]:
    """Of each row the parameters of its head, queries and all."""
    from quoth.train.build import build_model

    models = {row.name: build_model(read(train_runs(options, row, 1e-4)[0].job)) for row in ROWS}
    return {name: sum(value.numel() for value in model.head.parameters()) for name, model in models.items()}


def measure(options: argparse.Namespace, path: Path) -> dict[str, Any]:
    """The stages asked for, over what the results file has already."""
    stages = [options.only] if options.only else STAGES
    results: dict[str, Any] = read_json(path) if path.exists() else {"runs": {}}
    keys = ["model", "train", "evaluate", "tokens", "epochs", "long", "seeds"]
    keys += ["search_epochs", "search_rates"] if "search" in stages else []
    results["settings"] = {**results.get("settings", {}), **{key: getattr(options, key) for key in keys}}
    results["head_parameters"] = head_parameters(options)
    options.searched = hold_out(Path(options.train), Path(options.out) / "data", 0.06)
    anyhow = {row.name: options.rate for row in ROWS}
    samples = [run.job for stage in stages for run in stage_runs(stage, options, anyhow)]
    with workers(options.workers, samples) as pool:
        for stage in stages:
            choose_rates(results, options)
            failed = carry_out(pool, stage_runs(stage, options, results["rates"]), results, path)
            choose_rates(results, options)
            write_json(path, results)
            if failed and stage == "train":  # a rate that fails is just not chosen
                raise SystemExit(f"{', '.join(failed)}: failed; {path} has the others")
    return results


def chosen(results: dict[str, Any], row: str, kind: str) -> list[dict[str, Any]]:
    """The runs of a row at its rate, by seed."""
    wanted = {"row": row, "kind": kind, "rate": results["rates"][row]}
    found = [run for run in results["runs"].values() if wanted.items() <= run.items()]
    return sorted(found, key=lambda run: int(run["seed"]))


def table(results: dict[str, Any]) -> str:
    """The tables of RESULTS.md: the rates, and the rows so far as they were run."""
    lines = ["| rate search: F1 at best on held-out articles | |", "|---|---|"]
    for name, found in results["scores"].items():
        lines.append(f"| {name} | " + " · ".join(f"{rate}: {value:.1f}" for rate, value in found.items()) + " |")
    settings = results["settings"]
    times = {"short": f"{settings['epochs']:g} e", "long": f"{settings['long']:g} e"}
    heads = [f"{label}, {time}" for time in times.values() for label in (*SCORES.values(), "s")]
    heads = ["head", "own parameters", "rate", *heads, "paper F1 / EM, 2 e", "paper F1 / EM, 5 e"]
    lines += ["", f"| {' | '.join(heads)} |", "|---" * len(heads) + "|"]
    plain = results["head_parameters"][ROWS[0].name]
    for row in ROWS:
        own = results["head_parameters"][row.name] - plain
        cells = [row.name, f"{own:,}", f"{results['rates'][row.name]:g}"]
        for kind in times:
            runs = chosen(results, row.name, kind)
            cells += [spread([run["quality"][key] for run in runs]) if runs else "–" for key in SCORES]
            cells.append(f"{np.mean([run['train_seconds'] for run in runs]):.0f}" if runs else "–")
        lines.append(f"| {' | '.join([*cells, row.short, row.long])} |")
    return "\n".join(lines)


def smooth(values: np.ndarray, width: int = 5) -> np.ndarray:
    """The mean of `width` neighbours; of fewer at the ends."""
    ones = np.ones(min(width, len(values)))
    return np.asarray(np.convolve(values, ones, "same") / np.convolve(np.ones(len(values)), ones, "same"))


def plot(results: dict[str, Any], folder: Path) -> list[Path]:
    """The paper's figures 2–7: training loss over steps, F1 and EM over epochs."""
    import matplotlib

    matplotlib.use("svg")
    from matplotlib import pyplot

    settings = results["settings"]
    seeds = f"{settings['seeds']} seeds"
    titles = {"short": f"{settings['epochs']:g} epochs, {seeds}", "long": f"{settings['long']:g} epochs, one seed"}
    style = {"svg.fonttype": "none", "svg.hashsalt": "quoth", "axes.spines.top": False, "axes.spines.right": False}
    paths = []
    with matplotlib.rc_context(style):
        for name, draw, panels in (("loss", draw_losses, 1), ("dev", draw_scores, len(CURVES))):
            figure, axes = pyplot.subplots(
                panels, 2, figsize=(9, 1.2 + 2.6 * panels), sharex="col", sharey="row", squeeze=False
            )
            for column, (kind, title) in enumerate(titles.items()):
                axes[0, column].set_title(title, fontsize=10)
                for place, row in enumerate(ROWS):
                    runs = chosen(results, row.name, kind)
                    if runs:
                        draw(axes[:, column], runs, f"C{place}", row.name)
            handles, labels = axes[0, 0].get_legend_handles_labels()
            figure.legend(handles, labels, loc="lower center", ncols=len(ROWS), frameon=False, fontsize=8)
            figure.tight_layout(rect=(0, 0.3 / figure.get_figheight(), 1, 1))
            paths.append(folder / f"silva-{name}.svg")
            with atomic_file(paths[-1]) as part:
                figure.savefig(part, format="svg", metadata={"Date": None})
            pyplot.close(figure)
    return paths


def draw_losses(axes: Any, runs: Sequence[dict[str, Any]], colour: str, label: str) -> None:
    """The mean over seeds. The steps are the same for all seeds: they follow from the lengths of the windows."""
    values = np.mean([run["losses"]["loss"] for run in runs], 0)
    axes[0].plot(runs[0]["losses"]["steps"], smooth(values), color=colour, label=label, linewidth=1.2)
    axes[0].set(xlabel="step", ylabel="training loss", yscale="log")
    axes[0].yaxis.set_major_formatter("{x:g}")
    axes[0].yaxis.set_minor_formatter("{x:g}")
    axes[0].tick_params(axis="y", which="minor", labelsize=6)


def draw_scores(axes: Any, runs: Sequence[dict[str, Any]], colour: str, label: str) -> None:
    """The mean over seeds, with a band of one deviation to each side."""
    epochs = [look["epoch"] for look in runs[0]["evaluations"]]
    for axis, (key, name) in zip(axes, CURVES.items()):
        values = np.array([[look[key] for look in run["evaluations"]] for run in runs])
        mean = values.mean(0)
        axis.plot(epochs, mean, color=colour, label=label, linewidth=1.2, marker=".", markersize=4)
        if len(runs) > 1:
            deviation = values.std(0, ddof=1)
            axis.fill_between(epochs, mean - deviation, mean + deviation, color=colour, alpha=0.15, linewidth=0)
        axis.set_ylabel(name, fontsize=8)
    axes[-1].set_xlabel("epoch")


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="albert-base-v2")
    parser.add_argument("--train")
    parser.add_argument("--evaluate")
    parser.add_argument("--out", default="runs/silva")
    parser.add_argument("--only", choices=STAGES)
    parser.add_argument("--epochs", type=float, default=2.0, help="of the short runs")
    parser.add_argument("--long", type=float, default=5.0, help="epochs of the long run")
    parser.add_argument("--seeds", type=int, default=3, help="short runs of a row")
    parser.add_argument("--tokens", type=int, default=16384, help="a step")
    parser.add_argument("--rate", type=float, default=2e-4, help="of a row without a search")
    parser.add_argument("--search-rates", type=float, nargs="*", default=[5e-5, 1e-4, 2e-4, 4e-4])
    parser.add_argument("--search-epochs", type=float, default=1.0)
    parser.add_argument("--workers", type=int, default=12)
    parser.add_argument("--results", help="where the figures go, and are taken up from; by default OUT/results.json")
    parser.add_argument("--plot", help="draw the figures of an earlier run and end")
    parser.add_argument("--plots", default="benchmarks/plots")
    options = parser.parse_args()
    if not options.plot and not (options.train and options.evaluate):
        parser.error("--train and --evaluate are needed")
    return options


def main() -> None:
    options = parse()
    if options.plot:
        results = read_json(options.plot)
        plot(results, Path(options.plots))
    else:
        results = measure(options, Path(options.results or f"{options.out}/results.json"))
    print(table(results))


if __name__ == "__main__":
    main()
