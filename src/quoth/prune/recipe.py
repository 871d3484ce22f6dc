"""`PruneRecipe`: what a pruning run is made of, from a TOML file and overrides `key=value`, as for `quoth train`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal

from quoth.config import check_value, dump_toml, fill, read_table
from quoth.prune.dimensions import read_kinds
from quoth.prune.hpo import Search
from quoth.prune.penalty import PenaltyName
from quoth.tasks import Data, task_of
from quoth.train.distillation import DistillationLoss
from quoth.train.settings import Checkpoints, Compile, Optimisation, Schedule, check_dropout, check_optimiser


@dataclass(frozen=True)
class Target:
    """How small, by which cost, and what may be cut.

    keep: parts of the unpruned model's cost, from large to small, each saved as a model as it is reached
    by: "parameters", "flops" or "latency" (measured on this machine); embeddings: whether parameters count them
    kinds: "all", or some of the letters h, a, k, v, f; multiple: sizes, but for heads, are rounded up to multiples
    device: of latency, "cpu" or "cuda"; by default the one that the run computes on
    per_cost: rank by |α|/β and not by |α|; rounds: T of Algorithm 1, for each of the targets
    give_back: below the budget, let removed elements come back as long as they fit; Algorithm 1 does not
    fresh: begin each target from the unpruned model and not from the target before
    """

    keep: tuple[float, ...] = ()
    by: Literal["parameters", "flops", "latency"] = "parameters"
    embeddings: bool = True
    device: str = ""
    kinds: str = "all"
    multiple: int = 1
    per_cost: bool = False
    give_back: bool = False
    rounds: int = 1
    fresh: bool = False


@dataclass(frozen=True)
class Start:
    """What is done before the first round: keep so many layers (which: the "bottom" ones, or "even" ones from first to
    last), factorise the embeddings to size `embedding`, exchange the activation. The result is recovered, for `epochs`
    of its own if they are given, and saved as a target, `start`.

    activation: "relu" costs nothing at all in int8 (`quoth.export.quantise`), where GELU takes 6 % of the time
    """

    layers: int | None = None
    which: Literal["bottom", "even"] = "bottom"
    embedding: int | None = None
    activation: Literal["", "gelu", "gelu_tanh", "relu"] = ""
    epochs: float | None = None

    @property
    def changes(self) -> bool:
        """Whether anything is done at all."""
        return self.layers is not None or self.embedding is not None or bool(self.activation)


@dataclass(frozen=True)
class GateSettings:
    """How α is trained, the weights being fixed and dropout off.

    penalty, gamma: as in `quoth.prune.penalty`; steps, learning_rate, schedule: of AdamW on α alone
    batch_tokens, batch_size: how large a step is, by one of the two
    task_weight, logits_weight, states_weight, temperature: of the loss, as in `quoth.train.distillation`; by default
    the task's loss alone, as in Algorithm 1
    fold: multiply α into the weights; else α ranks only, and what is kept stays as it was
    floor: the least |α| that is multiplied into what stays, 0 for none, as in Algorithm 1. Weights near 0 on both sides
    of a product are hardly trained again
    """

    penalty: PenaltyName = "l1"
    gamma: float = 2e-3
    steps: int = 100
    learning_rate: float = 3e-3
    schedule: Schedule = "constant"
    batch_tokens: int | None = None
    batch_size: int | None = None
    precision: Literal["auto", "fp32", "bf16"] = "auto"
    compile: Compile = "graphs"
    task_weight: float = 1.0
    logits_weight: float = 0.0
    states_weight: float = 0.0
    temperature: float = 1.0
    fold: bool = True
    floor: float = 0.0

    @property
    def loss(self) -> DistillationLoss:
        """The weights of the loss."""
        return DistillationLoss(self.task_weight, self.logits_weight, self.states_weight, self.temperature)

    def optimisation(self) -> Optimisation:
        """The same as `quoth.train` wants it."""
        return Optimisation(
            learning_rate=self.learning_rate,
            schedule=self.schedule,
            batch_tokens=self.batch_tokens,
            batch_size=self.batch_size,
            precision=self.precision,
            compile=self.compile,
            warmup_ratio=0.0,
            weight_decay=0.0,
            max_grad_norm=0.0,
            adam_beta2=0.99,  # 0.999 would remember the first steps, in which all α fall together, to the end
        )


@dataclass(frozen=True)
class Recovery(DistillationLoss):
    """The loss of recovery, by default the task's alone, as in Algorithm 1.

    cache_folder, cache_gb: where the logits of named teachers are kept, as in `quoth.train.settings`
    """

    task_weight: float = 1.0
    logits_weight: float = 0.0
    cache_folder: str = ""
    cache_gb: float = 4.0


@dataclass(frozen=True)
class PruneRecipe:
    """A pruning run, described whole.

    teacher: a model to distil from in place of the unpruned one, or several, which are averaged
    (`quoth.prune.teacher`)
    states_of: whose hidden states are compared, those of the teacher or, if others teach the logits, "unpruned"
    method: "free", elements of all dimensions compete (the paper's); "uniform", every dimension keeps the same part;
    "layers", whole layers go (`start.which` says which stay)
    ranking: "gates", by trained α; controls that train none: "magnitude", "random", "first" (the first ones stay)
    recovery: how the cut model is trained after the last round of a target, as `optimisation` of `quoth train`
    round_epochs: the epochs of recovery after other rounds; distillation: its loss
    hpo: hyper-parameter search for gamma, learning_rate and steps of the gates, before the first round
    """

    model: str
    data: Data
    teacher: tuple[str, ...] = ()
    states_of: Literal["teacher", "unpruned"] = "teacher"
    seed: int = 0
    method: Literal["free", "uniform", "layers"] = "free"
    ranking: Literal["gates", "magnitude", "random", "first"] = "gates"
    round_epochs: float = 0.25
    target: Target = Target()
    start: Start = Start()
    gates: GateSettings = GateSettings()
    recovery: Optimisation = field(default_factory=Optimisation)
    distillation: Recovery = field(default_factory=Recovery)
    hpo: Search = field(default_factory=Search)
    max_answer_tokens: int = 30
    checkpoints: Checkpoints = field(default_factory=Checkpoints)

    def __post_init__(self) -> None:
        """Refuse values that no run can be made of."""
        object.__setattr__(self, "teacher", tuple(filter(None, self.teacher)))  # "" is none
        t, g, s = self.target, self.gates, self.start
        wanted = f"a folder or hub id of a model with a head for data.task {self.data.task!r} (quoth train makes one)"
        check_value(bool(self.model), "model", self.model, wanted)
        check_value(bool(t.keep) or s.changes, "target.keep", t.keep, "one part or several, such as 0.5")
        for part in t.keep:
            check_value(0 < part < 1, "target.keep", part, "above 0, below 1")
        check_value(list(t.keep) == sorted(set(t.keep), reverse=True), "target.keep", t.keep, "from large to small")
        read_kinds(t.kinds)
        for key, size in (("target.multiple", t.multiple), ("target.rounds", t.rounds), ("gates.steps", g.steps)):
            check_value(size >= 1, key, size, "at least 1")
        for key, count in (("start.layers", s.layers), ("start.embedding", s.embedding)):
            check_value(count is None or count >= 1, key, count, "at least 1")
        check_value(s.epochs is None or s.epochs >= 0, "start.epochs", s.epochs, "not negative")
        for key, value in (("gates.gamma", g.gamma), ("round_epochs", self.round_epochs), ("seed", self.seed)):
            check_value(value >= 0, key, value, "not negative")
        check_value(0 <= g.floor <= 1, "gates.floor", g.floor, "0 to 1")
        check_value(self.recovery.epochs >= 0, "recovery.epochs", self.recovery.epochs, "not negative")
        check_value(self.max_answer_tokens > 0, "max_answer_tokens", self.max_answer_tokens, "at least 1")
        check_dropout("recovery", self.recovery.dropout)
        check_optimiser("gates", g.optimisation())
        check_optimiser("recovery", self.recovery)
        g.loss.check("gates")
        self.distillation.check("distillation")
        cache = self.distillation.cache_gb
        check_value(cache > 0, "distillation.cache_gb", cache, "above 0")
        check_value(self.gated or not self.hpo.trials, "hpo.trials", self.hpo.trials, "0 where no gates are trained")
        self._check_teachers()

    def _check_teachers(self) -> None:
        """Refuse teachers that no loss compares with, and data that only they could label."""
        losses = {"distillation": self.distillation, **({"gates": self.gates.loss} if self.gated else {})}
        learnt = any(loss.name != "task" for loss in losses.values())
        wanted = "empty, or set distillation.logits_weight = 1: the default loss is the task's and needs no teacher"
        check_value(learnt or not self.teacher, "teacher", self.teacher, wanted)
        for key, loss in losses.items() if self.data.unlabelled.wanted else ():
            wanted = "above 0 with data.unlabelled, of which logits are all that can be learnt"
            check_value(loss.logits_weight > 0, f"{key}.logits_weight", loss.logits_weight, wanted)
        task = task_of(self.data)
        several = "one model with states_weight above 0 and states_of 'teacher', or with another data.task than 'span'"
        own = self.compares_states and self.states_of == "teacher"
        good = len(self.teacher) < 2 or (task.keeps_logits and not own)
        check_value(good, "teacher", self.teacher, several)
        wanted = f"'teacher' with data.task {self.data.task!r}"
        check_value(task.keeps_logits or self.states_of == "teacher", "states_of", self.states_of, wanted)

    @property
    def gated(self) -> bool:
        """Whether gates are trained."""
        return bool(self.target.keep) and self.ranking == "gates" and self.method != "layers"

    @property
    def losses(self) -> dict[str, str]:
        """By which loss gates are trained, if they are, and by which the smaller model recovers."""
        return {**({"gates": self.gates.loss.name} if self.gated else {}), "recovery": self.distillation.name}

    @property
    def compares_states(self) -> bool:
        """Whether hidden states are compared, those of gates or of recovery."""
        return bool(self.gates.states_weight or self.distillation.states_weight)

    def to_toml(self) -> str:
        """The recipe with all defaults written out; reads back as the same recipe."""
        return dump_toml(asdict(self))


def read_prune_recipe(path: str | Path, overrides: Sequence[str] = ()) -> PruneRecipe:
    """Read a recipe, with overrides such as `target.keep=0.5`."""
    return make_prune_recipe(read_table(path, overrides), str(path))


def make_prune_recipe(table: Mapping[str, Any], where: str = "recipe") -> PruneRecipe:
    """A recipe from a table of tables."""
    return fill(PruneRecipe, table, where)
