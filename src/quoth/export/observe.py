"""What goes into the products of a float32 model on calibration windows; ranges for int8 are chosen by it.

Windows come from the questions given, if there are any. Else they are made of English text that comes with Python (the
topics of `help`), which gave the reader that ships the same error of the logits as questions of SQuAD. Random tokens,
whose ranges differ from those of text, gave 2.2 times that; they are used where there is no tokenizer.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper

from quoth.data import Question
from quoth.export.quantise import products
from quoth.export.ranges import Observed, Range, choose_range
from quoth.hub import ONNX
from quoth.runtime.onnx_runner import open_session
from quoth.windows import Packed, Tokenizer, make_windows, pack

COUNT = 64  # windows; half or eight times as many made no difference
ROWS = 768  # tokens of all windows that are kept, to measure errors on
CHARACTERS, WORDS = 800, 8  # of a passage and of a question that are made of text
QUERY = 64  # tokens of a question at most
RANDOM = 160  # tokens of a random window
SHORT = 16  # tokens; a model that reads fewer has no space for a question and a passage


def calibration_windows(
    questions: Sequence[Question], tokenizer: Tokenizer | None, *, max_length: int, vocab: int, types: int
) -> Packed[np.ndarray]:
    """Windows on which ranges are measured. max_length, vocab, types: what the model reads."""
    if tokenizer is None or max_length < SHORT:
        drawn = np.random.default_rng(0)
        ids = drawn.integers(0, vocab, (COUNT, min(RANDOM, max_length)))
        return pack(list(ids), list(drawn.integers(0, max(1, types), ids.shape)))
    asked = questions or _text_questions()
    some = [asked[i] for i in np.unique(np.linspace(0, len(asked) - 1, COUNT).astype(int))]
    windows = make_windows(some, tokenizer, max_length=max_length, max_query_length=min(QUERY, max_length // 3))
    return windows.packed(np.unique(np.linspace(0, len(windows) - 1, COUNT).astype(int)))


def _text_questions() -> list[Question]:
    """Passages of Python's own documentation, each with the first words of the next one as its question."""
    from pydoc_data.topics import topics  # 700 kB

    text = " ".join(" ".join(topic.split()) for _, topic in sorted(topics.items()))
    passages = [text[place : place + CHARACTERS] for place in range(0, len(text) - CHARACTERS, CHARACTERS)]
    starts = [" ".join(passage.split()[:WORDS]) + "?" for passage in passages]
    return [Question(str(i), starts[i + 1], passages[i], ()) for i in range(len(passages) - 1)]


def find_ranges(path: Path, windows: Packed[np.ndarray]) -> dict[str, Range]:
    """The range of each product's input, by its name. path: a float32 model, its tensors beside it."""
    model = onnx.load(path)
    seen = observe(path, windows)
    weights = {tensor.name: tensor for tensor in model.graph.initializer}
    readers: dict[str, list[np.ndarray]] = {name: [] for name in seen}
    for node in products(model):
        readers[node.input[0]].append(onnx.numpy_helper.to_array(weights[node.input[1]]))
    return {name: choose_range(found, readers[name]) for name, found in seen.items()}


def observe(path: Path, windows: Packed[np.ndarray]) -> dict[str, Observed]:
    """The inputs of all products that can be quantised, by name.

    The first token of each window is among the rows kept, since outliers are at [CLS].
    """
    model = onnx.load(path, load_external_data=False)
    names = list(dict.fromkeys(node.input[0] for node in products(model)))
    model.graph.output.extend(helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in names)
    place = path.with_name(f"observed-{ONNX}")
    onnx.save(model, place)
    session = open_session(place, 1)
    place.unlink()
    drawn, each = np.random.default_rng(0), max(2, ROWS // len(windows.lengths))
    seen: dict[str, list[np.ndarray]] = {name: [] for name in names}
    ranges: dict[str, tuple[np.ndarray, np.ndarray]] = {}
    for feed in _feeds(windows, {value.name for value in session.get_inputs()}):
        for name, value in zip(names, session.run(names, feed) if names else ()):
            rows = value.reshape(-1, value.shape[-1])
            others = 1 + drawn.choice(len(rows) - 1, min(each, len(rows)) - 1, replace=False)
            seen[name].append(rows[[0, *others]])
            low, high = ranges.get(name, (rows[0], rows[0]))
            ranges[name] = np.minimum(low, rows.min(0)), np.maximum(high, rows.max(0))
    return {name: Observed(*ranges[name], np.concatenate(seen[name])) for name in names}


def _feeds(windows: Packed[np.ndarray], names: set[str]) -> Iterator[dict[str, Any]]:
    """The inputs of a session, window by window."""
    for start, end in zip(windows.starts[:-1], windows.starts[1:]):
        both = {"input_ids": windows.ids[start:end], "token_type_ids": windows.types[start:end]}
        yield {name: value[None].astype(np.int64) for name, value in both.items() if name in names}
