"""The rounds of `quoth advise`, and how far they are."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from quoth.experiments.advise_candidates import Candidate
from quoth.experiments.advise_training import Score, Trainer
from quoth.experiments.halving import Place, Round, halve, total_windows
from quoth.train.log import Status


@dataclass(frozen=True)
class Board:
    """How far a search is, for the command line.

    round: its number from 0, of `rounds`; name: of the candidate that is trained now, the number-th of its round
    windows: that all rounds take; done: of them, by the candidates before this one
    status: of the candidate in training
    """

    rounds: tuple[Round, ...] = ()
    round: int = 0
    name: str = ""
    number: int = 0
    windows: float = 0.0
    done: float = 0.0
    status: Status | None = None


Tell = Callable[[Board, str], None]
"""Called with the board whenever it has changed, and a line if there is one to tell."""


def race(
    rounds: Sequence[Round], candidates: Sequence[Candidate], trainer: Trainer, tell: Tell
) -> list[list[Place[Score]]]:
    """Successive halving of candidates by their score on the held-out part: the places of each round."""
    board = Board(tuple(rounds), windows=total_windows(rounds))

    def train(number: int, turn: int) -> Score:
        nonlocal board
        one, before = candidates[number], rounds[turn - 1].windows if turn else 0.0
        place = board.number + 1 if board.round == turn else 1
        board = replace(board, round=turn, name=one.name, number=place, status=None)
        tell(board, "")
        last = turn == len(rounds) - 1
        trainer.tell = show
        score = trainer.train(one.folder, one.recipe, turn, rounds[turn].windows, last)
        board = replace(board, done=board.done + rounds[turn].windows - before, status=None)
        tell(board, _line(board, score))
        return score

    def show(news: Status | str) -> None:
        nonlocal board
        if isinstance(news, Status):
            board = replace(board, status=news)
        tell(board, "")

    return halve(rounds, train, order, lambda number: trainer.drop(candidates[number].folder))


def order(scores: Sequence[Score]) -> list[int]:
    """Which is best, second and so on: by the sum of the ranks by F1 and by loss, then by F1; those that failed last.

    After little training F1 is mostly chance, and the loss, a mean of logarithms, tells candidates apart with fewer
    questions. A loss alone would punish a model that is sure of what it says more than its answers deserve.
    """
    numbers = range(len(scores))
    f1 = _ranks([math.inf if one.error else -one.score for one in scores])
    loss = _ranks([math.inf if one.error else one.loss for one in scores])
    return sorted(numbers, key=lambda i: (bool(scores[i].error), f1[i] + loss[i], f1[i], i))


def _ranks(values: Sequence[float]) -> list[int]:
    """How many values are smaller, for each."""
    return [sum(other < value for other in values) for value in values]


def _line(board: Board, score: Score) -> str:
    where = f"round {board.round + 1} of {len(board.rounds)}, {board.name}"
    if score.error:
        return f"{where}: dropped: {score.error}"
    return f"{where}: F1 {score.score:.2f}, loss {score.loss:.3f}, {score.windows:,} windows, {score.wall:.1f} s"
