"""Dynamic masking, on the device, as a function of (seed, step, token): Devlin et al. 2019, §3.1.

15 % of a window's tokens are chosen at random. Then, token by token, 80 % become [MASK], 10 % a random token of the
vocabulary and 10 % stay as they are; all of them are to be guessed.

With `whole_words` (BERT's later variant) words are chosen in a random order until 15 % of the tokens are: a word is a
token with its continuations, all of them or none. The rest is the same.

Random numbers are a hash of the number of the token in the data, keyed by seed and step. So nothing is drawn from a
state, and the masks of a window depend neither on the windows beside it nor on the number of processes or of parts of a
step, nor on the device.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from quoth.errors import QuothError
from quoth.tasks.examples import Examples, Feed, Request
from quoth.windows import Tokenizer, Windows
from quoth.windows.packed import NOTHING, Masked, Size

SHARE = 0.15
MASK, RANDOM = 0.8, 0.1
RANGE = 1 << 32  # of the random numbers


@dataclass(frozen=True)
class Vocabulary:
    """What masking knows of a tokenizer: the id of [MASK], how many words there are, and which are never masked."""

    mask: int
    size: int
    special: tuple[int, ...]


def vocabulary(tokenizer: Tokenizer, size: int) -> Vocabulary:
    """The vocabulary of a tokenizer whose model has a table of `size` words."""
    found = [tokenizer.backend.token_to_id(name) for name in ("[MASK]", "<mask>")]
    mask = next((number for number in found if number is not None), None)
    if mask is None or mask >= size:
        raise QuothError("the tokenizer has no [MASK] or <mask> in the model's vocabulary; choose another model")
    added = tokenizer.backend.get_added_tokens_decoder().items()
    special = tuple(sorted(number for number, token in added if token.special))
    return Vocabulary(mask, min(size, tokenizer.backend.get_vocab_size()), special)


class MaskedFeed:
    """Batches of windows with tokens masked, made on the device; `Feed` is its like for other tasks.

    lengths: (n,) tokens of each window; weight: 1 / the mean number of masked tokens a window
    """

    def __init__(
        self, examples: Examples, words: Vocabulary, device: torch.device, seed: int = 0, *, whole_words: bool = False
    ) -> None:
        """examples: windows with their `words` numbered, and NSP's class of each."""
        windows = examples.windows
        self.lengths = windows.lengths
        self.device = device
        self.seed = seed
        self._feed = Feed(examples, device)
        self._words = words
        number, size, after = (_number_words if whole_words else _number_tokens)(windows, words.special)
        self._limits = _limits(size, windows)
        if not self._limits.any():
            raise QuothError("the text has no token that can be masked")
        self.weight = len(windows) / float(self._limits.sum())
        self._number, self._size, self._after = (torch.from_numpy(x).to(device) for x in (number, size, after))

    def request(self, indices: np.ndarray, step: int, size: Size | None = None) -> Request:
        """That of `Feed`, then the most tokens to mask in each window, then six keys of the step's random numbers."""
        request = self._feed.request(indices, step, size)
        limits = np.zeros(size.windows if size else len(indices), np.int64)
        limits[: len(indices)] = self._limits[indices]
        keys = np.random.SeedSequence([self.seed, step, 0x4D4C4D]).generate_state(6).astype(np.int64)
        return replace(request, numbers=np.concatenate([request.numbers, limits, keys]), masked=int(limits.sum()))

    def gather(self, request: Request) -> tuple[Masked[Tensor], Tensor]:
        """The windows of a request as they are masked at its step, T tokens in one batch, and their classes (n,)."""
        packed, labels = self._feed.gather(request)
        windows = packed.windows
        begin = request.numbers[windows : 2 * windows]
        limit, keys = request.numbers[-windows - 6 : -6], request.numbers[-6:]
        starts = packed.starts.long()
        window = packed.window_of_token()
        token = begin[window] + packed.positions  # its number in all of the data
        order = _hash(self._number[token].long(), keys[0], keys[1])
        size, after = self._size[token].long(), self._after[token].long()
        chosen = choose_words(order, size, after, starts, window, limit)
        # As many places as there may be masked tokens, which the host knows: first those, then some that do not count.
        most = int(SHARE * packed.tokens) + windows if request.size else request.masked
        places = torch.argsort((~chosen).to(torch.uint8), stable=True)[:most]
        targets = torch.where(chosen[places], packed.ids[places].long(), NOTHING)
        draw, word = _hash(token, keys[2], keys[3]), _hash(token, keys[4], keys[5]) % self._words.size
        ids = torch.where(chosen & (draw < int(MASK * RANGE)), self._words.mask, packed.ids)
        wrong = chosen & (draw >= int(MASK * RANGE)) & (draw < int((MASK + RANDOM) * RANGE))
        ids = torch.where(wrong, word.to(ids.dtype), ids)
        return Masked(**vars(replace(packed, ids=ids)), places=places, targets=targets, weight=self.weight), labels

    def batch(self, indices: np.ndarray, step: int) -> tuple[Masked[Tensor], Tensor]:
        """The windows `indices` as they are masked at a step, T tokens in one batch, and their classes (n,)."""
        return self.gather(self.request(indices, step).to(self.device))


