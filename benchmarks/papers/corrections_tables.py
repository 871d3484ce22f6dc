"""The tables of benchmarks.papers.corrections_gpu: what each correction changes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from benchmarks.papers.corrections_runs import DEPTHS, HEADS, SHORT, SPAN, SQUAD1, TEACHER
from benchmarks.papers.schubert_tables import sizes
from benchmarks.pool import Facts, spread
from benchmarks.race import markdown

SCORES = {"best_f1": "best F1", "f1": "F1 at 0", "answered_f1": "answerable F1"}
BOTH = "1/task, task"  # the paper's loss, equal totals, neither floor nor units given back: the row that most share
CONTROL, ENCODER = "linear", "encoder"


class Results:
    """Runs by name: those of all seeds together."""

    def __init__(self, results: Facts) -> None:
        self.results = results
        self.rows: dict[str, list[Facts]] = {}
        for run in sorted(results["runs"].values(), key=lambda run: int(run["seed"])):
            self.rows.setdefault(run["name"], []).append(run)

    def of(self, names: Sequence[str]) -> list[str]:
        """Those of the names that there are runs of."""
        return [name for name in names if name in self.rows]

    def mean(self, name: str, get: Callable[[Facts], float | None], digits: int = 1) -> str:
        """Mean ± deviation over seeds; – where there is none."""
        values = [value for value in map(get, self.rows.get(name, [])) if value is not None]
        if digits == 1:
            return spread(values) if values else "–"
        more = f" ± {np.std(values, ddof=1):.{digits}f}" if len(values) > 1 else ""
        return f"{np.mean(values):.{digits}f}{more}" if values else "–"

    def scores(self, name: str) -> list[str]:
        """The scores of questions."""
        return [self.mean(name, lambda run, key=key: run["quality"].get(key)) for key in SCORES]  # type: ignore[misc]

    def losses(self, name: str) -> list[str]:
        """Before, after the cut, recovered."""
        return [
            self.mean(name, lambda run, key=key: run["losses"].get(key), 3)  # type: ignore[misc]
            for key in ("before", "cut", "recovered")
        ]

    def sizes(self, name: str) -> list[str]:
        """Of the first seed: parameters without embeddings and all, in millions, and hidden size."""
        shape = self.rows[name][0]["shape"]
        return [*sizes(shape), str(shape["hidden"])]

    def seeds(self, name: str) -> str:
        """How many."""
        return str(len(self.rows.get(name, [])))


SIZES = ["M without embeddings", "M", "h"]
LOSSES = ["loss before", "after the cut", "recovered"]


def table(results: Facts) -> str:
    """All tables, so far as they were run."""
    found = Results(results)
    parts = [losses(found), on_text(found), gates(found), totals(found), squad1(found), labels(found), heads(found)]
    parts += [mrpc(found), skip(found), masks(found), rules(found), bits(found), options(found), objectives(found)]
    return "\n\n".join(part for part in parts if part)


def titled(title: str, columns: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    return f"**{title}**\n\n{markdown(list(columns), [list(row) for row in rows])}" if rows else ""


def losses(found: Results) -> str:
    """Point 1, the task's loss."""
    rows = []
    for loss in ("distillation, distillation", "distillation, task", "task, distillation", "task, task"):
        for name in found.of([f"1/{loss}"]):
            cells = [*loss.split(", "), found.seeds(name), *found.sizes(name), *found.scores(name)]
            rows.append([*cells, *found.losses(name), ffn(found.rows[name][0])])
    columns = ["gates by", "recovery by", "seeds", *SIZES, *SCORES.values(), *LOSSES, "heads; f, by layer"]
    return titled("1. Loss of gates and recovery, on questions", columns, rows)


def ffn(run: Facts) -> str:
    """Heads and FFN sizes from bottom to top."""
    layers = run["shape"]["layers"]
    return "; ".join(" ".join(str(layer[key]) for layer in layers) for key in ("heads", "ffn"))


def on_text(found: Results) -> str:
    """Points 1, 7 and 9 under the loss of pre-training."""
    rows = []
    names = [HEADS, *(f"text/{kind}" for kind in ("distillation, distillation", "distillation, task", "task, task"))]
    for name in found.of([*names, "text/albert-e"]):
        pruned = "shape" in found.rows[name][0]
        cells = ["unpruned" if name == HEADS else name.removeprefix("text/"), *(found.sizes(name) if pruned else "–––")]
        rows.append([*cells, *(found.losses(name) if pruned else "–––"), *found.scores(f"tuned/{name}")])
        start = found.rows[name][0].get("start")
        if start:
            lost = [f"{start['losses'][key]:.3f}" for key in ("before", "cut", "recovered")]
            rows.insert(
                -1, ["albert-e before gates", *sizes(start["shape"]), str(start["shape"]["hidden"]), *lost, *"–––"]
            )
    columns = ["gates, recovery by", *SIZES, *LOSSES, *(f"then tuned: {name}" for name in SCORES.values())]
    return titled("1 and 9. The same under the loss of pre-training (MLM + NSP)", columns, rows)


