"""The span tables of BERTVision (Jiang, Benge, King 2022) on one GPU: every head on the states of one encoder.

    python -m benchmarks.papers.bertvision --model M --train train.json --evaluate dev.json --out runs/bertvision
    python -m benchmarks.papers.bertvision … --only curves           # less data: another, small run
    python -m benchmarks.papers.bertvision --plot results.json --plots benchmarks/plots

1. heads: the encoder for 2 epochs at a constant learning rate, frozen at 0 (the control), 0.3, 1 and 2; on each, all
   heads of bertvision/heads, with sizes of 386, 64 and 145 (386·384/1024, which keeps the paper's ratio), for one
   epoch; the deep ones at 0.3 and 1 alone; among them the control `linear`, the last layer's head trained anew, which
   does not count as a best head. Then ensembles of the encoder and its best head, and the authors' own
   decoding rule.
2. curves: bertvision/less-data, the heads scored after 1 … 100 % of the data.

Interrupted, the same command resumes both. `--results` is written after each stage.
"""

from __future__ import annotations

import argparse
import shutil
import tomllib
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from benchmarks.pool import overrides
from benchmarks.race import markdown
from quoth.files import read_json, write_json
from quoth.recipes import find_recipe

DEEP = {"lp-adapter-inception": (0.3,), "lp-adapter-xception": (0.3, 1)}  # the authors have no Inception at 1 epoch
OTHER = 145
ENCODER = "encoder"
CONTROL = "linear"  # the last layer's linear head, trained anew: what a head gains without reading other layers
# The authors' EM / F1 at 0.3 and at 1 epoch, as fractions of 1.
PAPER = {
    "encoder": (".654/.702", ".728/.777"),
    CONTROL: ("control, ours", "control, ours"),
    "lp": (".670/.712", ".731/.766"),
    "lp-cnn-1xn": (".675/.721", ".745/.789"),
    "ap-cnn-1xn": (".657/.700", ".742/.786"),
    "cnn-1xn": (".673/.720", ".745/.789"),
    "cnn-1xn-dilated": (".655/.701", "n/a"),
    "cnn-1xn-no-dropout": (".670/.717", ".744/.789"),
    "adapter-64": (".677/.730", ".739/.785"),
    "adapter-64-skip": (".680/.732", ".742/.787"),
    "adapter-64-each": (".684/.716", ".736/.782"),
    "adapter-64-each-skip": (".689/.733", ".736/.784"),
    "adapter-386": (".660/.703", ".749/.790"),
    "adapter-386-skip": (".699/.740", ".740/.786"),
    "adapter-386-each": (".676/.723", ".714/.769"),
    "adapter-386-each-skip": (".676/.723", ".716/.767"),
    "lp-adapter-386": (".691/.734", ".741/.786"),
    "joined": (".691/.734", ".745/.789"),
    "lp-adapter-cnn-1xn": (".670/.720", ".748/.789"),
    "lp-adapter-cnn-nxn": (".690/.731", ".747/.786"),
    "lp-adapter-inception": (".501/.501", "n/a"),
    "lp-adapter-xception": (".668/.711", ".741/.786"),
    "ensemble": (".691/.734", ".756/.798"),
}


def lines() -> dict[str, Any]:
    """The heads of the recipe, and those that compress with the other size as well."""
    table = tomllib.loads(find_recipe("bertvision/heads").read_text(encoding="utf-8"))["frozen"]["heads"]
    found: dict[str, Any] = dict(table)
    for name, line in table.items():
        if "386" in line and not any(deep in line for deep in ("cnn", "inception", "xception")):
            renamed = name.replace("386", str(OTHER)) if "386" in name else f"{name}-{OTHER}"
            found[renamed] = line.replace("386", str(OTHER))
    return found


def recipe(options: argparse.Namespace, name: str, epochs: float) -> Any:
    """A recipe of the paper with this model and these data, and steps of tokens in the place of 8 and 16 windows."""
    from quoth.train.recipe import read_recipe

    changes = overrides(options.model, options.train, options.evaluate, options.learning_rate, epochs)
    found = read_recipe(find_recipe(f"bertvision/{name}"), [*changes, f"seed={options.seed}"])
    optimisation = replace(found.optimisation, batch_size=None, batch_tokens=options.batch_tokens)
    frozen = replace(found.frozen, batch_size=options.head_batch_size, learning_rate=options.head_learning_rate)
    return replace(found, optimisation=optimisation, frozen=frozen)


