"""Windows a second of one training step and of inference, beside `transformers`, in one run.

    python benchmarks/encoder.py                     # CUDA: BERT-base and BERT-large shapes
    python benchmarks/encoder.py --device cpu        # CPU: BERT-base, a few windows
    python benchmarks/encoder.py --profile           # where the time of a step goes (CUDA)

All weights are random. Window lengths follow SQuAD (`LENGTHS`: mean 180, at most 384). A training step is forward,
span loss, backward, clipping, AdamW; dropout 0.1 everywhere, attention too. Contenders take turns, `--passes` times;
the figures are medians.

    quoth                packed, bf16 autocast over fp32 weights, 256 windows a step
    quoth, batch 512     the same with twice the windows
    quoth compiled       the same as the first, each layer through torch.compile
    quoth bf16 weights   weights, gradients and AdamW in bf16, 512 windows: beside the same of transformers
    irregular              optBERT's 99M shape (table 12), k ≠ v: does it stay on the fast path?
    transformers           padded to 384, the best of several batch sizes: autocast, and weights in bf16
    run_qa defaults        fp32, padded to 384, 8 windows a step
"""

from __future__ import annotations

import argparse
import platform
import statistics
import time
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass, replace
from itertools import cycle
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from quoth.encoder.encoder import Encoder
from quoth.encoder.shape import LayerShape, Shape
from quoth.heads.linear import SpanHead
from quoth.score.cost import hardware
from quoth.tasks.span_data import span_loss
from quoth.windows.packed import Packed, pack

# Every 5th percentile of the window lengths of a third of SQuAD's train set (step 128, question ≤ 64).
LENGTHS = (36, 75, 94, 108, 117, 125, 131, 137, 144, 151, 158, 166, 174, 182, 192, 203, 217, 236, 262, 300, 384)
LONGEST = 384
SHAPES = {
    "base": Shape.uniform(layers=12, hidden=768, heads=12),
    "large": Shape.uniform(layers=24, hidden=1024, heads=16),
    "minilm": Shape.uniform(layers=12, hidden=384, heads=12),
    "tiny": Shape.uniform(layers=2, hidden=128, heads=2),
}
OPTBERT_F = (2022, 2222, 2344, 2478, 2576, 2530, 2638, 2660, 2748, 2792, 2852, 2974)
OPTBERT_V = (54, 54, 46, 58, 52, 60, 64, 64, 64, 64, 64, 62)
IRREGULAR = replace(
    SHAPES["base"],
    layers=tuple(LayerShape(11 if i == 4 else 12, 64, OPTBERT_V[i], OPTBERT_F[i]) for i in range(12)),
)


@dataclass
class Contender:
    """Something to time: `step()` does one step, of `windows` windows on average."""

    name: str
    windows: float
    step: Callable[[], Any]
    steps: int


def window_lengths(count: int, rng: np.random.Generator) -> np.ndarray:
    """Lengths drawn from SQuAD's, brought to a mean of 180; one from each of `count` equal parts, shuffled."""
    drawn = np.interp((np.arange(count) + rng.uniform(size=count)) * 20 / count, np.arange(21), LENGTHS)
    return rng.permutation(np.clip(np.round(drawn * 1.065), 8, LONGEST).astype(int))


def packed_batches(count: int, windows: int, device: str, seed: int = 0) -> list[tuple[Packed[Tensor], Tensor]]:
    """Packed batches on the device, each with the answer's (start, end) in every window: (n, 2)."""
    rng = np.random.default_rng(seed)
    batches = []
    for _ in range(count):
        lengths = window_lengths(windows, rng)
        ids = [rng.integers(1000, 28000, n) for n in lengths]
        types = [(np.arange(n) >= 14).astype(int) for n in lengths]
        answers = np.sort(rng.integers(14, lengths[:, None].clip(16), (windows, 2)) % lengths[:, None], axis=1)
        batch = pack(ids, types).map(lambda a: torch.from_numpy(np.ascontiguousarray(a)).to(device))
        batches.append((batch, torch.from_numpy(answers).to(device)))
    return batches