def gates(found: Results) -> str:
    """Point 2."""
    rows = []
    for kind in ("all", "h"):
        for which in ("all tensors", "table 5"):
            for name in found.of([f"2/{kind}, {which}"]):
                alpha = [run["alpha"]["h"] for run in found.rows[name]]
                other = [run["alpha"]["h"] for run in found.rows.get(f"2/{kind}, all tensors", [])]
                same = [float(np.corrcoef(a, b)[0, 1]) for a, b in zip(alpha, other)]
                cells = [kind, which, found.seeds(name), *found.sizes(name), f"{np.mean(alpha):.3f}"]
                cells += [f"{np.std(alpha[0]):.4f}", f"{np.mean(same):.2f}" if same else "–"]
                rows.append([*cells, *found.scores(name), *found.losses(name)])
    columns = ["cut", "gates of h on", "seeds", *SIZES, "mean α of h", "its deviation", "correlation with all tensors"]
    title = "2. Gates of h (by the task's loss, with floor and units given back, as the code before had them)"
    return titled(title, [*columns, *SCORES.values(), *LOSSES], rows)


def totals(found: Results) -> str:
    """Point 3."""
    rows = []
    for how in ("without embeddings", "totals"):
        names = {kind: f"3/{kind}, {how}" for kind in ("all", "h", "uniform", "layers")}
        names |= {"all": BOTH} if how == "totals" else {"layers": "3/layers, totals"}
        for kind in names:
            for name in found.of([names[kind]]):
                cells = [how, kind, found.seeds(name), *found.sizes(name), *found.scores(name)]
                rows.append([*cells, *found.losses(name), *speed(found, name)])
    columns = ["matched on", "row", "seeds", *SIZES, *SCORES.values(), *LOSSES, "windows/s"]
    return titled("3. Equal totals", columns, rows)


def speed(found: Results, name: str) -> list[str]:
    """Windows/s of a shape, and the ratio to the unpruned one."""
    rates = found.results.get("speeds", {}).get("rates", {})
    runs, shape = found.results["runs"], found.rows[name][0]["shape"]
    own = [rate for other, rate in rates.items() if other in runs and runs[other]["shape"] == shape]
    return [f"{own[0]['rate']:,.0f} ({own[0]['ratio']:.2f} ×)" if own else "–"]


def squad1(found: Results) -> str:
    """Point 4."""
    rows = [
        [text, found.seeds(name), found.mean(name, lambda run: run["quality"]["answered_f1"])]
        for name, text in ((TEACHER, "SQuAD 2.0, “answerable F1”"), (SQUAD1, "answerable questions alone"))
        if name in found.rows
    ]
    return titled("4. Tuned on", ["tuned on", "seeds", "F1 on answerable questions, “no answer” off"], rows)


def labels(found: Results) -> str:
    """Point 5."""
    rows = []
    for length in (SPAN, SHORT):
        for label in ("question", "window"):
            for name in found.of([f"5/{length}, {label}"]):
                for head in (ENCODER, CONTROL, "lp"):
                    rows.append([str(length), label, found.seeds(name), head, *class_cells(found, name, head)])
    columns = ["length", "label of", "seeds", "head", "EM", "F1", "best EM", "best F1", "said “no answer”, %"]
    columns += ["right of one window, %", "of several, %"]
    return titled("5. Answer or no answer", columns, rows)


def class_cells(found: Results, name: str, head: str) -> list[str]:
    """The scores of a head: of its own decision, at the best threshold, and by the number of windows."""

    def own(key: str) -> Callable[[Facts], float]:
        return lambda run: float(next(iter(run["frozen"].values()))[head]["quality"][key])

    def best(key: str) -> Callable[[Facts], float | None]:
        return lambda run: run["thresholds"][head][key]  # type: ignore[no-any-return]

    keys = ("best_exact", "best_f1", "said", "one window", "several windows")
    return [found.mean(name, own(key)) for key in ("exact", "f1")] + [found.mean(name, best(key)) for key in keys]


def heads(found: Results) -> str:
    """Point 6: every head beside the encoder's own and the control."""
    name, rows = "6/heads", []
    runs = found.rows.get(name, [])
    for head in runs[0]["frozen"][f"{DEPTHS[-1]:g}"] if runs else ():
        cells = [head]
        for depth in DEPTHS:

            def score(run: Facts, head: str = head, depth: float = depth, key: str = "best_f1") -> float:
                return float(run["frozen"][f"{depth:g}"][head]["quality"][key])

            def over(run: Facts, other: str, score: Callable[..., float] = score) -> float:
                return score(run) - score(run, head=other)

            cells += [found.mean(name, score), found.mean(name, lambda run, s=score: s(run, key="f1"))]  # type: ignore[misc]
            cells += [found.mean(name, lambda run, o=over, x=x: o(run, x)) for x in (ENCODER, CONTROL)]  # type: ignore[misc]
        rows.append(cells)
    columns = [
        f"{text} ({depth:g} e)" for depth in DEPTHS for text in ("best F1", "F1 at 0", "over encoder", "over linear")
    ]
    return titled(f"6 and 7. Heads on frozen states, {found.seeds(name)} seeds", ["head", *columns], rows)


