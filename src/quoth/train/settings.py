"""The tables of a recipe, and what is wrong with a value in them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Literal

from quoth.config import check_value, fill


@dataclass(frozen=True)
class Optimisation:
    """How the weights learn.

    epochs: may be a fraction; rate: the highest learning rate
    tokens, windows: how large a step is, by one of the two (8,192 tokens if neither is given), over all processes
    accumulate: into how many parts a step is split, to fit the memory; the result stays the same
    schedule: after the warm-up, a `warmup` part of all steps, the rate falls in a line to 0, stays, or follows half a
    cosine to 0, begun anew `restarts` times
    decay: weight decay, not on norms and biases; clip: the largest norm of all gradients, 0 for no limit
    dropout: of the encoder, by default the model's own; precision: "auto" is bf16 where the GPU has it, else fp32
    compile: each layer through torch.compile, on CUDA
    """

    epochs: float = 3.0
    rate: float = 3e-5
    tokens: int | None = None
    windows: int | None = None
    accumulate: int = 1
    schedule: Literal["linear", "constant", "cosine"] = "linear"
    restarts: int = 0
    warmup: float = 0.1
    decay: float = 0.01
    clip: float = 1.0
    beta1: float = 0.9
    beta2: float = 0.999
    epsilon: float = 1e-8
    dropout: float | None = None
    precision: Literal["auto", "fp32", "bf16"] = "auto"
    compile: bool = False


@dataclass(frozen=True)
class Frozen:
    """Heads that learn on the states of the frozen encoder, all in one pass.

    at: the epochs of the encoder at which it is frozen, 0 being the encoder as it was loaded; by default its end
    heads: by name, a line or table of `quoth.heads`, or a table with `head` and settings of its own over those here:
    at (some of these epochs alone), rate, schedule, restarts, warmup, decay, clip
    evaluate: the epochs of the heads, fractions too, after which all of them are scored; their end always is
    cache: of classes, the most GB that the states of first tokens may take on disk; 0 to run the encoder at every step
    """

    at: tuple[float, ...] = ()
    heads: dict[str, Any] = field(default_factory=dict)
    evaluate: tuple[float, ...] = ()
    cache: float = 0.0
    epochs: float = 1.0
    rate: float = 1e-3
    tokens: int | None = None
    windows: int | None = None
    schedule: Literal["linear", "constant", "cosine"] = "constant"
    restarts: int = 0
    warmup: float = 0.0
    decay: float = 0.0
    clip: float = 0.0
    beta1: float = 0.9
    beta2: float = 0.999
    epsilon: float = 1e-8

    def each(self) -> dict[str, tuple[Any, Frozen]]:
        """Of every head, by name, its line or table, and how it learns."""
        found = {}
        for name, value in self.heads.items():
            table = value if isinstance(value, Mapping) and "head" in value else {"head": value}
            own = asdict(fill(OfOne, table, "recipe", f"frozen.heads.{name}."))
            head = own.pop("head")
            found[name] = head, replace(self, **{key: value for key, value in own.items() if value is not None})
        return found

    def of_epoch(self, epoch: float) -> Frozen:
        """What learns on the encoder of this epoch."""
        own = {name: settings.at for name, (_, settings) in self.each().items()}
        return replace(
            self, heads={name: head for name, head in self.heads.items() if epoch in own[name] or not own[name]}
        )


@dataclass(frozen=True)
class OfOne:
    """A head of `Frozen` with settings of its own."""

    head: Any
    at: tuple[float, ...] | None = None
    rate: float | None = None
    schedule: Literal["linear", "constant", "cosine"] | None = None
    restarts: int | None = None
    warmup: float | None = None
    decay: float | None = None
    clip: float | None = None


@dataclass(frozen=True)
class Evaluation:
    """When to look: at which epochs, fractions too, to evaluate and to save a model; the end is always both."""

    at: tuple[float, ...] = ()
    snapshots: tuple[float, ...] = ()
    max_answer_tokens: int = 30


@dataclass(frozen=True)
class Checkpoints:
    """How often to write a checkpoint to go on from; 0 is after every step."""

    seconds: float = 300.0


def check_learning(where: str, s: Optimisation | Frozen) -> None:
    """What the encoder and the heads on it have in common."""
    check_value(s.rate > 0, f"{where}.rate", s.rate, "above 0")
    check_value(s.tokens is None or s.windows is None, f"{where}.tokens", s.tokens, "given, or windows: not both")
    for key, count in (("tokens", s.tokens), ("windows", s.windows)):
        check_value(count is None or count > 0, f"{where}.{key}", count, "at least 1")
    check_value(0 <= s.warmup < 1, f"{where}.warmup", s.warmup, "a part of all steps: at least 0, below 1")
    check_value(s.restarts == 0 or s.schedule == "cosine", f"{where}.restarts", s.restarts, "0 but for cosine")
    for key, size in (("restarts", s.restarts), ("clip", s.clip), ("decay", s.decay), ("epsilon", s.epsilon)):
        check_value(size >= 0, f"{where}.{key}", size, "not negative")
    for key, part in (("beta1", s.beta1), ("beta2", s.beta2)):
        check_value(0 <= part < 1, f"{where}.{key}", part, "at least 0, below 1")
