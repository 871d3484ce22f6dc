"""Milliseconds of one small batch on a GPU: CUDA graphs beside kernels launched one by one, in turns, in one run.

    python -m benchmarks.speed.latency                             # BERT-base and MiniLM-L12 shapes
    python -m benchmarks.speed.latency --shapes large --windows 1

All weights are random; windows have 180 tokens, as SQuAD's on average. A call goes from numpy to numpy: what a reader
asks of its runner. "GPU" is the time between two events of the device around the replay of a graph. A question goes
from text to answer through `Reader`, with the tokenizer of the embedded reader: a context of 168 words.

    graphs               what `TorchRunner` does
    kernel by kernel     the same kernels on the batch as it is, without inert windows
    encoder              `Encoder` under autocast: weights are cast and queries, keys and values joined at every call
    transformers         BertForQuestionAnswering in bf16, no padding: all windows are equally long
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import torch

import quoth.embedded
from benchmarks.race import Contender, machine, markdown, race
from benchmarks.speed.batches import SHAPES
from quoth.answer import Reader
from quoth.encoder.encoder import Encoder
from quoth.encoder.shape import Shape
from quoth.files import write_json
from quoth.heads.linear import SpanHead
from quoth.model.model import Model
from quoth.runtime.torch_runner import TorchRunner
from quoth.windows import Packed, Tokenizer, pack

LENGTH = 180
CONTEXT = "The Norman dynasty had a major political, cultural and military impact on medieval Europe. " * 12


def make_batch(windows: int) -> Packed[np.ndarray]:
    """Windows of random tokens."""
    rng = np.random.default_rng(0)
    ids = [rng.integers(1000, 28000, LENGTH) for _ in range(windows)]
    return pack(ids, [(np.arange(LENGTH) >= 14).astype(int)] * windows)


def runners(shape: Shape) -> dict[str, TorchRunner]:
    """Three ways to run one model."""
    model = Model(Encoder(shape), SpanHead(shape.hidden))
    made = {name: TorchRunner(model, "cuda") for name in ("graphs", "kernel by kernel", "encoder")}
    made["kernel by kernel"].graphs = made["encoder"].graphs = None
    made["encoder"].encoder = model.encoder
    return made


def transformers_call(shape: Shape, packed: Packed[np.ndarray]) -> Callable[[], Any]:
    """One call of transformers on the same windows."""
    from transformers import BertConfig, BertForQuestionAnswering  # optional, and slow to import

    layer = shape.layers[0]
    config = BertConfig(
        hidden_size=shape.hidden,
        num_hidden_layers=len(shape.layers),
        num_attention_heads=layer.heads,
        intermediate_size=layer.ffn,
    )
    model: Any = BertForQuestionAnswering(config).to("cuda", torch.bfloat16).eval()
    ids, types = (values.reshape(-1, LENGTH).astype(np.int64) for values in (packed.ids, packed.types))

    @torch.inference_mode()
    def call() -> Any:
        tables = [torch.from_numpy(table).to("cuda", non_blocking=True) for table in (ids, types)]
        found = model(input_ids=tables[0], token_type_ids=tables[1])
        return torch.stack([found.start_logits, found.end_logits]).float().cpu().numpy()

    return call


def gpu_ms(runner: TorchRunner, packed: Packed[np.ndarray], times: int = 50) -> float:
    """The median time of a replay on the device."""
    assert runner.graphs is not None
    for _ in range(3):
        runner(packed)
    graph = next(reversed(runner.graphs._held.values())).graph
    assert graph is not None, runner.graphs.failure
    found: list[float] = []
    for _ in range(times):
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        graph.replay()
        end.record()
        torch.cuda.synchronize()
        found.append(float(begin.elapsed_time(end)))
    return median(found)


def compare(name: str, options: argparse.Namespace) -> dict[str, Any]:
    """All sizes of one shape, and a table of them."""
    made, rows, results = runners(SHAPES[name]), [], {}
    for windows in options.windows:
        packed = make_batch(windows)
        calls: dict[str, Callable[[], Any]] = {kind: partial(runner, packed) for kind, runner in made.items()}
        if options.transformers:
            calls["transformers"] = transformers_call(SHAPES[name], packed)
        contenders = {kind: Contender(call, steps=options.steps) for kind, call in calls.items()}
        times = race(contenders, options.passes, warmup=5)
        found = {kind: 1000 * times.step_seconds(kind) for kind in contenders}
        found["GPU"] = gpu_ms(made["graphs"], packed)
        results[f"{windows} windows"] = found
        rows.append([f"{windows}", *(f"{value:.2f}" for value in found.values())])
    print(f"\n{name}: ms a call\n" + markdown(["windows", *found], rows))
    results["question"] = ask(made, options)
    return results


def ask(made: dict[str, TorchRunner], options: argparse.Namespace) -> dict[str, float]:
    """Milliseconds of one question, from text to answer."""
    tokenizer = Tokenizer.load(Path(quoth.embedded.__file__).parent)
    asked: dict[str, Any] = {"question": "Who had an impact on medieval Europe?", "context": CONTEXT}
    contenders = {}
    for kind, runner in made.items():
        contenders[kind] = Contender(partial(Reader(runner, tokenizer), **asked), steps=options.steps)
    times = race(contenders, options.passes, warmup=5)
    found = {kind: 1000 * times.step_seconds(kind) for kind in contenders}
    print("one question, text to answer, ms: " + ", ".join(f"{kind} {value:.2f}" for kind, value in found.items()))
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--shapes", nargs="+", choices=list(SHAPES), default=["base", "minilm"])
    parser.add_argument("--windows", nargs="+", type=int, default=[1, 4, 16, 40])
    parser.add_argument("--steps", type=int, default=20, help="calls of a turn")
    parser.add_argument("--passes", type=int, default=5, help="turns of every contender")
    parser.add_argument("--transformers", action=argparse.BooleanOptionalAction, default=True)
    parser.add_argument("--json", help="write the figures to this file too")
    options = parser.parse_args()
    torch.manual_seed(0)
    results: dict[str, Any] = {"machine": machine("cuda", ("torch", "triton"))}
    print(results["machine"])
    for name in options.shapes:
        results[name] = compare(name, options)
    if options.json:
        write_json(Path(options.json), results)


if __name__ == "__main__":
    main()
