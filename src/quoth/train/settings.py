"""The tables of a training recipe, and what is wrong with a value in them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

from quoth.config import check_value, fill

Schedule = Literal["linear", "constant", "cosine"]
Compile = Literal["graphs", "off"]
LOGITS = "teacher-logits"  # in a run folder: what `TeacherLogits` keeps


@dataclass(frozen=True)
class Optimisation:
    """How the weights are trained.

    epochs: may be a fraction; learning_rate: the highest one
    batch_tokens, batch_size: tokens or windows of a step, by one of the two (8,192 tokens if neither is given), over
    all processes; gradient_accumulation_steps: into how many parts a step is split, to fit the memory
    schedule: after the warm-up, a fraction `warmup_ratio` of all steps, the learning rate falls linearly to 0, stays,
    or follows half a cosine to 0, begun anew `restarts` times
    weight_decay: not on norms and biases; max_grad_norm: the largest norm of all gradients, 0 for no limit
    dropout: of the encoder, by default the model's own; precision: "auto" is bf16 where the GPU has it, else fp32
    compile: "graphs" captures whole steps as CUDA graphs where that is possible; "off" launches kernel by kernel
    """

    epochs: float = 3.0
    learning_rate: float = 3e-5
    batch_tokens: int | None = None
    batch_size: int | None = None
    gradient_accumulation_steps: int = 1
    schedule: Schedule = "linear"
    restarts: int = 0
    warmup_ratio: float = 0.1
    weight_decay: float = 0.01
    max_grad_norm: float = 1.0
    adam_beta1: float = 0.9
    adam_beta2: float = 0.999
    adam_epsilon: float = 1e-8
    dropout: float | None = None
    precision: Literal["auto", "fp32", "bf16"] = "auto"
    compile: Compile = "graphs"

    @property
    def named_precision(self) -> str | None:
        """As `Device.choose` wants it: None is bf16 where the GPU has it."""
        return None if self.precision == "auto" else self.precision


@dataclass(frozen=True)
class Frozen:
    """Heads that are trained on the states of the frozen encoder, all in one pass.

    at: the epochs of the encoder at which it is frozen, 0 being the encoder as it was loaded; by default its end
    heads: by name, a line or table of `quoth.heads`, or a table with `head` and settings of its own (`OneHead`)
    evaluate: the epochs of the heads, fractions too, after which all of them are scored; their end always is
    cache_gb: of classes, the most GB that the states of first tokens may take on disk; 0 to run the encoder every step
    """

    at: tuple[float, ...] = ()
    heads: dict[str, Any] = field(default_factory=dict)
    evaluate: tuple[float, ...] = ()
    cache_gb: float = 0.0
    epochs: float = 1.0
    learning_rate: float = 1e-3
    batch_tokens: int | None = None
    batch_size: int | None = None
    schedule: Schedule = "constant"
    restarts: int = 0
    warmup_ratio: float = 0.0
    weight_decay: float = 0.0
    max_grad_norm: float = 0.0
    adam_beta1: float = 0.9
    adam_beta2: float = 0.999
    adam_epsilon: float = 1e-8
    compile: Compile = "graphs"

    @property
    def gradient_accumulation_steps(self) -> int:
        """Steps of heads are never split."""
        return 1

    def each(self) -> dict[str, tuple[Any, Frozen]]:
        """Of every head, by name, its line or table, and how it is trained."""
        found = {}
        for name, value in self.heads.items():
            table = value if isinstance(value, Mapping) and "head" in value else {"head": value}
            own = asdict(fill(OneHead, table, "recipe", f"frozen.heads.{name}."))
            head = own.pop("head")
            found[name] = head, replace(self, **{key: value for key, value in own.items() if value is not None})
        return found

    def of_epoch(self, epoch: float) -> Frozen:
        """What is trained on the encoder of this epoch."""
        own = {name: settings.at for name, (_, settings) in self.each().items()}
        return replace(
            self, heads={name: head for name, head in self.heads.items() if epoch in own[name] or not own[name]}
        )


OptimiserSettings = Optimisation | Frozen  # what AdamW, its schedule and its batches need to know


@dataclass(frozen=True)
class OneHead:
    """A head of `Frozen` with settings of its own; at: some of the epochs of `frozen.at` alone."""

    head: Any
    at: tuple[float, ...] | None = None
    learning_rate: float | None = None
    schedule: Schedule | None = None
    restarts: int | None = None
    warmup_ratio: float | None = None
    weight_decay: float | None = None
    max_grad_norm: float | None = None


@dataclass(frozen=True)
class Evaluation:
    """At which epochs, fractions too, to evaluate (0: before training) and to save a model; the end is always both."""

    at: tuple[float, ...] = ()
    snapshots: tuple[float, ...] = ()
    max_answer_tokens: int = 30


@dataclass(frozen=True)
class TeacherLogits:
    """How a model learns from the logits of its teachers (`quoth.train.teacher_logits`).

    task_weight, logits_weight, temperature: of the loss, as in `quoth.train.distillation`: by default logits alone
    cache_folder: where logits are kept for other runs on the same data, by default in the run folder
    cache_gb: the most GB that they may take, 4 bytes for each token and teacher
    """

    task_weight: float = 0.0
    logits_weight: float = 1.0
    temperature: float = 1.0
    cache_folder: str = ""
    cache_gb: float = 4.0

    def folder(self, run: Path) -> Path:
        """Where the logits of a run lie."""
        return Path(self.cache_folder or run / LOGITS)


@dataclass(frozen=True)
class Checkpoints:
    """How often to write a checkpoint to resume from; 0 is after every step."""

    seconds: float = 300.0


def check_optimiser(where: str, s: OptimiserSettings) -> None:
    """Refuse values that no optimiser can work with."""
    check_value(s.epochs <= 10_000, f"{where}.epochs", s.epochs, "at most 10,000")
    check_value(s.learning_rate > 0, f"{where}.learning_rate", s.learning_rate, "above 0")
    both = s.batch_tokens is not None and s.batch_size is not None
    check_value(not both, f"{where}.batch_tokens", s.batch_tokens, "given, or batch_size: not both")
    for key, count in (("batch_tokens", s.batch_tokens), ("batch_size", s.batch_size)):
        check_value(count is None or count > 0, f"{where}.{key}", count, "at least 1")
    accumulate = s.gradient_accumulation_steps
    check_value(accumulate > 0, f"{where}.gradient_accumulation_steps", accumulate, "at least 1")
    check_value(0 <= s.warmup_ratio < 1, f"{where}.warmup_ratio", s.warmup_ratio, "at least 0, below 1")
    check_value(s.restarts == 0 or s.schedule == "cosine", f"{where}.restarts", s.restarts, "0 but for cosine")
    for key in ("restarts", "max_grad_norm", "weight_decay", "adam_epsilon"):
        check_value(getattr(s, key) >= 0, f"{where}.{key}", getattr(s, key), "not negative")
    for key in ("adam_beta1", "adam_beta2"):
        check_value(0 <= getattr(s, key) < 1, f"{where}.{key}", getattr(s, key), "at least 0, below 1")


def check_dropout(where: str, dropout: float | None) -> None:
    """Refuse what is no probability of dropout."""
    check_value(0 <= (dropout or 0) < 1, f"{where}.dropout", dropout, "at least 0, below 1")