def heads_run(options: argparse.Namespace) -> dict[str, Any]:
    """The run of all heads, its ensembles, and the authors' rule."""
    from quoth.tasks import prepare
    from quoth.train.build import build_model
    from quoth.train.run import train

    made = recipe(options, "heads", options.epochs)
    at = tuple(sorted({0.0, *(a for a in (0.3, 1.0) if a <= options.epochs), options.epochs}))
    heads = {name: line for name, line in lines().items() if not options.heads or name in options.heads}
    for name, own in DEEP.items():
        if name not in heads:
            continue
        heads[name] = {"head": heads[name], "at": [a for a in own if a in at]}
        if options.no_deep or not heads[name]["at"]:
            del heads[name]
    made = replace(made, frozen=replace(made.frozen, at=at, heads=heads))
    task = prepare(made.data, build_model(made), made.seed, made.evaluation.max_answer_tokens)
    run = options.out / "heads"
    train(made, run, task=task, tell=lambda text: print(text, flush=True))
    facts = read_json(run / "metrics.json")
    found = {
        "encoder": {key: facts[key] for key in ("quality", "train_seconds", "steps", "evaluations") if key in facts}
    }
    found["stages"] = {epoch: stage_facts(run, epoch, stage, task) for epoch, stage in facts["frozen"].items()}
    return {**found, "recipe": made.to_toml(), "windows": len(task.examples)}


def stage_facts(run: Path, epoch: str, stage: Mapping[str, Any], task: Any) -> dict[str, Any]:
    """A stage's metrics, and what the encoder with its best head gets.

    The best is that of the highest F1 at the best threshold, the control left out.
    """
    rows = {name: head for name, head in stage["heads"].items() if name not in (ENCODER, CONTROL)}
    best = max(rows, key=lambda name: rows[name]["quality"]["best_f1"])
    found: dict[str, Any] = {**stage, "best": best}
    if ENCODER not in stage["heads"]:
        return found  # the untuned encoder has no head of its own
    from quoth.answer.decode import decode
    from quoth.answer.reader import Reader
    from quoth.model.checkpoint import open_checkpoint
    from quoth.runtime.ensemble import EnsembleRunner, load_members
    from quoth.runtime.torch_runner import TorchRunner
    from quoth.score.quality import span_quality

    own = run / "snapshots" / f"epoch-{epoch}"
    folders = [own if own.exists() else run / "model", run / "frozen" / f"epoch-{epoch}" / best / "model"]
    models = load_members([open_checkpoint(folder) for folder in folders])
    windows, questions = task.evaluation.windows, task.dataset.questions
    contexts, ids = [q.context for q in questions], [q.id for q in questions]

    def quality(runner: Any, **how: Any) -> dict[str, Any]:
        logits = Reader(runner, task.tokenizer).logits(windows)
        return dict(span_quality(task.dataset, decode(windows, logits, contexts, ids=ids, **how))[1])

    for how in ("max", "mean", "sum"):
        runner = EnsembleRunner(models, how)
        found[f"ensemble_{how}"] = quality(runner, max_answer_tokens=task.max_answer_tokens)
    own_rule = {name: quality(TorchRunner(model), rule="bertvision") for name, model in zip((ENCODER, best), models)}
    return {**found, "authors_rule": own_rule}


def curves_run(options: argparse.Namespace) -> dict[str, Any]:
    """The run of less-data.toml."""
    from quoth.train.run import train

    made = recipe(options, "less-data", 1.0)
    run = options.out / "curves"
    train(made, run, tell=lambda text: print(text, flush=True))
    return {"frozen": read_json(run / "metrics.json")["frozen"], "recipe": made.to_toml()}


def keep(options: argparse.Namespace, results: dict[str, Any]) -> None:
    """What `quoth analyse` reads, of the encoder and the best head of each stage, beside the results."""
    folder = options.results.parent / "answers"
    for epoch, stage in results["heads"]["stages"].items():
        for name in (ENCODER, stage["best"]):
            source = options.out / "heads" / "frozen" / f"epoch-{epoch}" / name
            if (source / "answers.jsonl.gz").exists():
                target = folder / f"epoch-{epoch}-{name}"
                target.mkdir(parents=True, exist_ok=True)
                for file in ("answers.jsonl.gz", "metrics.json"):
                    shutil.copy(source / file, target / file)


