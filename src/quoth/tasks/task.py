"""`Task`: all that training, pruning and distillation need to know of what a model is trained for.

A task is a class with a name, registered by `register_task`; an instance holds the examples of one recipe. Adding a
task is one file: see examples/new_task.py.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, ClassVar, Protocol, TypeVar

import numpy as np
import torch
from torch import Tensor, nn

from quoth.config import check_value, nearest
from quoth.encoder import Device
from quoth.errors import QuothError
from quoth.heads import build_head
from quoth.model import Model
from quoth.tasks.examples import Batches, Examples, Feed
from quoth.tasks.seeds import seed_of
from quoth.tasks.settings import Data
from quoth.windows import Packed, Tokenizer, Windows, by_length

Progress = Callable[[int, int], None]
"""Called with how many windows are done, and of how many."""


@dataclass(frozen=True)
class Evaluated:
    """quality: scores by name; answers: what was answered, where the task has answers to keep."""

    quality: dict[str, Any]
    answers: Any = None


class Task(Protocol):
    """A task with the examples of one recipe. Subclasses are frozen dataclasses; what has a body here is a default.

    examples: what is trained on; evaluation: what is evaluated on, if anything
    negatives: how many of the questions each maker of unanswerable ones made

    name: of `data.task`; head_task: of the heads that it trains (`quoth.heads.Head.task`); outputs: what these give
    has_questions: whether unanswerable questions can be made
    plain_text: whether it reads plain text, to which alone `data.held_out` and `data.whole_words` apply
    frozen_heads: whether `frozen.heads` can be trained; cacheable: whether these heads read first tokens alone
    keeps_logits: whether the logits of teachers can be computed before training and kept, two for each token
    unlabelled: how many pairs without a label there are of each kind
    """

    name: ClassVar[str]
    head_task: ClassVar[str]
    outputs: ClassVar[str]
    has_questions: ClassVar[bool] = False
    plain_text: ClassVar[bool] = False
    frozen_heads: ClassVar[bool] = True
    cacheable: ClassVar[bool] = False
    keeps_logits: ClassVar[bool] = False
    unlabelled: dict[str, int] = {}  # noqa: RUF012 - a default that nobody changes

    examples: Examples
    evaluation: Examples | None
    negatives: dict[str, int]

    @classmethod
    def check_head_table(cls, head: Any) -> None:
        """Refuse a recipe's head, a line or a table, that the task cannot train; others are checked when built."""
        mlm = isinstance(head, Mapping) and head.get("kind") == "mlm"
        check_value(not mlm, "head", head, '{ kind = "mlm" } with data.task "pretrain", and only there')

    @classmethod
    def add_head(cls, model: Model, head: Any, seed: int) -> tuple[str, ...]:
        """Give a model the head that a recipe describes, unless it has it; the names of new parameters.

        head: a line or a table, or None for the model's own
        """
        return () if head is None else put_head(model, head, seed)

    @classmethod
    def prepare(cls, data: Data, tokenizer: Tokenizer, model: Model, seed: int, max_answer_tokens: int) -> Any:
        """Read and tokenise the data of a recipe: the task with its examples."""

    @classmethod
    def describe_head(cls, head: Any) -> str:
        """What a head gives, in words: two heads with equal words can be teacher and student."""
        return cls.outputs

    def check_head(self, where: str, head: Any) -> None:
        """Refuse a head of this task with another number of outputs than the data have."""
        return

    def feed(self, examples: Examples, device: torch.device, seed: int) -> Batches:
        """Batches of examples, on a device."""
        return Feed(examples, device)

    def loss(self, output: Any, packed: Packed[Any], labels: Tensor) -> Tensor:
        """The loss, summed over windows, of what a head gives."""

    def distillation_loss(self, student: Any, teacher: Any, packed: Packed[Any], temperature: float) -> Tensor:
        """τ² · KL(teacher ‖ student) of the outputs of two heads, summed over windows."""

    def teaching_identity(self) -> str:
        """With `keeps_logits`: the sha256 of all that a teacher's logits for the examples depend on, but for itself."""
        raise NotImplementedError

    def teacher_windows(self, tokenizer: Tokenizer) -> Windows:
        """With `keeps_logits`: what a teacher with this tokenizer reads, one window for each of the examples'."""
        raise NotImplementedError

    def ask_teacher(self, teacher: Model, windows: Windows, device: Device, progress: Progress) -> tuple[Any, int]:
        """With `keeps_logits`: a teacher's log-probabilities on the tokens of the examples, float16 (2, T).

        windows: of `teacher_windows`. Also in how many windows the tokens of both correspond one to one.
        """
        raise NotImplementedError

    def evaluate(self, model: Model, device: Device) -> Evaluated:
        """Scores of a model on the evaluation's examples; the model is left in evaluation mode."""

    def score(self, batches: Iterable[tuple[np.ndarray, Sequence[Any]]], heads: int) -> list[Evaluated]:
        """Scores of several heads. batches: numbers of evaluation windows, and what each head gives for them."""

    def write_answers(self, path: Path, answers: Any) -> None:
        """Keep the answers of an evaluation, if the task has any."""
        return

    def main_score(self, quality: dict[str, Any]) -> tuple[str, float]:
        """The score that decides between models, by name, and its value; higher is better."""

    def hold_out(self, part: float, most: int, seed: int) -> Any:
        """The same task with a part of its training examples, at most so many questions, as its evaluation."""


