"""The task "pretrain": BERT's two objectives on plain text (Devlin et al. 2019, §3.1), MLM and NSP.

L = Σ over masked tokens of cross-entropy / (mean number of masked tokens a window) + Σ over windows of NSP's
"""

from __future__ import annotations

import math
import time
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from quoth.config import check_value
from quoth.data import read_paragraphs
from quoth.encoder import Device
from quoth.errors import QuothError
from quoth.heads import MlmHead
from quoth.heads.mlm import mlm_table
from quoth.model import Model
from quoth.tasks.examples import Examples, split_groups
from quoth.tasks.masking import MaskedFeed, Vocabulary, vocabulary
from quoth.tasks.seeds import sample, seed_of
from quoth.tasks.settings import Data
from quoth.tasks.task import Evaluated, Task, kl_rows, register_task, windows_of
from quoth.windows import Tokenizer, by_length
from quoth.windows.nsp import make_neighbours
from quoth.windows.packed import NOTHING

Output = tuple[Tensor, Tensor | None]  # logits of words (m, vocab), of NSP (n, 2) or None


@register_task
@dataclass(frozen=True)
class Pretraining(Task):
    """Windows of text, masked anew at every step; held-out windows are masked once for all.

    whole_words: whether words are masked as a whole, as in `quoth.tasks.masking`
    """

    name: ClassVar[str] = "pretrain"
    head_task: ClassVar[str] = "mlm"
    outputs: ClassVar[str] = "words"
    plain_text: ClassVar[bool] = True
    frozen_heads: ClassVar[bool] = False

    examples: Examples
    vocabulary: Vocabulary
    evaluation: Examples | None = None
    negatives: dict[str, int] = field(default_factory=dict)
    whole_words: bool = False

    @classmethod
    def check_head_table(cls, head: Any) -> None:
        """Only an MLM head, whose sizes the model gives, with or without NSP."""
        mlm = isinstance(head, Mapping) and head.get("kind") == "mlm"
        check_value(mlm, "head", head, '{ kind = "mlm" } with data.task "pretrain", and only there')
        rest = set(head) - {"kind", "nsp"}
        check_value(not rest, "head", head, '{ kind = "mlm" }, or with nsp = false; the model gives its sizes')
        check_value(type(head.get("nsp", True)) is bool, "head.nsp", head.get("nsp"), "true or false")

    @classmethod
    def add_head(cls, model: Model, head: Any, seed: int) -> tuple[str, ...]:
        """As `add_heads`; without a description NSP is wanted too."""
        return add_heads(model, seed, nsp=head.get("nsp", True) if head else True)

    @classmethod
    def prepare(cls, data: Data, tokenizer: Tokenizer, model: Model, seed: int, max_answer_tokens: int) -> Pretraining:
        """Read and tokenise the text of a recipe.

        The held-out text is that of `data.evaluate`, or a fraction `data.held_out` of the paragraphs, drawn by the
        seed. Its pairs and masks do not depend on the seed.
        """
        words = vocabulary(tokenizer, model.encoder.shape.vocab)
        paragraphs = [paragraph for source in data.train for paragraph in read_paragraphs(source)]
        held: list[str] = []
        if data.evaluate:
            held = read_paragraphs(data.evaluate)
        elif data.held_out:
            chosen = set(sample(range(len(paragraphs)), data.held_out, seed))
            held = [paragraph for number, paragraph in enumerate(paragraphs) if number in chosen]
            paragraphs = [paragraph for number, paragraph in enumerate(paragraphs) if number not in chosen]
        train = _examples(sample(paragraphs, data.fraction, seed), tokenizer, data, seed, "data.train")
        evaluation = _examples(held, tokenizer, data, 0, "the held-out text") if held else None
        return cls(train, words, evaluation, whole_words=data.whole_words)

    @classmethod
    def describe_head(cls, head: Any) -> str:
        """With or without NSP."""
        return "words and NSP" if head.pooled else "words"

    def feed(self, examples: Examples, device: torch.device, seed: int) -> MaskedFeed:
        """Batches of examples, masked."""
        return MaskedFeed(examples, self.vocabulary, device, seed, whole_words=self.whole_words)

    def loss(self, output: Output, packed: Any, labels: Tensor) -> Tensor:
        """The loss of the header. labels: (n,), 1 where the second piece is not the one that follows."""
        words, nsp = output
        found = F.cross_entropy(words.float(), packed.targets, ignore_index=NOTHING, reduction="sum")
        loss: Tensor = packed.weight * found
        return loss if nsp is None else loss + F.cross_entropy(nsp.float(), labels, reduction="sum")

    def distillation_loss(self, student: Output, teacher: Output, packed: Any, temperature: float) -> Tensor:
        """Over the words for each masked token, weighted as in the loss, and over NSP's two classes."""
        words = kl_rows(student[0], teacher[0], temperature)
        loss: Tensor = packed.weight * torch.where(packed.targets != NOTHING, words, 0).sum()
        if student[1] is None or teacher[1] is None:
            return loss
        return loss + packed.real(kl_rows(student[1], teacher[1], temperature)).sum()  # type: ignore[no-any-return]

    def evaluate(self, model: Model, device: Device) -> Evaluated:
        """mlm_loss, nsp_loss: mean cross-entropies over masked tokens and over windows; loss: their sum.

        perplexity: exp(mlm_loss); mlm_accuracy, nsp_accuracy: in per cent
        """
        windows = len(windows_of(self.evaluation))
        begin = time.perf_counter()
        words, right, found, nsp, nsp_right = self._sums(model, device).tolist()
        seconds = time.perf_counter() - begin
        count = max(found, 1.0)
        scores = {"loss": words / count, "mlm_loss": words / count, "mlm_accuracy": 100 * right / count}
        scores["perplexity"] = math.exp(min(words / count, 700.0))  # beyond that floats end
        if model.head.pooled:
            scores |= {"nsp_loss": nsp / windows, "nsp_accuracy": 100 * nsp_right / windows}
            scores["loss"] += nsp / windows
        return Evaluated({**scores, "seconds": seconds, "windows": windows})

    @torch.inference_mode()
    def _sums(self, model: Model, device: Device) -> Tensor:
        """Over all windows: the loss of words, how many are right, how many there are; the same two of NSP."""
        assert self.evaluation is not None
        model.to(device.place).eval()
        feed = self.feed(self.evaluation, device.place, 0)
        total = torch.zeros(5, dtype=torch.float64, device=device.place)
        for indices in by_length(feed.lengths, device.token_budget(feed.lengths)):
            packed, labels = feed.batch(indices, 0)
            with device.autocast():
                words, nsp = model(packed)
            real = packed.targets != NOTHING
            found = [
                F.cross_entropy(words.float(), packed.targets, ignore_index=NOTHING, reduction="sum"),
                ((words.argmax(1) == packed.targets) & real).sum(),
                real.sum(),
            ]
            if nsp is not None:
                found.append(F.cross_entropy(nsp.float(), labels, reduction="sum"))
                found.append((nsp.argmax(1) == labels).sum())
            total[: len(found)] += torch.stack([value.double() for value in found])
        return total.cpu()

    def main_score(self, quality: dict[str, Any]) -> tuple[str, float]:
        """Minus the loss."""
        return "-loss", -float(quality["loss"])

    def hold_out(self, part: float, most: int, seed: int) -> Pretraining:
        """Windows are held out."""
        count = int(self.examples.windows.question[-1]) + 1
        rest, out = split_groups(range(count), 0, min(part, most / count), seed)
        return replace(self, examples=self.examples.of_questions(rest), evaluation=self.examples.of_questions(out))


