"""`Recipe`: what a training run is made of, from a TOML file and `key=value` words of the command line.

    model = "bert-base-cased"
    [data]
    train = "rajpurkar/squad_v2:train"
    evaluate = "rajpurkar/squad_v2"
    [tuning]
    kind = "adapters"
    size = 64
    [optimisation]
    rate = 3e-4

Every key has a default but `model` and `data.train`. An unknown key is an error that names the nearest known one.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from pathlib import Path
from typing import Any, Literal

from laconic.errors import LaconicError
from laconic.train.tables import dump_toml, fill

NAME = re.compile(r"\w[\w+ -]*")  # of a head: it is a folder's name, and a part of words such as frozen.heads.lp.rate
TAKEN = ("encoder", "checkpoints", "cache", "tensorboard")  # what else lies in the folder of a stage


@dataclass(frozen=True)
class Data:
    """Which questions, and how they become windows.

    task: "span", answers to find; "answerable", whether there is one; "glue", classes of sentences in GLUE's tables
    train: files or hub datasets (`name:split`), one or a list; evaluate: one, or "" for none
    fraction: of the training questions, drawn by the seed; a smaller fraction is a part of a larger one
    max_length, step, question_limit: of the windows, as in `laconic.text.make_windows`
    """

    train: tuple[str, ...]
    evaluate: str = ""
    task: Literal["span", "answerable", "glue"] = "span"
    fraction: float = 1.0
    max_length: int = 384
    step: int = 128
    question_limit: int = 64

    def window_settings(self) -> dict[str, int]:
        """What a model folder remembers of its windows."""
        return {"max_length": self.max_length, "step": self.step, "question_limit": self.question_limit}


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
    heads: by name, a line or table of `laconic.heads`, or a table with `head` and settings of its own over those here:
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


@dataclass(frozen=True)
class Recipe:
    """A training run, described whole: `tuning` as in `laconic.tune`, `head` (or its line) as in `laconic.heads`."""

    model: str
    data: Data
    seed: int = 0
    tuning: dict[str, Any] = field(default_factory=lambda: {"kind": "full"})
    head: Any = field(default_factory=lambda: {"kind": "span"})
    optimisation: Optimisation = Optimisation()
    frozen: Frozen = field(default_factory=Frozen)
    evaluation: Evaluation = Evaluation()
    checkpoints: Checkpoints = Checkpoints()

    def __post_init__(self) -> None:
        """Refuse values that no run can be made of."""
        o, d, f = self.optimisation, self.data, self.frozen
        _check(bool(d.train), "data.train", d.train, "name at least one file or hub dataset")
        _check(0 < d.fraction <= 1, "data.fraction", d.fraction, "above 0, at most 1")
        _check(self.seed >= 0, "seed", self.seed, "not negative")
        idle = o.epochs == 0 and bool(f.heads)  # heads on the encoder as it is
        _check(o.epochs > 0 or idle, "optimisation.epochs", o.epochs, "above 0, or 0 with frozen.heads")
        _check(o.accumulate > 0, "optimisation.accumulate", o.accumulate, "at least 1")
        _check(0 <= (o.dropout or 0) < 1, "optimisation.dropout", o.dropout, "at least 0, below 1")
        _check_learning("optimisation", o)
        _check_head("head", self.head)
        self._check_frozen()
        longest, seconds = self.evaluation.max_answer_tokens, self.checkpoints.seconds
        _check(longest > 0, "evaluation.max_answer_tokens", longest, "at least 1")
        _check(seconds >= 0, "checkpoints.seconds", seconds, "not negative")
        for at in (*self.evaluation.at, *self.evaluation.snapshots):
            _check(0 < at <= o.epochs, "evaluation.at, snapshots", at, f"above 0, at most {o.epochs:g} epochs")

    def _check_frozen(self) -> None:
        f, epochs = self.frozen, self.optimisation.epochs
        _check(f.epochs > 0, "frozen.epochs", f.epochs, "above 0")
        _check_learning("frozen", f)
        for at in f.at:
            _check(0 <= at <= epochs, "frozen.at", at, f"at least 0, at most {epochs:g} epochs")
        for at in f.evaluate:
            _check(0 < at <= f.epochs, "frozen.evaluate", at, f"above 0, at most {f.epochs:g} epochs")
        _check(f.cache >= 0, "frozen.cache", f.cache, "not negative")
        of_first = self.data.task != "span"
        _check(f.cache == 0 or of_first, "frozen.cache", f.cache, "0 with data.task 'span', which reads every token")
        for name in f.heads:
            good = NAME.fullmatch(name) and name.strip() == name and name not in TAKEN
            wanted = f"of letters, digits, _, +, - and spaces between them, and none of {', '.join(TAKEN)}"
            _check(bool(good), "the name of a head in frozen.heads", name, wanted)
        for name, (head, settings) in f.each().items():
            _check_head(f"frozen.heads.{name}", head)
            _check_learning(f"frozen.heads.{name}", settings)
            for at in settings.at:
                _check(at in (f.at or (epochs,)), f"frozen.heads.{name}.at", at, "one of the epochs of frozen.at")

    def to_toml(self) -> str:
        """The recipe with all defaults written out; reads back as the same recipe."""
        return dump_toml(asdict(self))

    def differences(self, other: Recipe) -> list[str]:
        """The keys in which two recipes differ, each with both values."""
        mine, theirs = _flat(asdict(self)), _flat(asdict(other))
        keys = [*mine, *(key for key in theirs if key not in mine)]
        return [f"{k}: {mine.get(k)!r}, {theirs.get(k)!r}" for k in keys if mine.get(k) != theirs.get(k)]


def read_recipe(path: str | Path, words: Sequence[str] = ()) -> Recipe:
    """Read a recipe, with words like `optimisation.rate=1e-4` laid over it."""
    try:
        table = tomllib.loads(Path(path).read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise LaconicError(f"{path}: no such recipe") from None
    except OSError as error:
        raise LaconicError(f"{path}: cannot be read ({error.strerror})") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise LaconicError(f"{path}: not valid TOML ({error})") from None
    for word in words:
        _override(table, word)
    return make_recipe(table, str(path))


def make_recipe(table: Mapping[str, Any], where: str = "recipe") -> Recipe:
    """A recipe from a table of tables."""
    return fill(Recipe, table, where)


def _override(table: dict[str, Any], word: str) -> None:
    key, equals, text = word.partition("=")
    if not equals:
        raise LaconicError(f"{word!r}: an override is written key=value, such as optimisation.rate=1e-4")
    try:
        value = tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        value = text  # a word that needs no quotes: a path, a hub id
    *path, last = key.split(".")
    for depth, name in enumerate(path):
        inner = table.setdefault(name, {})
        if path[:depth] == ["frozen", "heads"] and _wants_room(inner, last):
            inner = table[name] = {"head": inner}
        if not isinstance(inner, dict):
            raise LaconicError(f"{word!r}: {name} is not a table")
        table = inner
    table[last] = value


def _wants_room(head: Any, key: str) -> bool:
    """Whether a head of `Frozen` is its line or table alone, with no room for a setting such as `rate`."""
    settings = {f.name for f in fields(OfOne)} - {"head"}
    return isinstance(head, str) or (isinstance(head, dict) and "kind" in head and key in settings)


def _check_learning(where: str, s: Optimisation | Frozen) -> None:
    """What the encoder and the heads on it have in common."""
    _check(s.rate > 0, f"{where}.rate", s.rate, "above 0")
    _check(s.tokens is None or s.windows is None, f"{where}.tokens", s.tokens, "given, or windows: not both")
    for key, count in (("tokens", s.tokens), ("windows", s.windows)):
        _check(count is None or count > 0, f"{where}.{key}", count, "at least 1")
    _check(0 <= s.warmup < 1, f"{where}.warmup", s.warmup, "a part of all steps: at least 0, below 1")
    _check(s.restarts == 0 or s.schedule == "cosine", f"{where}.restarts", s.restarts, "0 but for cosine")
    for key, size in (("restarts", s.restarts), ("clip", s.clip), ("decay", s.decay), ("epsilon", s.epsilon)):
        _check(size >= 0, f"{where}.{key}", size, "not negative")
    for key, part in (("beta1", s.beta1), ("beta2", s.beta2)):
        _check(0 <= part < 1, f"{where}.{key}", part, "at least 0, below 1")


def _check_head(where: str, value: Any) -> None:
    _check(isinstance(value, str | Mapping), where, value, "a line or a table of a head; see docs/heads.md")


def _check(good: bool, key: str, value: Any, wanted: str) -> None:
    if not good:
        raise LaconicError(f"recipe: {key} is {value!r}; it must be {wanted}")


def _flat(table: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key, value in table.items():
        inner = isinstance(value, Mapping) and bool(value)
        found.update(_flat(value, f"{prefix}{key}.") if inner else {prefix + key: value})
    return found
