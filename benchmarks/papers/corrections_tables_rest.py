"""The tables of points 7 to 9 of benchmarks.papers.corrections_gpu."""

from __future__ import annotations

from benchmarks.papers.corrections_results import (
    BOTH,
    LOSSES,
    LOST,
    TUNED_SCORES,
    Get,
    Results,
    frozen_score,
    made,
    thirds,
    told,
)
from benchmarks.papers.corrections_runs import DEPTHS, HEADS, SPAN, TEACHER
from benchmarks.papers.schubert_tables import sizes
from benchmarks.pool import Facts
from quoth.encoder.shape import Shape
from quoth.prune.latency import Latency


def skip(found: Results) -> str:
    """Point 7: LP + adapter with skip, as its published size says, and without."""
    rows, name, depth = [], "6/heads", f"{DEPTHS[-1]:g}"
    stage = found.of(name)[0]["frozen"][depth] if found.of(name) else {}
    for head, text in (("lp-adapter-386 no skip", "without skip (before)"), ("lp-adapter-386", "with skip (now)")):
        if head in stage:
            score = found.mean(name, frozen_score(depth, head, "best_f1"))
            rows.append([text, f"{stage[head]['parameters']:,}", found.seeds(name), score])
    text = "Skip: LP + adapter 386 was without it; by its published number of parameters it has one."
    return told(text, made(["LP + adapter 386", "parameters", "seeds", f"best F1 ({depth} epoch)"], rows))


def masks(found: Results) -> str:
    """Point 7: trained on either way of masking, scored on both, then tuned."""

    def own(masks: str, key: str) -> Get:
        return lambda run: run["masks"][masks][key]

    rows = []
    for kind, when in (("whole words", "before"), ("tokens", "now")):
        name = f"7/{kind}"
        if found.of(name):
            cells = [f"{kind} ({when})"]
            for other in ("tokens", "whole words"):
                cells += [found.mean(name, own(other, "mlm_loss"), 3), found.mean(name, own(other, "mlm_accuracy"))]
            rows.append([*cells, *found.scores(f"tuned/{name}")])
    if found.of(HEADS) and rows:
        rows.append(["not trained on text", *"––––", *found.scores(f"tuned/{HEADS}")])
    columns = ["masks in training", "MLM loss, tokens", "accuracy, %", "MLM loss, whole words", "accuracy, %"]
    text = "Masks of the MLM loss: before, whole words; now tokens. Each training is scored with both."
    return told(text, made([*columns, *(f"then tuned: {name}" for name in TUNED_SCORES)], rows))


def rules(found: Results) -> str:
    """Point 7: the authors' rule on the tuned model."""
    rows = [list(map(str, row.values())) for run in found.of(TEACHER)[:1] for row in run.get("rules", [])]
    text = "The rule of BERTVision on a tuned model: before, an answer from [CLS] into the passage was “no answer”."
    return told(text, made(["decoding rule", "EM", "F1", "has-answer F1", "no-answer F1", "“no answer”"], rows))


def bits(found: Results) -> str:
    """Point 7: which heads have the same bits in two runs."""
    rows: list[list[str]] = []
    names: list[str] = []
    for source, when in (("old", "before"), ("new", "now")):
        pair = [run for time in ("once", "again") for run in found.of(f"7/{source} {time}")]
        if len(pair) == 2:
            first, second = (run["bits"] for run in pair)
            names = list(first)
            rows.append([when, *("yes" if first[name] == second[name] else "no" for name in names)])
    text = "Heads on frozen states, trained twice on the GPU from the same seed."
    return told(text, made(["the same bits of", *names], rows))


def options(found: Results) -> str:
    """Point 8."""
    rows = []
    names = {"on, on": "2/all, table 5", "on, off": "8/floor", "off, on": "8/give back", "off, off": BOTH}
    for text, name in names.items():
        if found.of(name):
            cells = [
                text.split(", ")[0],
                text.split(", ")[1] + {"on, on": " (before)", "off, off": " (now)"}.get(text, ""),
            ]
            cells += [found.seeds(name), found.size(name), found.hidden(name)]
            rows.append([*cells, *found.scores(name), *found.losses(name)])
    return made(["floor of 0.1", "units given back", "seeds", "M", "h", *TUNED_SCORES, *LOST], rows)


def albert(found: Results) -> str:
    """Point 9: ALBERT-e on text."""
    rows = []
    for run in found.of("9/albert-e before")[:1]:
        rows.append([f"before: {run['refused']}", *"––––––––"] if "refused" in run else ["before", *"––––––––"])
    name = "text/albert-e"
    for run in found.of(name)[:1]:
        start = run.get("start")
        if start:
            lost = [f"{start['losses'][key]:.3f}" for key in LOSSES]
            rows.append(["now: factorised, not yet cut", *sizes(start["shape"]), *lost, *"–––"])
        shape = sizes(run["shape"])
        rows.append(["now: cut", *shape, *found.losses(name), *found.scores(f"tuned/{name}")])
    columns = ["ALBERT-e", "M without embeddings", "M", *LOST, *(f"then tuned: {name}" for name in TUNED_SCORES)]
    return made(columns, rows)


def objectives(found: Results) -> str:
    """Point 9: what is cut where parameters, FLOPs or latency are the objective."""
    rows = []
    names = {"parameters": "9/parameters", "FLOPs": "9/flops", "latency": "9/latency"}
    for text, name in names.items():
        for run in found.of(name)[:1]:
            cells = [text, f"{run['cost']:.3f}", found.seeds(name), found.size(name), found.hidden(name)]
            cells += [f"{flops(run):.2f}", predicted(found, run), speed(found, run)]
            rows.append([*cells, *found.scores(name)[:2], *thirds(run)])
    columns = ["objective", "part of it", "seeds", "M", "h", f"GFLOPs a window of {SPAN}", "ms of blocks", "windows/s"]
    parts = [f"{what}, {part} four" for what in ("heads", "f") for part in ("bottom", "middle", "top")]
    return made([*columns, *TUNED_SCORES[:2], *parts], rows)


def flops(run: Facts) -> float:
    """10⁹ forward operations for a window."""
    return Shape.from_json(run["shape"]).flops(SPAN) * SPAN / 1e9


def predicted(found: Results, run: Facts) -> str:
    """Milliseconds of all blocks by the latencies that were measured before the runs, and the part of the unpruned."""
    table = found.results.get("latency")
    if not table:
        return "–"
    latency = Latency.from_json(table)
    own = latency(Shape.from_json(run["shape"]))
    whole = latency(Shape.from_json(run["unpruned"]["shape"]))
    return f"{1e3 * own:.2f} ({own / whole:.2f} ×)"


def speed(found: Results, run: Facts) -> str:
    """Windows/s of a shape, and the ratio to the unpruned one."""
    rates, runs = found.results.get("speeds", {}).get("rates", {}), found.results["runs"]
    own = [rate for name, rate in rates.items() if name in runs and runs[name]["shape"] == run["shape"]]
    return f"{own[0]['rate']:,.0f} ({own[0]['ratio']:.2f} ×)" if own else "–"
