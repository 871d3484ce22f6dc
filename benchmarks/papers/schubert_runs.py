"""The runs of benchmarks.papers.schubert as overrides of recipes, and the best settings of its search."""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from benchmarks.pool import Facts, slug

LOSSES = ("task", "text")
KINDS = ("all", "h", "f", "uniform", "layers")
DEFAULT = (1e-3, 1e-2, 100)  # γ, learning rate and steps of the gates, where nothing was searched
DECIDING = {("all", 0.6), ("h", 0.6), ("layers", 0.6)}  # with several seeds
LARGER = (0.95, 0.84, 0.74, 0.63)  # 11, 9, 7 and 5 of MiniLM's 12 layers: one more than 0.9, 0.8, 0.7 and 0.6 allow
DISTILLED = (  # from the unpruned model: logits and states; the floor and units that come back are not in the paper
    "gates.task_weight=0",
    "gates.logits_weight=1",
    "gates.floor=0.1",
    "target.give_back=true",
    "distillation.task_weight=0",
    "distillation.logits_weight=1",
    "distillation.states_weight=1",
)
SEARCHED = 0.6
ALBERT_E = "albert-e"  # embeddings of 128, which leave 0.76 of MiniLM, then as `all`
MORE = {
    "all, T = 3": (0.6, ("target.rounds=3",)),
    "all on 9 layers": (0.6, ("start.layers=9",)),
    "all on 6 layers": (0.6, ("start.layers=6",)),
    "all, embeddings of 128": (0.6, ("start.embedding=128",)),
    "all, FLOPs": (0.6, ("target.by=flops",)),
    "all, latency": (0.6, ("target.by=latency",)),
}
GLUE = {"MRPC": 128, "RTE": 256, "SST-2": 128}  # and the longest window


@dataclass(frozen=True)
class Run:
    """A run to be: its name in RESULTS, what does it ("train", "prune" or "heads"), its recipe.

    overrides: of an empty recipe; facts: for tables; keep: whether other runs need its model, else it is removed
    """

    name: str
    how: str
    overrides: tuple[str, ...]
    facts: Facts = field(default_factory=dict)
    keep: bool = True

    def recipe(self) -> Any:
        """Of `quoth.prune` or of `quoth.train`."""
        from quoth.prune.recipe import make_prune_recipe
        from quoth.train.recipe import make_recipe, override

        found: dict[str, Any] = {}
        for change in self.overrides:
            override(found, change)
        return make_prune_recipe(found) if self.how == "prune" else make_recipe(found)

    def model(self, out: str) -> str:
        """The folder of its model."""
        part = f"keep-{self.facts['keep']:g}/" if self.how == "prune" else ""
        return f"{out}/{self.name}/{part}model"

    @property
    def source(self) -> str:
        """The folder of the model that it begins from."""
        return self.overrides[0].removeprefix("model=")


def on_squad(model: str, train: Sequence[Any], evaluate: Any) -> tuple[str, ...]:
    """A model and the questions it is trained on."""
    files = json.dumps([str(file) for file in train])
    return f"model={model}", f"data.train={files}", f"data.evaluate={evaluate}", "checkpoints.seconds=3600"


def on_text(model: str, text: str) -> tuple[str, ...]:
    """A model and the plain text it is trained on."""
    data = (f"data.train={text}", "data.task=pretrain", "data.held_out=0.02", "data.max_length=128")
    return f"model={model}", *data, "checkpoints.seconds=3600"


def training(table: str, epochs: float, rate: float, tokens: int) -> tuple[str, ...]:
    return f"{table}.epochs={epochs:g}", f"{table}.learning_rate={rate:g}", f"{table}.batch_tokens={tokens}"


def teacher_runs(options: argparse.Namespace) -> list[Run]:
    """The models that the others begin from."""
    made = []
    sources = {"teacher": (options.train, options.evaluate), "teacher-search": options.searched}
    for name, (train, evaluate) in sources.items():
        changes = on_squad(options.model, [train], evaluate)
        changes += training("optimisation", options.teacher_epochs, options.teacher_learning_rate, options.batch_tokens)
        made.append(Run(f"teacher/{name}", "train", changes, {"row": name}))
    changes = (*on_text(options.model, options.text), 'head={kind = "mlm"}')
    return [*made, Run("teacher/heads", "heads", changes, {"row": "heads", "most": options.head_steps})]


