"""The objective of pre-training, on plain text: masked words and the next piece (Devlin et al. 2019, §3.1).

    loss of a step = mean cross-entropy of the masked tokens + mean cross-entropy of "B follows A" over the windows

Steps add up the losses of windows and divide by their number. A window's own is therefore

    Σ_masked cross-entropy / μ + cross-entropy of "B follows A",    μ: masked tokens a window, the mean over all data

Every masked token of a run counts the same, and since a step has the same mix of lengths as the whole data
(`quoth.windows.Batches`), its loss is the mean over its masked tokens to within a part in as many as it has windows.
Parts of a step and several processes change nothing. Evaluations divide by the exact number.
"""

from __future__ import annotations

import math
import time
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from quoth.data.plain_text import read_paragraphs
from quoth.encoder.device import CPU_TOKENS, CUDA_TOKENS, choose
from quoth.errors import QuothError
from quoth.model.model import Model
from quoth.tasks.masking import MaskedFeed, Vocabulary, vocabulary
from quoth.tasks.settings import Data
from quoth.tasks.span_data import Examples, part_of
from quoth.windows.batches import by_length
from quoth.windows.masked import NOTHING, Masked
from quoth.windows.nsp import make_neighbours
from quoth.windows.tokenizer import Tokens


@dataclass(frozen=True)
class TextData:
    """Windows of text to learn from and, if there are any, others to be judged by; not yet masked."""

    train: Examples
    held_out: Examples | None
    vocabulary: Vocabulary

    def feed(self, device: str | torch.device, seed: int = 0) -> MaskedFeed:
        """What to learn from, masked anew at every step."""
        return MaskedFeed(self.train, self.vocabulary, torch.device(device), seed)

    def evaluation(self) -> PretrainEvaluation | None:
        """What to be judged by, masked once for all."""
        return PretrainEvaluation(self.held_out, self.vocabulary) if self.held_out is not None else None


def text_data(data: Data, tokens: Tokens, vocab: int, seed: int = 0) -> TextData:
    """The text of a recipe. vocab: how many words the model's table has.

    The held-out text is that of `data.evaluate`, or a part `data.held_out` of the paragraphs, drawn by the seed. Its
    pairs and masks do not depend on the seed.
    """
    words = vocabulary(tokens, vocab)
    paragraphs = [paragraph for source in data.train for paragraph in read_paragraphs(source)]
    held: list[str] = []
    if data.evaluate:
        held = read_paragraphs(data.evaluate)
    elif data.held_out:
        chosen = set(part_of(range(len(paragraphs)), data.held_out, seed))
        held = [paragraph for number, paragraph in enumerate(paragraphs) if number in chosen]
        paragraphs = [paragraph for number, paragraph in enumerate(paragraphs) if number not in chosen]
    train = _examples(part_of(paragraphs, data.fraction, seed), tokens, data, seed, "data.train")
    return TextData(train, _examples(held, tokens, data, 0, "the held-out text") if held else None, words)


def _examples(paragraphs: list[str], tokens: Tokens, data: Data, seed: int, what: str) -> Examples:
    try:
        return Examples(*make_neighbours(paragraphs, tokens, max_length=data.max_length, seed=seed))
    except QuothError as error:
        raise QuothError(f"{what}: {error}") from None


def pretrain_loss(found: tuple[Tensor, Tensor | None], packed: Masked[Tensor], labels: Tensor) -> Tensor:
    """The loss summed over windows. found: words (m, vocab), following (n, 2) or None; labels: (n,), 1 for a foreign B.

    Divide by the number of windows of the step.
    """
    words, following = found
    loss = packed.weight * F.cross_entropy(words.float(), packed.targets, ignore_index=NOTHING, reduction="sum")
    if following is not None:
        loss = loss + F.cross_entropy(following.float(), labels, reduction="sum")
    return loss


@dataclass(frozen=True)
class PretrainEvaluation:
    """Held-out windows with fixed masks."""

    examples: Examples
    vocabulary: Vocabulary

    def __call__(self, model: Model, device: str, precision: str | None) -> tuple[None, dict[str, Any]]:
        """Judge a model, which is left in evaluation mode.

        mlm_loss, nsp_loss: mean cross-entropies over masked tokens and over windows; loss: their sum
        perplexity: exp(mlm_loss); mlm_accuracy, nsp_accuracy: in per cent
        """
        begin = time.perf_counter()
        sums = self._sums(model, device, precision)
        seconds = time.perf_counter() - begin
        words, right, found, following, followed = sums.tolist()
        count = max(found, 1.0)
        windows = len(self.examples)
        scores = {"loss": words / count, "mlm_loss": words / count, "mlm_accuracy": 100 * right / count}
        scores["perplexity"] = math.exp(min(words / count, 700.0))  # beyond that floats end
        if model.head.pooled:
            scores |= {"nsp_loss": following / windows, "nsp_accuracy": 100 * followed / windows}
            scores["loss"] += following / windows
        return None, {**scores, "seconds": seconds, "windows": windows}

    @torch.inference_mode()
    def _sums(self, model: Model, device: str, precision: str | None) -> Tensor:
        """Over all windows: the loss of words, how many are right, how many there are; the same two of "B follows"."""
        place, half = choose(device, precision)
        model.to(place).eval()
        feed = MaskedFeed(self.examples, self.vocabulary, place)
        budget = max(CUDA_TOKENS if place.type == "cuda" else CPU_TOKENS, int(feed.lengths.max()))
        cast: Any = torch.autocast(place.type, torch.bfloat16) if half else nullcontext()
        total = torch.zeros(5, dtype=torch.float64, device=place)
        for indices in by_length(feed.lengths, budget):
            packed, labels = feed.batch(indices, 0)
            with cast:
                words, following = model(packed)
            real = packed.targets != NOTHING
            found = [
                F.cross_entropy(words.float(), packed.targets, ignore_index=NOTHING, reduction="sum"),
                ((words.argmax(1) == packed.targets) & real).sum(),
                real.sum(),
            ]
            if following is not None:
                found.append(F.cross_entropy(following.float(), labels, reduction="sum"))
                found.append((following.argmax(1) == labels).sum())
            total[: len(found)] += torch.stack([value.double() for value in found])
        return total.cpu()