def table(results: dict[str, Any]) -> str:
    """The tables of benchmarks/results/bertvision.md."""
    stages = results["heads"]["stages"]
    names = list(dict.fromkeys(name for stage in stages.values() for name in stage["heads"]))
    rows = []
    for name in [*names, *(f"ensemble_{how}" for how in ("max", "mean", "sum"))]:
        cells, size = [], ""
        for stage in stages.values():
            head = stage["heads"].get(name) or ({"quality": stage[name]} if name in stage else None)
            size = f"{head['parameters']:,}" if head and "parameters" in head else size
            cells.append("{exact:.1f} / {f1:.1f} / {best_f1:.1f}".format(**head["quality"]) if head else "")
        rows.append([name, size, *cells, *PAPER.get("ensemble" if name == "ensemble_max" else name, ("", ""))])
    epochs = [f"{epoch} e: EM / F1 / best F1" for epoch in stages]
    out = [markdown(["head", "parameters", *epochs, "paper .3 e", "1 e"], rows), ""]
    for epoch, stage in stages.items():
        pace, rules = stage["windows_per_second"], stage.get("authors_rule", {})
        rule = ", ".join(f"{name} {q['exact']:.1f} / {q['f1']:.1f}" for name, q in rules.items())
        out.append(f"{epoch} e: best {stage['best']}; {pace:,.0f} windows/s; by the authors' rule: {rule or '–'}")
    return "\n".join(out)


def plot(results: dict[str, Any], folder: Path) -> None:
    """Figure 2: F1 of heads that have seen a part of the data, beside the encoder's own."""
    import matplotlib

    matplotlib.use("svg")
    from matplotlib import pyplot

    folder.mkdir(parents=True, exist_ok=True)
    stages = results["curves"]["frozen"]
    figure, axes = pyplot.subplots(2, len(stages), figsize=(11, 8), squeeze=False, sharex=True)
    for column, (epoch, stage) in enumerate(stages.items()):
        for row, (key, label) in enumerate((("f1", "F1 at threshold 0"), ("best_f1", "F1 at the best threshold"))):
            axis = axes[row][column]
            for name, head in stage["heads"].items():
                if name == ENCODER:
                    axis.axhline(head["quality"][key], color="black", linestyle="--", label="the encoder itself")
                else:
                    x = [100 * point["epoch"] for point in head["curve"]]
                    axis.plot(x, [point[key] for point in head["curve"]], marker=".", label=name)
            axis.set_xscale("log")
            axis.set_ylabel(label)
            axis.set_title(f"encoder tuned for {epoch} epoch")
            axis.set_xlabel("% of the data that the heads have seen")
    axes[0][0].legend(fontsize=8)
    figure.tight_layout()
    figure.savefig(folder / "less-data.svg")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", help="a folder or hub name")
    parser.add_argument("--train", help="a SQuAD 2.0 file to train on")
    parser.add_argument("--evaluate", help="a SQuAD 2.0 file to score on")
    parser.add_argument("--out", type=Path, default=Path("runs/bertvision"), help="the folder of both runs")
    parser.add_argument("--results", type=Path, help="by default results.json in --out")
    parser.add_argument("--only", choices=["heads", "curves"], help="one of the two runs")
    parser.add_argument("--epochs", type=float, default=2.0, help="of the encoder, in the run of all heads")
    parser.add_argument("--learning-rate", type=float, default=1e-4, help="of the encoder")
    parser.add_argument("--batch-tokens", type=int, default=8192, help="tokens a step of the encoder")
    parser.add_argument("--head-learning-rate", type=float, default=1e-3, help="of the heads")
    parser.add_argument("--head-batch-size", type=int, default=32, help="windows a step of the heads")
    parser.add_argument("--seed", type=int, default=0, help="of everything random")
    parser.add_argument("--heads", nargs="+", help="some of the heads only")
    parser.add_argument("--no-deep", action="store_true", help="leave Inception and Xception out")
    parser.add_argument(
        "--plot", type=Path, metavar="RESULTS", help="draw the figure of an earlier run, print its table, and end"
    )
    parser.add_argument("--plots", type=Path, default=Path("benchmarks/plots"), help="the folder of figures")
    options = parser.parse_args()
    if options.plot:
        results = read_json(options.plot)
    else:
        options.results = options.results or options.out / "results.json"
        results = read_json(options.results) if options.results.exists() else {}
        for name, run in (("heads", heads_run), ("curves", curves_run)):
            if options.only in (None, name):
                results[name] = run(options)
                write_json(options.results, results)
        if "heads" in results:
            keep(options, results)
    if "heads" in results:
        print(table(results))
    if options.plot and "curves" in results:
        plot(results, options.plots)


if __name__ == "__main__":
    main()