def add_heads(model: Model, seed: int = 0, *, nsp: bool = True) -> tuple[str, ...]:
    """Give a model what it lacks of MLM head, NSP head and pooler; the names of new parameters.

    What it has of them stays, another kind of head goes. nsp: whether NSP, with the pooler it reads, is wanted
    """
    encoder, old = model.encoder, model.head
    torch.manual_seed(seed_of(seed))
    settings = mlm_table(encoder.shape, encoder.style, nsp=nsp)
    settings.pop("kind")
    head = MlmHead(encoder.shape.hidden, **settings)
    kept = {}
    if isinstance(old, MlmHead):
        wanted = {name: value.shape for name, value in head.state_dict().items()}
        kept = {name: value for name, value in old.state_dict().items() if wanted.get(name) == value.shape}
        head.load_state_dict(kept, strict=False)
    new = [f"head.{name}" for name, _ in head.named_parameters() if name not in kept]
    if old is None or new or old.to_json() != head.to_json():
        model.head = head.to(encoder.embeddings.words.weight)
    if nsp and model.pooler is None:
        model.pooler = nn.Linear(encoder.shape.hidden, encoder.shape.hidden)
        nn.init.normal_(model.pooler.weight, std=0.02)
        nn.init.zeros_(model.pooler.bias)
        model.pooler.to(encoder.embeddings.words.weight)
        new += ["pooler.weight", "pooler.bias"]
    return tuple(new)


def _examples(paragraphs: list[str], tokenizer: Tokenizer, data: Data, seed: int, what: str) -> Examples:
    try:
        return Examples(*make_neighbours(paragraphs, tokenizer, max_length=data.max_length, seed=seed))
    except QuothError as error:
        raise QuothError(f"{what}: {error}") from None