def choose_words(order: Tensor, size: Tensor, after: Tensor, starts: Tensor, window: Tensor, limit: Tensor) -> Tensor:
    """Which tokens of a batch are masked: (T,) booleans.

    order: (T,) a random number from 0 to 2³² of each token's word; size: (T,) tokens of its word, 0 if it must not be
    masked; after: (T,) tokens of its word that come after it. Without whole words each token is a word.
    starts: (n + 1,), window: (T,) as in `Packed`; limit: (n,) the most tokens to mask in each window

    The words of a window, in their random order, are taken as long as they fit in the limit. What is left of it then is
    filled with words of one token, those that come next: BERT's code, too, goes on past words that do not fit.
    """
    by = torch.argsort(window * (2 * RANGE) + torch.where(size > 0, order, RANGE), stable=True)
    size, after = size[by], after[by]
    rank = torch.arange(len(by), device=by.device) - starts[window]  # in the order of its window
    whole = (size > 0) & (rank + 1 + after <= limit[window])  # tokens up to the end of its word
    alone = (size == 1) & ~whole
    taken, singles = (F.pad(some.long().cumsum(0), (1, 0)) for some in (whole, alone))
    left = limit - (taken[starts[1:]] - taken[starts[:-1]])
    nth = singles[1:] - singles[starts[:-1]][window]
    chosen = torch.zeros_like(whole)
    chosen[by] = whole | (alone & (nth <= left[window]))
    return chosen


def _number_tokens(windows: Windows, special: tuple[int, ...]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """As `_number_words`, where each token is a word of its own."""
    may = (windows.words >= 0) & ~np.isin(windows.ids, special)
    return np.arange(len(may), dtype=np.int32), may.astype(np.int16), np.zeros(len(may), np.int16)


def _number_words(windows: Windows, special: tuple[int, ...]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Of every token the number of its word in all windows, int32, its size (0: never masked) and what is after it."""
    words, count = windows.words, len(windows.ids)
    begins = (np.diff(words, prepend=-2) != 0) | (words < 0)
    begins[windows.starts[:-1]] = True
    first = np.flatnonzero(begins)
    number = np.cumsum(begins) - 1
    sizes = np.diff(np.append(first, count))
    may = (words >= 0) & ~np.isin(windows.ids, special)
    sizes_if_any = np.where(np.logical_and.reduceat(may, first), sizes, 0)
    after = (first + sizes)[number] - 1 - np.arange(count)
    return number.astype(np.int32), sizes_if_any[number].astype(np.int16), after.astype(np.int16)


def _limits(size: np.ndarray, windows: Windows) -> np.ndarray:
    """How many tokens of each window are masked: 15 % of those that may be, at least 1, int64 (n,)."""
    may = np.add.reduceat((size > 0).astype(np.int64), windows.starts[:-1])
    return np.where(may > 0, np.maximum(1, np.round(SHARE * may)), 0).astype(np.int64)


def _hash(x: Tensor, first: Tensor, second: Tensor) -> Tensor:
    """Random numbers from 0 to 2³² − 1 that are a function of whole numbers below 2³² and of two keys, () each."""
    return _mix(_mix((x ^ first) & (RANGE - 1)) ^ second)


def _mix(x: Tensor) -> Tensor:
    """The best hash of 32 bits with two multiplications that Wellons found ("Hash function prospector", 2018).

    Its factors are below 2³¹, so that no product leaves 64 bits.
    """
    x = ((x ^ (x >> 16)) * 0x21F0AAAD) & (RANGE - 1)
    x = ((x ^ (x >> 15)) * 0x735A2D97) & (RANGE - 1)
    return x ^ (x >> 15)
