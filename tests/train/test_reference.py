"""200 steps of MiniLM-L6 beside a plain loop of transformers: padded batches, attention masks, torch's AdamW."""

import numpy as np
import pytest
import torch
import torch.nn.functional as F
import transformers

from quoth.answer.decode import decode
from quoth.runtime.logits import SpanLogits
from quoth.score.quality import span_quality
from quoth.train.build import build_model
from quoth.train.recipe import make_recipe
from quoth.train.run import make_accelerator
from train.material import CPU, fine_tuning, prepare, table

STEPS, AN_EPOCH, LEARNING_RATE, WARM = 200, 61, 5e-5, 20


class Plain:
    """The loop that everyone writes with transformers."""

    def __init__(self, folder, head):
        self.model = transformers.BertForQuestionAnswering.from_pretrained(
            folder, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0
        )
        self.model.qa_outputs.load_state_dict(head.linear.state_dict())
        spared = ("bias", "LayerNorm.weight")
        named = list(self.model.named_parameters())
        self.optimiser = torch.optim.AdamW(
            [
                {"params": [value for name, value in named if not name.endswith(spared)], "weight_decay": 0.01},
                {"params": [value for name, value in named if name.endswith(spared)], "weight_decay": 0.0},
            ],
            eps=1e-8,
            fused=True,
        )
        self.step = 0

    def logits(self, windows):
        """(n, 2, longest) for windows as `Window` values; padding, which transformers lets compete, is at −∞."""
        longest = max(map(len, windows))
        ids, types, mask = (torch.zeros(len(windows), longest, dtype=torch.int64) for _ in range(3))
        for row, window in enumerate(windows):
            ids[row, : len(window)] = torch.from_numpy(window.ids)
            types[row, : len(window)] = torch.from_numpy(window.types)
            mask[row, : len(window)] = 1
        out = self.model(input_ids=ids, token_type_ids=types, attention_mask=mask)
        return torch.stack([out.start_logits, out.end_logits], 1).masked_fill(mask[:, None] == 0, float("-inf"))

    def advance(self, windows, answers):
        self.model.train()
        logits = self.logits(windows)
        first, last = torch.from_numpy(answers.astype(np.int64)).T
        loss = (F.cross_entropy(logits[:, 0], first) + F.cross_entropy(logits[:, 1], last)) / 2
        self.optimiser.zero_grad(set_to_none=False)  # in place, which this machine likes better
        loss.backward()
        torch.nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        for group in self.optimiser.param_groups:
            rising, falling = (self.step + 1) / WARM, 1 - (self.step - WARM) / (STEPS - WARM)
            group["lr"] = LEARNING_RATE * min(rising, falling, 1.0)
        self.optimiser.step()
        self.step += 1
        return loss.item()

    @torch.no_grad()
    def quality(self, task):
        """Each window by itself, decoded and scored."""
        self.model.eval()
        windows = task.evaluation.windows
        logits = torch.cat([self.logits([windows[w]])[0] for w in range(len(windows))], 1).numpy()
        questions = task.dataset.questions
        decoded = decode(windows, SpanLogits(*logits), [q.context for q in questions], ids=[q.id for q in questions])
        return span_quality(task.dataset, decoded)[1]


@pytest.fixture(scope="module")
def both(minilm, material):
    """The losses of both loops, and their scores at the end."""
    recipe = make_recipe(
        table(
            minilm,
            material.train,
            material.dev,
            data={"max_length": 48, "max_query_length": 16},
            optimisation={
                "batch_size": 2,
                "dropout": 0.0,
                "learning_rate": LEARNING_RATE,
                "epochs": STEPS / AN_EPOCH,
                "precision": "fp32",
            },
        )
    )
    model = build_model(recipe)
    prepared = prepare(recipe, model)
    examples = prepared.examples
    plain = Plain(minilm, model.head)
    loop = fine_tuning(model, prepared, recipe.optimisation, recipe.seed, make_accelerator("cpu"))
    assert loop.steps == STEPS
    mine, theirs = [], []
    for step in range(STEPS):
        indices = loop.batches.batch(*divmod(step, loop.steps_per_epoch))
        loop.advance()
        mine.append(loop.take_losses()["loss"])
        theirs.append(plain.advance([examples.windows[w] for w in indices], examples.labels[indices]))
    return mine, theirs, prepared.evaluate(model, CPU).quality, plain.quality(prepared)


@pytest.mark.slow
def test_losses_are_equal_at_every_step(both):
    mine, theirs, _, _ = both
    apart = np.abs(np.subtract(mine, theirs))
    print(
        f"losses from {mine[0]:.3f} to {np.mean(mine[-20:]):.3f}; farthest apart {apart.max():.1e} at {apart.argmax()}"
    )
    np.testing.assert_allclose(mine, theirs, atol=1e-3, rtol=0)
    assert np.mean(mine[-20:]) < 0.5 * np.mean(mine[:20])  # it was trained


@pytest.mark.slow
def test_scores_are_equal_at_the_end(both):
    _, _, mine, theirs = both
    print({key: mine[key] for key in ("exact", "f1", "best_f1")})
    assert mine["seconds"] > 0
    for key, value in theirs.items():
        tolerance = 1e-2 if key.endswith("thresh") else 0
        assert mine[key] == pytest.approx(value, abs=tolerance, rel=0), key