def mrpc(found: Results) -> str:
    """Point 6 on GLUE."""
    runs = found.rows.get("6/MRPC", [])
    rows = [
        [head, *(found.mean("6/MRPC", lambda run, d=depth: run["frozen"][d][head]["quality"]["acc"]) for depth in "13")]  # type: ignore[misc]
        for head in (runs[0]["frozen"]["3"] if runs else ())
    ]
    return titled(f"6. MRPC, accuracy, {found.seeds('6/MRPC')} seeds", ["head", "1 epoch", "3 epochs"], rows)


def skip(found: Results) -> str:
    """Point 7: parameters of LP + adapter with skip and without, at this hidden size."""
    runs = found.rows.get("6/heads", [])
    sizes = runs[0]["frozen"][f"{DEPTHS[-1]:g}"] if runs else {}
    names = [name for name in ("lp-adapter-386 no skip", "lp-adapter-386", "joined") if name in sizes]
    return "; ".join(f"{name}: {sizes[name]['parameters']:,} parameters" for name in names)


def masks(found: Results) -> str:
    """Point 7: trained on either way of masking, scored on both, then tuned."""
    rows = []
    for kind in ("whole words", "tokens"):
        for name in found.of([f"7/{kind}"]):
            cells = [kind]
            for other in ("tokens", "whole words"):
                for key, digits in (("mlm_loss", 3), ("mlm_accuracy", 1)):
                    cells.append(found.mean(name, lambda run, o=other, k=key: run["masks"][o][k], digits))  # type: ignore[misc]
            rows.append([*cells, *found.scores(f"tuned/{name}")])
    if HEADS in found.rows and rows:
        rows.insert(0, ["not trained on text", *"––––", *found.scores(f"tuned/{HEADS}")])
    columns = ["masks in training", "MLM loss, tokens", "accuracy", "MLM loss, whole words", "accuracy"]
    return titled("7. Masks", [*columns, *(f"then tuned: {name}" for name in SCORES.values())], rows)


def rules(found: Results) -> str:
    """Point 7: the authors' rule on the tuned model."""
    rows = [list(map(str, row.values())) for run in found.rows.get(TEACHER, [])[:1] for row in run.get("rules", [])]
    columns = ["rule", "EM", "F1", "has-answer F1", "no-answer F1", "“no answer”"]
    return titled("7. The rule of BERTVision on the tuned model, seed 0", columns, rows)


def bits(found: Results) -> str:
    """Point 7: which heads have the same bits in two runs."""
    rows = []
    for source in ("old", "new"):
        pair = [found.rows.get(f"7/{source} {time}") for time in ("once", "again")]
        if all(pair):
            first, second = (runs[0]["bits"] for runs in pair if runs)
            equal = ["yes" if first[head] == second[head] else "no" for head in first]
            rows.append(["before" if source == "old" else "after", *equal])
    names = list(found.rows["7/new once"][0]["bits"]) if rows and "7/new once" in found.rows else []
    return titled("7. The same bits of frozen heads in two runs", ["code", *names], rows) if names else ""


def options(found: Results) -> str:
    """Point 8."""
    names = {"off, off": BOTH, "on, off": "8/floor", "off, on": "8/give back", "on, on": "2/all, table 5"}
    rows = [
        [*text.split(", "), found.seeds(name), *found.sizes(name), *found.scores(name), *found.losses(name)]
        for text, name in names.items()
        if name in found.rows
    ]
    columns = ["floor of 0.1", "units given back", "seeds", *SIZES, *SCORES.values(), *LOSSES]
    return titled("8. gates.floor and target.give_back", columns, rows)


def objectives(found: Results) -> str:
    """Point 9: what is cut where parameters, FLOPs or latency are the objective."""
    rows = []
    names = {"parameters": BOTH, "parameters, multiples of 8": "9/parameters"}
    names |= {"FLOPs, multiples of 8": "9/flops", "latency, multiples of 8": "9/latency"}
    for text, name in names.items():
        for run in found.rows.get(name, [])[:1]:
            cells = [text, f"{run['cost']:.3f}", *found.sizes(name), f"{flops(run):.2f}", *speed(found, name)]
            rows.append([*cells, *found.scores(name), ffn(run)])
    columns = ["objective", "part", *SIZES, f"GFLOPs a window of {SPAN}", "windows/s", *SCORES.values()]
    return titled("9. FLOPs and latency as objectives", [*columns, "heads; f, by layer"], rows)


def flops(run: Facts) -> float:
    """10⁹ forward operations for a window."""
    from quoth.encoder.shape import Shape

    return Shape.from_json(run["shape"]).flops(SPAN) * SPAN / 1e9
