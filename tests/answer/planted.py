"""A reader with planted logits: it looks for one word, and answers with it wherever it stands."""

import numpy as np

from quoth.answer.reader import Reader
from quoth.windows.tokenizer import Tokenizer


class Planted:
    """Span logits 8 at the tokens of `word`, -8 elsewhere; "no answer" scores `null` in every window."""

    longest, budget, parameters = 512, 4096, 0

    def __init__(self, tokenizer, word, null=0.0):
        (self.id,) = tokenizer.ids([word])[0]
        self.null = null
        self.tokens = 0  # read so far

    def flops(self, length):
        return None

    def __call__(self, packed):
        self.tokens += packed.tokens
        logits = np.where(packed.ids == self.id, 4.0, -4.0).astype(np.float32)
        logits[packed.starts[:-1]] = self.null / 2
        return logits, logits


def planted_reader(folder, word, null=0.0, abstention=None, confidence=None):
    tokenizer = Tokenizer.load(folder)
    return Reader(Planted(tokenizer, word, null), tokenizer, abstention=abstention, confidence=confidence)
