"""The runs of benchmarks.papers.corrections_gpu: a small one for each corrected point, before and after.

A run is a recipe that ships, with overrides, by the code of this checkout ("new") or by that of the commit before the
corrections ("old"). Runs with the same name but for the seed are one row. The order is that of importance: if the time
is up, the last ones are missing.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

KEEP = 0.735  # of all parameters: what 7 of MiniLM's 12 layers and the embeddings are
ENCODER_KEEP = 0.6  # the same without embeddings
TEACHER, SQUAD1, HEADS, CLASSES = "teacher", "squad1", "pretraining-heads", "answerable"
SPAN, TEXT = 386, 128  # tokens of a window
SHORT = 192
TASK, DISTIL = (1, 0, 0), (0, 1, 1)  # weights of the loss: task, logits, states
DEPTHS = (0.3, 1)  # epochs of the encoder on which heads are trained
CLASS_HEAD = '{kind = "class", labels = 2, pooled = true}'
LINES = {
    "linear": "linear",
    "lp": "pool(learned) > linear",
    "adapter-64-skip": "compress(64) > skip > linear",
    "adapter-386": "compress(386) > linear",
    "adapter-386-skip": "compress(386) > skip > linear",
    "lp-adapter-386 no skip": "pool(learned) > compress(386) > linear",
    "lp-adapter-386": "pool(learned) > compress(386) > skip > linear",
    "joined": "(compress(386) + pool(learned) > compress(386)) > linear",
}
CLAIMED = ("1/task, task", "1/distillation, distillation", "2/all", "6/heads", "5/", TEACHER, SQUAD1)
ALSO = ("3/", "8/", "9/", "6/MRPC", "text/task", "text/distillation, distillation", "tuned/")
EXTRA = ("1/distillation, task", "1/task, distillation", "2/h, all tensors", "2/h, table 5")
REPEATED = {
    "lp": "pool(learned) > linear",
    "adapter-386": "compress(386) > linear",
    "cnn-1xn": "cnn(1xN) > linear",
    "lp-adapter-cnn-nxn": "pool(learned) > compress(386) > cnn(NxN) > linear",
}


@dataclass(frozen=True)
class Run:
    """A run to be.

    how: "train", "prune", or "fit" (heads of pre-training on the frozen encoder)
    base: the run whose model it begins from, "" for the encoder as it came; also: what is measured beside
    refused: the code before the corrections refuses it; what it says is the result
    """

    name: str
    how: str
    recipe: str
    overrides: tuple[str, ...]
    base: str = ""
    source: str = "new"
    seed: int = 0
    also: tuple[str, ...] = ()
    refused: bool = False

    @property
    def id(self) -> str:
        """Its name and seed, which is its folder too."""
        return f"{self.name}-seed{self.seed}"

    def model(self, out: str) -> str:
        """The folder of its model."""
        kept = [
            value.removeprefix("target.keep=[")[:-1] for value in self.overrides if value.startswith("target.keep=")
        ]
        part = f"keep-{kept[0]}/" if self.how == "prune" else ""
        return f"{out}/{self.id}/{part}model"

    def order(self, options: argparse.Namespace) -> dict[str, object]:
        """What a worker is told."""
        model = Path(made(options)[self.base].model(options.out) if self.base else options.model).absolute()
        changes = [f"model={model}", f"seed={self.seed}", "checkpoints.seconds=3600", *self.overrides]
        own = {"how": self.how, "recipe": self.recipe, "overrides": changes, "also": list(self.also)}
        places = {"out": f"{options.out}/{self.id}", "windows": f"{options.out}/windows"}
        return {**own, **places, "refused": self.refused, "steps": options.head_steps}


def made(options: argparse.Namespace) -> dict[str, Run]:
    """All runs by id."""
    return {run.id: run for run in make_runs(options)}


def make_runs(options: argparse.Namespace) -> list[Run]:
    """All runs in the order of importance: each point once, what differences are claimed of again, then the rest."""
    teacher = Run(
        TEACHER, "train", "bertvision/fine-tuning", tuned(options, options.train, options.evaluate), also=("rules",)
    )
    every = [teacher, heads_of_pretraining(options), frozen(options), *labels(options), squad1(options)]
    every += [*pruned(options), *on_text(options), *repeated(options), mrpc(options), *after_text(options)]
    found = [run for run in every if run.name not in EXTRA]
    for seed in range(1, options.seeds):
        found += [replace(run, seed=seed) for run in every if run.name.startswith(CLAIMED)]
    found += [run for run in every if run.name in EXTRA]
    for seed in range(1, options.seeds):
        found += [replace(run, seed=seed) for run in every if run.name.startswith(ALSO) and not run.refused]
    return found


def tuned(options: argparse.Namespace, train: object, evaluate: object, epochs: float | None = None) -> tuple[str, ...]:
    """Tuning on questions, all weights."""
    return (
        *span(train, evaluate),
        "evaluation.at=[]",
        "optimisation.schedule=linear",
        "optimisation.warmup_ratio=0.1",
        *training("optimisation", options, epochs or options.epochs, options.learning_rate),
    )


def span(train: object, evaluate: object) -> tuple[str, ...]:
    return (f"data.train={train}", f"data.evaluate={evaluate}", "data.task=span", f"data.max_length={SPAN}")


def training(table: str, options: argparse.Namespace, epochs: float, rate: float) -> tuple[str, ...]:
    return f"{table}.epochs={epochs:g}", f"{table}.learning_rate={rate:g}", f"{table}.batch_size={options.batch_size}"


def squad1(options: argparse.Namespace) -> Run:
    """Tuned on answerable questions alone, scored on those."""
    train, evaluate = options.answerable
    return Run(SQUAD1, "train", "bertvision/fine-tuning", tuned(options, train, evaluate))


def heads_of_pretraining(options: argparse.Namespace) -> Run:
    return Run(HEADS, "fit", "pretrain", text(options))


def text(options: argparse.Namespace) -> tuple[str, ...]:
    return (f"data.train={options.text}", "data.task=pretrain", "data.held_out=0.02", f"data.max_length={TEXT}")


def pruned(options: argparse.Namespace) -> list[Run]:
    """Points 1, 2, 3, 8 and 9 under the loss of the task. All begin from the teacher."""

    def run(name: str, *more: str, recipe: str = "all", gates: Sequence[int] = TASK, recovery: Sequence[int] = TASK,
            keep: float = KEEP, source: str = "new") -> Run:  # fmt: skip
        changes = (*span(options.train, options.evaluate), f"data.fraction={options.fraction:g}", "data.held_out=0")
        changes += pruning(options, recipe, gates, recovery, keep)
        own = f"schubert/{recipe}" if source == "new" else "prune"
        return Run(name, "prune", own, (*changes, *more), f"{TEACHER}-seed0", source)

    kept, both = "target.embeddings=false", ("gates.floor=0.1", "target.give_back=true")
    return [
        run("1/distillation, distillation", gates=(0, 1, 0), recovery=DISTIL),
        run("1/task, task"),
        run("2/all, all tensors", source="old"),
        run("2/all, table 5", *both),
        run("3/h, without embeddings", kept, recipe="h", keep=ENCODER_KEEP),
        run("3/h, totals", recipe="h"),
        run("3/layers, totals", recipe="layers"),
        run("3/uniform, without embeddings", kept, recipe="uniform", keep=ENCODER_KEEP),
        run("3/uniform, totals", recipe="uniform"),
        run("8/floor", both[0]),
        run("8/give back", both[1]),
        run("9/parameters", "target.multiple=8"),
        run("9/flops", "target.multiple=8", "target.by=flops", keep=ENCODER_KEEP),
        run("9/latency", "target.multiple=8", "target.by=latency", keep=ENCODER_KEEP),
        run("1/distillation, task", gates=(0, 1, 0)),
        run("1/task, distillation", recovery=DISTIL),
        run("2/h, all tensors", "target.kinds=h", source="old"),
        run("2/h, table 5", *both, recipe="h"),
    ]  # fmt: skip


def pruning(
    options: argparse.Namespace, recipe: str, gates: Sequence[int], recovery: Sequence[int], keep: float
) -> tuple[str, ...]:
    """How a row is cut and recovers; weights are those of a loss (task, logits, states)."""
    weights = ("task_weight", "logits_weight", "states_weight")
    found = (
        f"target.keep=[{keep:g}]",
        *(f"distillation.{name}={value}" for name, value in zip(weights, recovery)),
        *training("recovery", options, options.recovery_epochs, options.learning_rate),
        "recovery.warmup_ratio=0.1",
    )
    if recipe == "layers":
        return found
    own = (f"gates.gamma={options.gamma:g}", f"gates.learning_rate={options.gate_learning_rate:g}")
    size = (f"gates.steps={options.gate_steps}", f"gates.batch_size={options.gate_batch_size}")
    return (*found, *own, *size, *(f"gates.{name}={value}" for name, value in zip(weights, gates)))


def on_text(options: argparse.Namespace) -> list[Run]:
    """Points 1, 7 and 9 under the loss of pre-training."""
    base = f"{HEADS}-seed0"

    def run(name: str, recipe: str = "all", gates: Sequence[int] = TASK, recovery: Sequence[int] = TASK) -> Run:
        changes = (*text(options), *pruning(options, recipe, gates, recovery, KEEP))
        changes += (f"recovery.epochs={options.text_epochs:g}",)
        more = (f"start.embedding={options.embedding}", "start.epochs=1") if recipe == "albert-e" else ()
        return Run(name, "prune", f"schubert/{recipe}", (*changes, *more), base)

    albert = run("text/albert-e", recipe="albert-e")
    masked = (*text(options), "evaluation.at=[]", *training("optimisation", options, options.text_epochs, 1e-4))
    words = [
        Run(f"7/{name}", "train", "pretrain", (*masked, f"data.whole_words={value}"), base, also=("masks",))
        for name, value in (("whole words", "true"), ("tokens", "false"))
    ]
    return [
        run("text/distillation, distillation", gates=(0, 1, 0), recovery=DISTIL),
        run("text/task, task"),
        replace(
            albert,
            name="9/albert-e before",
            recipe="prune",
            overrides=(*albert.overrides, 'data.evaluate=""'),
            source="old",
            refused=True,
        ),
        albert,
        *words,
    ]


def after_text(options: argparse.Namespace) -> list[Run]:
    """What a loss of pre-training left, tuned on questions."""
    changes = tuned(options, options.train, options.evaluate, options.recovery_epochs)
    changes += (f"data.fraction={options.fraction:g}",)
    bases = [HEADS, *(run.name for run in on_text(options) if not run.refused)]
    return [Run(f"tuned/{base}", "train", "bertvision/fine-tuning", changes, f"{base}-seed0") for base in bases]


def labels(options: argparse.Namespace) -> list[Run]:
    """Point 5: answer or no answer, a third of the questions without; and heads with their control."""
    made = []
    for length, step in ((SPAN, 128), (SHORT, 64)):
        for source in ("old", "new"):
            changes = (
                f"data.train={options.thinned}",
                f"data.evaluate={options.evaluate}",
                f"data.max_length={length}",
                f"data.step={step}",
                *training("optimisation", options, options.label_epochs, options.learning_rate / 2),
                *heads({"linear": CLASS_HEAD, "lp": class_line("pool(learned) > linear")}, (options.label_epochs,)),
                "frozen.epochs=5",
                "frozen.evaluate=[]",
            )
            name = f"5/{length}, {'question' if source == 'old' else 'window'}"
            made.append(Run(name, "train", "bertvision/answerable", changes, source=source, also=("thresholds",)))
    return made


def class_line(line: str) -> str:
    return f'{{kind = "chain", line = "{line}", labels = 2, pooled = true}}'


def heads(lines: dict[str, str], at: Sequence[float]) -> tuple[str, ...]:
    """Heads on a frozen encoder. Lines are TOML values."""
    table = ", ".join(f"{json.dumps(name)} = {line}" for name, line in lines.items())
    return f"frozen.at={json.dumps(list(at))}", f"frozen.heads={{{table}}}"


def frozen(options: argparse.Namespace) -> Run:
    """Points 6 and 7: heads with their control, with skip and without."""
    changes = (
        *span(options.train, options.evaluate),
        f"data.fraction={options.heads_fraction:g}",
        *training("optimisation", options, max(DEPTHS), options.learning_rate / 2),
        *heads({name: json.dumps(line) for name, line in LINES.items()}, DEPTHS),
        f"frozen.batch_size={options.batch_size}",
    )
    return Run("6/heads", "train", "bertvision/heads", changes)


def repeated(options: argparse.Namespace) -> list[Run]:
    """Point 7: heads on the frozen teacher, twice by either code."""
    changes = (
        *span(options.train, options.evaluate),
        f"data.fraction={options.repeated_fraction:g}",
        "optimisation.epochs=0",
        *heads({name: json.dumps(line) for name, line in REPEATED.items()}, (0,)),
        f"frozen.batch_size={options.batch_size}",
    )
    base, also = f"{TEACHER}-seed0", ("bits",)
    return [
        Run(f"7/{source} {time}", "train", "bertvision/heads", changes, base, source, also=also)
        for source in ("old", "new")
        for time in ("once", "again")
    ]


def mrpc(options: argparse.Namespace) -> Run:
    """Point 6 on GLUE: the control beside heads on the states of one sentence pair."""
    changes = (
        f"data.train={options.glue}/MRPC/train.tsv.gz",
        f"data.evaluate={options.glue}/MRPC/dev.tsv.gz",
        *training("optimisation", options, 3, 1e-4),
        "optimisation.batch_size=32",
        "frozen.at=[1, 3]",
    )
    return Run("6/MRPC", "train", "bertvision/mrpc", changes)
