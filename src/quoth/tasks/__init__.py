"""Tasks: examples, batches, losses and evaluation, of answer spans, classes and pre-training. One file per task."""

from quoth.tasks.classification import AnswerableTask, GlueTask
from quoth.tasks.examples import Examples, Feed
from quoth.tasks.pretraining import Pretraining
from quoth.tasks.settings import Data, Negatives
from quoth.tasks.span import SpanTask
from quoth.tasks.task import TASKS, Evaluated, Task, prepare, register_task, task_of

__all__ = [
    "TASKS",
    "AnswerableTask",
    "Data",
    "Evaluated",
    "Examples",
    "Feed",
    "GlueTask",
    "Negatives",
    "Pretraining",
    "SpanTask",
    "Task",
    "prepare",
    "register_task",
    "task_of",
]