def pruning(
    options: argparse.Namespace, row: str, keep: float, gates: Sequence[float], rate: float, epochs: float
) -> tuple[str, ...]:
    """How a row is cut, and how it recovers; the last is the same for all rows but for the rate."""
    method = row if row in ("uniform", "layers") else "free"
    return (
        f"method={method}",
        f"target.keep=[{keep:g}]",
        f"target.kinds={row if method == 'free' and row != ALBERT_E else 'all'}",
        f"gates.gamma={gates[0]:g}",
        f"gates.learning_rate={gates[1]:g}",
        f"gates.steps={gates[2]:g}",
        f"gates.batch_tokens={options.gate_batch_tokens}",
        *training("recovery", epochs, rate, options.batch_tokens),
        *(("start.embedding=128",) if row == ALBERT_E else ()),
        *(DISTILLED if options.distil else ()),
        *options.set,
    )


def base(options: argparse.Namespace, loss: str, searching: bool = False) -> tuple[str, ...]:
    if loss == "text":
        return on_text(f"{options.out}/teacher/heads/model", options.text)
    if searching:
        train, held_out = options.searched
        return on_squad(f"{options.out}/teacher/teacher-search/model", [train], held_out)
    return on_squad(f"{options.out}/teacher/teacher/model", [options.train], options.evaluate)


