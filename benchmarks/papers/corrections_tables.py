"""The tables of benchmarks.papers.corrections_gpu: what each correction changes, a section a point of the issue."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from benchmarks.papers.corrections_results import (
    BOTH,
    CONTROL,
    ENCODER,
    LOST,
    TUNED_SCORES,
    Get,
    Results,
    frozen_score,
    made,
    thirds,
)
from benchmarks.papers.corrections_runs import DEPTHS, HEADS, SHORT, SPAN, SQUAD1, TEACHER
from benchmarks.papers.corrections_tables_rest import albert, bits, masks, objectives, options, rules, skip
from benchmarks.papers.schubert_tables import sizes
from benchmarks.pool import Facts


def table(results: Facts) -> str:
    """All sections, so far as they were run."""
    found = Results(results)
    parts = [
        section(
            "1. Loss of gates and recovery",
            "Before, gates were trained and models recovered by distillation from the unpruned model; now both are by "
            "the loss of the task, or of pre-training, itself (Algorithm 1).",
            task_losses(found),
            text_losses(found),
            shapes(found),
        ),
        section(
            "2. Gates of the hidden size h",
            "Before, α of h was multiplied into every tensor that has this size; now into K, Q, V, P, D and G alone "
            "(table 5). By the task's loss; with floor and units given back on both sides, since before they were so.",
            gates(found),
        ),
        section(
            "3. Equal totals",
            "Before, rows had equal numbers of parameters without embeddings; now with them, as in the paper.",
            totals(found),
        ),
        section(
            "4. SQuAD 1.1",
            "Before, “SQuAD 1.1” was a model of SQuAD 2.0 with “no answer” switched off; now it is one tuned on "
            "answerable questions alone. Both on the answerable questions of the same data.",
            squad1(found),
        ),
        section(
            "5. Answer or no answer",
            "Before, a window had the label of its question; now it is “no answer” unless it holds the answer.",
            labels(found),
        ),
        section(
            "6. The control `linear`",
            "What a head gains over a linear head that is trained anew on the same frozen states, beside what it gains "
            "over the encoder's own head, which was all that was shown before.",
            heads(found),
            mrpc(found),
        ),
        section("7. Skip, masks, rule, equal bits", "", skip(found), masks(found), rules(found), bits(found)),
        section(
            "8. Floor of α, and units given back",
            "Before, both were always on; now they are off in the paper's recipes.",
            options(found),
        ),
        section(
            "9. ALBERT-e with an MLM head; FLOPs and latency as objectives",
            "Before, ALBERT-e was refused under the loss of pre-training, and the other objectives had no result.",
            albert(found),
            objectives(found),
        ),
    ]
    return "\n\n".join(part for part in parts if part)


def section(title: str, text: str, *tables: str) -> str:
    """A heading, a sentence and the tables that there are; nothing without tables."""
    given = [part for part in (text, *tables) if part]
    return "\n\n".join([f"### {title}", *given]) if any(tables) else ""


def by_loss(found: Results, prefix: str) -> Iterator[tuple[list[str], str]]:
    """Rows of point 1, from before to now: by which losses, and the name of the runs."""
    for losses in ("distillation, distillation", "distillation, task", "task, distillation", "task, task"):
        if found.of(f"{prefix}/{losses}"):
            when = {"distillation, distillation": " (before)", "task, task": " (now)"}.get(losses, "")
            gates, recovery = losses.split(", ")
            yield [f"{gates}{when}", recovery], f"{prefix}/{losses}"


def task_losses(found: Results) -> str:
    """Point 1 on questions."""
    rows = [
        [*cells, found.seeds(name), *found.scores(name), *found.losses(name)] for cells, name in by_loss(found, "1")
    ]
    unpruned = found.unpruned("1/")
    if unpruned and rows:
        scores = [f"{unpruned['quality'][key]:.1f}" for key in ("best_f1", "f1", "answered_f1")]
        rows.insert(0, ["unpruned", "–", "1", *scores, f"{unpruned['loss']:.3f}", "–", "–"])
    return made(["gates by", "recovery by", "seeds", *TUNED_SCORES, *LOST], rows)


def shapes(found: Results) -> str:
    """Point 1: where the two losses cut."""
    rows = []
    for data, prefix in (("questions", "1"), ("text", "text")):
        for cells, name in by_loss(found, prefix):
            run = found.of(name)[0]
            rows.append([data, " / ".join(cells), found.size(name), found.hidden(name), *thirds(run)])
    sizes = [f"{what}, {part} four layers" for what in ("heads", "f") for part in ("bottom", "middle", "top")]
    return made(["data", "gates / recovery by", "M", "h", *sizes], rows)


def text_losses(found: Results) -> str:
    """Point 1 under the loss of pre-training, then tuned on questions."""
    rows = []
    if found.of(HEADS):
        loss = found.mean(HEADS, lambda run: run["losses"][-1], 3)
        rows.append(["unpruned", "–", found.seeds(HEADS), loss, "–", "–", *found.scores(f"tuned/{HEADS}")])
    for cells, name in by_loss(found, "text"):
        rows.append([*cells, found.seeds(name), *found.losses(name), *found.scores(f"tuned/{name}")])
    columns = ["on text: gates by", "recovery by", "seeds", *LOST, *(f"then tuned: {name}" for name in TUNED_SCORES)]
    return made(columns, rows) if len(rows) > 1 else ""


def gates(found: Results) -> str:
    """Point 2."""
    rows = []
    for kind in ("all", "h"):
        for which, when in (("all tensors", "before"), ("table 5", "now")):
            name = f"2/{kind}, {which}"
            if found.of(name):
                alpha = [run["alpha"]["h"] for run in found.of(name)]
                other = [run["alpha"]["h"] for run in found.of(f"2/{kind}, all tensors")]
                same = [float(np.corrcoef(a, b)[0, 1]) for a, b in zip(alpha, other)]
                cells = [kind, f"{which} ({when})", found.seeds(name), found.size(name), found.hidden(name)]
                cells += [f"{np.mean(alpha):.3f}", f"{np.std(alpha[0]):.4f}", f"{np.mean(same):.2f}" if same else "–"]
                rows.append([*cells, *found.scores(name)[:2], *found.losses(name)[1:]])
    columns = ["cut", "gates of h on", "seeds", "M", "h", "mean α of h", "its deviation", "correlation with before"]
    return made([*columns, *TUNED_SCORES[:2], *LOST[1:]], rows)


def totals(found: Results) -> str:
    """Point 3."""
    rows = []
    for kind in ("all", "layers", "h", "uniform"):
        shared = {"all": BOTH, "layers": "3/layers, totals"}
        for how, when in (("without embeddings", "before"), ("totals", "now")):
            name = shared.get(kind, f"3/{kind}, {how}")
            if found.of(name) and (kind not in shared or when == "now"):
                label = "both" if kind in shared else f"{how} ({when})"
                cells = [kind, label, found.seeds(name), *sizes(found.of(name)[0]["shape"]), found.hidden(name)]
                rows.append([*cells, *found.scores(name), found.losses(name)[-1]])
    columns = ["row", "equal", "seeds", "M without embeddings", "M", "h", *TUNED_SCORES, LOST[-1]]
    return made(columns, rows)


def squad1(found: Results) -> str:
    """Point 4."""
    texts = ((TEACHER, "all questions, “no answer” off (before)"), (SQUAD1, "answerable questions alone (now)"))
    rows = [[text, found.seeds(name), found.score(name, "answered_f1")] for name, text in texts if found.of(name)]
    return made(["tuned on", "seeds", "F1 on answerable questions"], rows)


def labels(found: Results) -> str:
    """Point 5."""
    rows = []
    for length in (SPAN, SHORT):
        for head in (ENCODER, CONTROL, "lp"):
            for label, when in (("question", "before"), ("window", "now")):
                name = f"5/{length}, {label}"
                if found.of(name):
                    cells = [str(length), head, f"its {label}" if label == "question" else "the window itself"]
                    cells[-1] += f" ({when})"
                    rows.append([*cells, found.seeds(name), *class_cells(found, name, head)])
    columns = ["length", "head", "label of", "seeds", "EM", "F1", "best EM", "best F1", "said “no answer”, %"]
    return made([*columns, "right of one window, %", "of several, %"], rows)


def class_cells(found: Results, name: str, head: str) -> list[str]:
    """The scores of a head: of its own decision, at the best threshold, and by the number of windows."""

    def own(key: str) -> Get:
        return lambda run: float(next(iter(run["frozen"].values()))[head]["quality"][key])

    def best(key: str) -> Get:
        return lambda run: run["thresholds"][head][key]

    keys = ("best_exact", "best_f1", "said", "one window", "several windows")
    return [found.mean(name, own(key)) for key in ("exact", "f1")] + [found.mean(name, best(key)) for key in keys]


def heads(found: Results) -> str:
    """Point 6: every head beside the encoder's own and the control."""
    name, rows = "6/heads", []
    depths = [f"{depth:g}" for depth in DEPTHS]
    for head in found.of(name)[0]["frozen"][depths[-1]] if found.of(name) else ():
        cells = [head]
        for depth in depths:
            overs = ("", ENCODER, CONTROL)
            cells += [found.mean(name, frozen_score(depth, head, "best_f1", over)) for over in overs]
        rows.append(cells)
    columns = [f"{text} (epoch {depth})" for depth in depths for text in ("best F1", "over encoder", "over linear")]
    return made([f"head, seeds: {found.seeds(name)}", *columns], rows)


def mrpc(found: Results) -> str:
    """Point 6 on GLUE."""
    name, rows = "6/MRPC", []
    for head in found.of(name)[0]["frozen"]["3"] if found.of(name) else ():
        cells = [
            found.mean(name, frozen_score(depth, head, "acc", over))
            for depth in "13"
            for over in ("", ENCODER, CONTROL)
        ]
        rows.append([head, *cells])
    columns = [f"{text} (epoch {depth})" for depth in "13" for text in ("accuracy", "over encoder", "over linear")]
    return made([f"MRPC, seeds: {found.seeds(name)}", *columns], rows)