class PackedModel(nn.Module):
    """Encoder and span head."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.encoder = Encoder(shape)
        self.head = SpanHead(shape.hidden)

    def forward(self, packed: Packed[Tensor]) -> tuple[Tensor, Tensor]:
        """Start and end logits, (T,) each."""
        return self.head(self.encoder(packed))  # type: ignore[no-any-return]


def finish(model: nn.Module, optimiser: torch.optim.Optimizer, loss: Tensor) -> None:
    loss.backward()
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimiser.step()
    optimiser.zero_grad(set_to_none=True)


def optimiser_for(model: nn.Module, device: str) -> torch.optim.Optimizer:
    return torch.optim.AdamW(model.parameters(), lr=1e-5, weight_decay=0.01, fused=device == "cuda")


def quoth_contenders(
    shape: Shape, options: argparse.Namespace, name: str, windows: int, *, compiled: bool = False, pure: bool = False
) -> dict[str, Contender]:
    """Train and inference of a Quoth encoder of this shape; `pure` keeps its weights in bf16."""
    device = options.device
    model = PackedModel(shape).to(device, torch.bfloat16 if pure else torch.float32)
    if compiled:
        for layer in model.encoder.layers:
            layer.compile(dynamic=True)
    optimiser = optimiser_for(model, device)
    data = cycle(packed_batches(4, windows, device))

    def train() -> None:
        packed, answers = next(data)
        with autocast(device, pure):
            start, end = model.train()(packed)
        finish(model, optimiser, span_loss(start, end, packed, answers) / windows)

    @torch.inference_mode()
    def infer() -> Tensor:
        with autocast(device, pure):
            return model.eval()(next(data)[0])[0]  # type: ignore[no-any-return]

    steps = max(1, options.steps * options.windows // windows)
    return {
        "training": Contender(name, windows, train, steps),
        "inference": Contender(name, windows, infer, steps),
    }


def transformers_contenders(
    shape: Shape, options: argparse.Namespace, name: str, batch: int, precision: str
) -> dict[str, Contender]:
    """Train and inference of transformers' BertForQuestionAnswering, every window padded to 384."""
    from transformers import BertConfig, BertForQuestionAnswering

    device = options.device
    layer = shape.layers[0]
    config = BertConfig(
        vocab_size=shape.vocab,
        hidden_size=shape.hidden,
        num_hidden_layers=len(shape.layers),
        num_attention_heads=layer.heads,
        intermediate_size=layer.ffn,
    )
    model: Any = BertForQuestionAnswering(config).to(device)
    if precision == "bf16":
        model = model.to(torch.bfloat16)
    optimiser = optimiser_for(model, device)
    data = cycle(padded_batches(4, batch, device))
    plain = precision != "autocast"

    def train() -> None:
        inputs, answers = next(data)
        with autocast(device, plain):
            loss = model.train()(**inputs, start_positions=answers[:, 0], end_positions=answers[:, 1]).loss
        finish(model, optimiser, loss)

    @torch.inference_mode()
    def infer() -> Tensor:
        with autocast(device, plain):
            return model.eval()(**next(data)[0]).start_logits  # type: ignore[no-any-return]

    steps = max(2, options.steps * options.windows // batch // (8 if precision == "fp32" else 4))
    return {
        "training": Contender(name, batch, train, steps),
        "inference": Contender(name, batch, infer, steps),
    }


def padded_batches(count: int, windows: int, device: str) -> list[tuple[dict[str, Tensor], Tensor]]:
    """The same windows as `packed_batches`, as (windows, 384) rectangles with an attention mask."""
    batches = []
    for packed, answers in packed_batches(count, windows, device):
        inside = torch.arange(LONGEST, device=device) < torch.tensor(packed.lengths, device=device)[:, None]
        tables = {"attention_mask": inside.long()}
        for key, values in (("input_ids", packed.ids), ("token_type_ids", packed.types)):
            tables[key] = torch.zeros(inside.shape, dtype=torch.long, device=device)
            tables[key][inside] = values.long()
        batches.append((tables, answers))
    return batches


def autocast(device: str, off: bool) -> Any:
    """Mixed precision on CUDA unless it is `off`; fp32 on the CPU, for both contenders alike."""
    return nullcontext() if off or device != "cuda" else torch.autocast(device, torch.bfloat16)


def rate(contender: Contender, device: str) -> float:
    """Windows a second over the contender's steps."""
    synchronise(device)
    begin = time.perf_counter()
    for _ in range(contender.steps):
        contender.step()
    synchronise(device)
    return contender.steps * contender.windows / (time.perf_counter() - begin)


def synchronise(device: str) -> None:
    if device == "cuda":
        torch.cuda.synchronize()


def race(contenders: list[Contender], options: argparse.Namespace) -> dict[str, float]:
    """Median windows a second of each, measured in turns after two warm-up steps."""
    for contender in contenders:
        for _ in range(options.warmup):
            contender.step()
    rates: dict[str, list[float]] = {contender.name: [] for contender in contenders}
    for _ in range(options.passes):
        for contender in contenders:
            rates[contender.name].append(rate(contender, options.device))
    return {name: statistics.median(values) for name, values in rates.items()}


def best_transformers(shape: Shape, options: argparse.Namespace, precision: str) -> dict[str, Contender]:
    """The fastest batch size of transformers, by one short look at each; training and inference apart."""
    best: dict[str, tuple[float, int]] = {}
    for batch in options.batches:
        for task, contender in transformers_contenders(shape, options, "", batch, precision).items():
            contender.step()
            contender.step()
            speed = rate(replace(contender, steps=max(3, contender.steps // 4)), options.device)
            best[task] = max(best.get(task, (0.0, 0)), (speed, batch))
        free(options.device)
    name = {"autocast": "transformers autocast", "bf16": "transformers bf16 weights"}[precision]
    return {
        task: transformers_contenders(shape, options, f"{name}, batch {batch}", batch, precision)[task]
        for task, (_, batch) in best.items()
    }


def matrix_peak() -> float:
    """bf16 matrix products of 8192³, in TFLOP/s: what this GPU gives."""
    a, b = (torch.randn(8192, 8192, device="cuda", dtype=torch.bfloat16) for _ in range(2))
    for _ in range(5):
        a @ b
    torch.cuda.synchronize()
    begin = time.perf_counter()
    for _ in range(20):
        a @ b
    torch.cuda.synchronize()
    return 20 * 2 * 8192**3 / (time.perf_counter() - begin) / 1e12


def free(device: str) -> None:
    if device == "cuda":
        torch.cuda.empty_cache()


def teraflops(shape: Shape, windows_a_second: float, passes: int) -> float:
    """TFLOP/s of useful work on real tokens; a backward pass costs two forward ones."""
    lengths = window_lengths(4096, np.random.default_rng(0)).astype(float)
    a_token = shape.flops(0) + (shape.flops(1) - shape.flops(0)) * (lengths**2).sum() / lengths.sum()
    return float(passes * a_token * lengths.mean() * windows_a_second / 1e12)


def compare(name: str, options: argparse.Namespace) -> dict[str, Any]:
    """All contenders of one shape."""
    shape, windows = SHAPES[name], options.windows
    entries = [quoth_contenders(shape, options, "quoth", windows)]
    if options.device == "cuda":
        double = 2 * windows
        entries.append(quoth_contenders(shape, options, f"quoth, batch {double}", double))
        entries.append(quoth_contenders(shape, options, "quoth bf16 weights", double, pure=True))
        if options.compile:
            entries.append(quoth_contenders(shape, options, "quoth compiled", windows, compiled=True))
        if name == "base":
            entries.append(quoth_contenders(IRREGULAR, options, "irregular (optBERT 99M)", windows))
        entries.extend(best_transformers(shape, options, precision) for precision in ("autocast", "bf16"))
    entries.append(transformers_contenders(shape, options, "run_qa defaults", 8, "fp32"))
    results = {}
    for task, passes in (("training", 3), ("inference", 1)):
        results[task] = race([entry[task] for entry in entries], options)
        show(f"{name}, {task}", results[task], shape, passes)
    free(options.device)
    return results


def show(title: str, rates: dict[str, float], shape: Shape, passes: int) -> None:
    ours = rates["quoth"]
    print(f"\n{title}: windows/s | quoth is × as fast | TFLOP/s on real tokens")
    for contender, value in rates.items():
        own = IRREGULAR if contender.startswith("irregular") else shape
        print(f"  {contender:34s} {value:10.1f} {ours / value:8.2f} {teraflops(own, value, passes):9.1f}")


def profile(options: argparse.Namespace) -> None:
    """Where a training step's GPU time goes."""
    step = quoth_contenders(SHAPES[options.shapes[0]], options, "quoth", options.windows, compiled=options.compile)[
        "training"
    ].step
    for _ in range(3):
        step()
    activities = [torch.profiler.ProfilerActivity.CPU, torch.profiler.ProfilerActivity.CUDA]
    with torch.profiler.profile(activities=activities) as recorded:
        for _ in range(3):
            step()
        torch.cuda.synchronize()
    print(recorded.key_averages().table(sort_by="self_cuda_time_total", row_limit=28, max_name_column_width=60))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--shapes", nargs="+", choices=list(SHAPES))
    parser.add_argument("--windows", type=int, help="windows a step of quoth")
    parser.add_argument("--batches", type=int, nargs="+", default=[32, 64, 128], help="transformers' batch sizes")
    parser.add_argument("--steps", type=int)
    parser.add_argument("--warmup", type=int, default=2)
    parser.add_argument("--passes", type=int, default=3)
    parser.add_argument("--compile", action=argparse.BooleanOptionalAction, default=True)
    parser.add_argument("--profile", action="store_true")
    parser.add_argument("--json", help="write the figures to this file too")
    options = parser.parse_args()
    cuda = options.device == "cuda"
    options.shapes = options.shapes or (["base", "large"] if cuda else ["base"])
    options.windows = options.windows or (256 if cuda else 8)
    options.steps = options.steps or (10 if cuda else 1)
    torch.manual_seed(0)
    machine = torch.cuda.get_device_name() if cuda else f"{hardware()['cpu']}, {torch.get_num_threads()} threads"
    print(f"{machine}; torch {torch.__version__}, python {platform.python_version()}")
    if options.profile:
        return profile(options)
    results: dict[str, Any] = {"machine": machine, "torch": torch.__version__}
    if cuda:
        results["matrix peak TFLOP/s"] = matrix_peak()
        print(f"bf16 matrix peak, measured: {results['matrix peak TFLOP/s']:.0f} TFLOP/s")
    for name in options.shapes:
        results[name] = compare(name, options)
    if options.json:
        from quoth.files import write_json

        write_json(options.json, results)
    return None


if __name__ == "__main__":
    main()