def trial_run(options: argparse.Namespace, loss: str, number: int, gates: Sequence[float]) -> Run:
    """A trial of a study of the gates: row `all`, the middle rate of recovery."""
    return search_run(
        options, loss, "all", gates, options.learning_rates[len(options.learning_rates) // 2], f"trial{number}"
    )


def rate_runs(options: argparse.Namespace, choices: Facts) -> list[Run]:
    """Every row by every rate of recovery, with the best gates of the study."""
    made = []
    for loss in LOSSES:
        for row in KINDS:
            for rate in options.learning_rates:
                made.append(search_run(options, loss, row, gates_of(choices, loss), rate, f"{row}-{rate:g}"))
    return made


def search_run(options: argparse.Namespace, loss: str, row: str, gates: Sequence[float], rate: float, name: str) -> Run:
    changes = base(options, loss, searching=True)
    changes += pruning(options, row, SEARCHED, gates, rate, options.search_epochs)
    facts = {"loss": loss, "row": row, "keep": SEARCHED, "gates": list(gates), "rate": rate}
    return Run(f"search/{loss}-{name}", "prune", changes, facts, keep=False)


def gates_of(choices: Facts, loss: str) -> list[float]:
    """γ, learning rate and steps of the gates under a loss, the same for all rows."""
    return list(choices.get(loss, {}).get("gates", DEFAULT))


def rate_of(options: argparse.Namespace, choices: Facts, loss: str, row: str) -> float:
    middle = options.learning_rates[len(options.learning_rates) // 2]
    return float(choices.get(loss, {}).get("rates", {}).get("all" if row == "a" else row, middle))


def best_settings(results: Facts) -> Facts:
    """Of every loss the gates of the best trial, and of every row the best rate with these gates."""
    choices: Facts = {}
    found = {name: run for name, run in results["runs"].items() if name.startswith("search/")}
    for name, run in sorted(found.items(), key=lambda item: score(item[1])):  # the best comes last, and stays
        here = choices.setdefault(run["loss"], {"gates": list(DEFAULT), "rates": {}})
        if "-trial" in name:
            here["gates"] = run["gates"]
    for name, run in sorted(found.items(), key=lambda item: score(item[1])):
        if "-trial" not in name and run["gates"] == choices[run["loss"]]["gates"]:
            choices[run["loss"]]["rates"][run["row"]] = run["rate"]
    return choices


def score(run: Facts) -> float:
    """The score of the search: higher is better."""
    return float(run["quality"]["best_f1"] if run["loss"] == "task" else -run["quality"]["loss"])


def prune_runs(options: argparse.Namespace, choices: Facts, loss: str) -> list[Run]:
    """The rows of one loss."""
    epochs = options.epochs if loss == "task" else options.text_epochs
    wanted = [(row, keep) for keep in options.keep for row in KINDS] + [("a", 0.9)]
    wanted += [(ALBERT_E, 0.7)] if loss == "text" else []
    wanted += [("layers", keep) for keep in LARGER] if loss == "task" else []
    made = []
    for row, keep in wanted:
        for seed in range(options.seeds if (row, keep) in DECIDING else 1):
            gates, rate = gates_of(choices, loss), rate_of(options, choices, loss, row)
            changes = base(options, loss) + pruning(options, row, keep, gates, rate, epochs)
            facts = {"loss": loss, "row": row, "keep": keep, "seed": seed, "gates": gates, "rate": rate}
            facts["distilled"] = options.distil
            made.append(Run(f"{loss}/{row}-{keep:g}-seed{seed}", "prune", (*changes, f"seed={seed}"), facts))
    return made


def more_runs(options: argparse.Namespace, choices: Facts) -> list[Run]:
    """The paper's other baselines under the task's loss, with the best settings of `all`."""
    gates, rate = gates_of(choices, "task"), rate_of(options, choices, "task", "all")
    made = []
    for row, (keep, more) in MORE.items():
        changes = base(options, "task") + pruning(options, "all", keep, gates, rate, options.epochs)
        facts = {"loss": "more", "row": row, "keep": keep, "seed": 0, "gates": gates, "rate": rate}
        facts["distilled"] = options.distil
        made.append(Run(f"more/{slug(row)}", "prune", (*changes, *more), facts))
    return made


def tune_runs(options: argparse.Namespace, choices: Facts) -> list[Run]:
    """Every encoder pruned on plain text, and the unpruned one, tuned on every task."""
    sources = [(run.facts, run.model(options.out)) for run in prune_runs(options, choices, "text")]
    heads = f"{options.out}/teacher/heads/model"
    whole = [({"row": "unpruned", "keep": 1.0, "seed": seed}, heads) for seed in range(options.seeds)]
    made = []
    for task in ("SQuAD", *GLUE):
        for facts, model in whole + sources:
            if task == "SQuAD":
                changes = on_squad(model, [options.train], options.evaluate)
                changes += training(
                    "optimisation", options.tune_epochs, options.teacher_learning_rate, options.batch_tokens
                )
            else:
                changes = on_glue(options, task, model)
            own = {key: facts[key] for key in ("row", "keep", "seed")} | {"task": task}
            name = f"tune/{task}-{own['row']}-{own['keep']:g}-seed{own['seed']}"
            made.append(Run(name, "train", (*changes, f"seed={own['seed']}"), own, keep=False))
    return made


def on_glue(options: argparse.Namespace, task: str, model: str) -> tuple[str, ...]:
    files = [f"data.{to}={options.glue}/{task}/{part}.tsv.gz" for to, part in (("train", "train"), ("evaluate", "dev"))]
    more = [f"data.fraction={options.sst2_fraction}"] if task == "SST-2" else []
    return (
        f"model={model}",
        *files,
        "data.task=glue",
        f"data.max_length={GLUE[task]}",
        'head={kind = "class", labels = 2, pooled = true}',
        "checkpoints.seconds=3600",
        *training("optimisation", options.glue_epochs, options.glue_learning_rate, options.glue_batch_tokens),
        *more,
    )


def reader_runs(options: argparse.Namespace, choices: Facts) -> list[Run]:
    """Half of the teacher, by several kinds: sizes that hardware likes, more data, longer recovery."""
    made = []
    for name in options.reader_kinds:
        kinds, _, layers = name.partition("@")
        model = f"{options.out}/teacher/teacher/model"
        gates, rate = gates_of(choices, "task"), rate_of(options, choices, "task", "all")
        changes = on_squad(model, [options.train, *options.more], options.evaluate)
        changes += pruning(options, kinds, 0.5, gates, rate, options.reader_epochs)
        changes += (*DISTILLED, "target.embeddings=false", f"target.multiple={options.multiple}", *options.reader_set)
        changes += (f"start.layers={layers}", "start.epochs=0.3") if layers else ()
        facts = {"loss": "reader", "row": name, "keep": 0.5, "seed": 0, "gates": gates, "rate": rate}
        facts["distilled"] = True
        made.append(Run(f"reader/{slug(name)}", "prune", changes, facts))
    return made


def stage_runs(stage: str, options: argparse.Namespace, choices: Facts) -> list[Run]:
    """The runs of a stage, so far as they are known."""
    if stage == "gates":
        return []  # a study asks for them one by one
    if stage == "rates":
        return rate_runs(options, choices)
    if stage in LOSSES:
        return prune_runs(options, choices, stage)
    made = {"teacher": lambda: teacher_runs(options)}
    made |= {"more": lambda: more_runs(options, choices)}
    made |= {"tune": lambda: tune_runs(options, choices), "reader": lambda: reader_runs(options, choices)}
    return made[stage]()