TaskKind = type[Task]
TASKS: dict[str, TaskKind] = {}
Kind = TypeVar("Kind", bound=Task)


def register_task(kind: type[Kind]) -> type[Kind]:
    """Make a task known by its name; a class decorator."""
    TASKS[kind.name] = kind
    return kind


def task_of(data: Data) -> TaskKind:
    """The task that a recipe names, whose other data settings go with it."""
    if data.task not in TASKS:
        hint = f"did you mean {nearest(data.task, TASKS)}? known: {', '.join(TASKS)}"
        raise QuothError(f"recipe: data.task {data.task!r} is unknown; {hint}")
    kind: TaskKind = TASKS[data.task]
    for key in ("negatives", "styles", "layouts"):
        for name, part in asdict(getattr(data, key)).items():
            good = part == 0 or kind.has_questions
            check_value(good, f"data.{key}.{name}", part, f"0 with data.task {data.task!r}")
    check_value(
        kind.keeps_logits or not data.unlabelled.wanted,
        "data.unlabelled",
        asdict(data.unlabelled),
        f"empty with data.task {data.task!r}",
    )
    readers = " or ".join(repr(name) for name, other in TASKS.items() if other.plain_text)
    for key in ("held_out", "whole_words"):
        value, nothing = getattr(data, key), {"held_out": "0", "whole_words": "false"}[key]
        check_value(kind.plain_text or not value, f"data.{key}", value, f"{nothing} but for data.task {readers}")
    return kind


def prepare(data: Data, model: Model, seed: int = 0, max_answer_tokens: int = 30, windows: Path | None = None) -> Task:
    """Read and tokenise data with the tokenizer of a model. windows: a folder where those of questions are kept."""
    source = model.origin.source
    if not model.origin.tokenizer:
        raise QuothError(f"{source}: has no tokenizer; tokenizer.json should lie beside the weights")
    limit = model.encoder.longest_window
    if data.max_length > limit:
        raise QuothError(f"recipe: data.max_length is {data.max_length}, but {source} ends at {limit}")
    tokenizer = Tokenizer.load(model.origin.tokenizer[0].parent)
    tokenizer.kept = windows
    task: Task = task_of(data).prepare(data, tokenizer, model, seed, max_answer_tokens)
    return task


def check_head(where: str, head: Any, task: Task | TaskKind) -> None:
    """Refuse a head for another task and, once the data are read, one with another number of outputs."""
    if head.task != task.head_task:
        given = next(kind.outputs for kind in TASKS.values() if kind.head_task == head.task)
        raise QuothError(f"recipe: {where} gives {given}, but data.task = {task.name!r} wants {task.outputs}")
    if not isinstance(task, type):
        task.check_head(where, head)


def describe_head(head: Any) -> str:
    """What a head gives, in words."""
    if head is None:
        return "no logits, it has no head"
    kind: TaskKind = next(kind for kind in TASKS.values() if kind.head_task == head.task)
    return kind.describe_head(head)


def put_head(model: Model, head: Any, seed: int) -> tuple[str, ...]:
    """Give a model the head that a line or table describes, drawn from the seed, unless it has one like it."""
    hidden, before = model.encoder.shape.hidden, model.head
    torch.manual_seed(seed_of(seed))
    made: Any = build_head(head, hidden, len(model.encoder.shape.layers))
    if before is None or before.to_json() != made.to_json():
        model.head = made
    names = [f"head.{name}" for name, _ in made.named_parameters()] if model.head is made else []
    if made.pooled and model.pooler is None:
        model.pooler = nn.Linear(hidden, hidden)
        names += ["pooler.weight", "pooler.bias"]
    return tuple(names)


def probe(task: Task, device: torch.device, most: int) -> tuple[Batches, str]:
    """At most so many windows on which losses are compared, of the evaluation or else of training, and which it is."""
    name = "train" if task.evaluation is None else "evaluate"
    return task.feed((task.evaluation or task.examples).spread(most), device, 0), name


def mean_loss(task: Task, model: Model, feed: Batches, device: Device) -> float:
    """The task's loss a window over all windows of a feed, dropout off."""
    training = model.training
    model.eval()
    total = 0.0
    with torch.no_grad():
        for indices in by_length(feed.lengths, device.token_budget(feed.lengths)):
            packed, labels = feed.batch(indices, 0)
            with device.autocast():
                output = model(packed)
            total += float(task.loss(output, packed, labels))
    model.train(training)
    return total / len(feed.lengths)


def windows_of(evaluation: Examples | None) -> Windows:
    """The windows of an evaluation."""
    if evaluation is None:
        raise QuothError("the recipe names no data to evaluate on")
    return evaluation.windows


def kl_rows(student: Tensor, teacher: Tensor, temperature: float) -> Tensor:
    """τ² · KL of each row: (n, classes) twice → (n,)."""
    ours, theirs = (nn.functional.log_softmax(logits.float() / temperature, 1) for logits in (student, teacher))
    return temperature**2 * (theirs.exp() * (theirs - ours)).sum(1)


def all_logits(output: Any) -> Tensor:
    """All numbers that a head gives, in one row."""
    parts = output if isinstance(output, tuple) else (output,)
    return torch.cat([part.flatten() for part in parts if part is not None])
