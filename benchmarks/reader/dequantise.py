"""An int8 reader as a model folder with float32 weights, to train it further: `quoth train` cannot start from int8.

    python -m benchmarks.reader.dequantise --out FOLDER [--model src/quoth/embedded]

The weights are those that the int8 products stand for (`quoth.export.quantise`): Ŵ·s_W, times the factor by which the
channels of the input were multiplied before they were rounded. What was lost by rounding stays lost. BERT-like encoders
with a linear span head alone. The largest difference of a logit between the two is printed.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import torch
from onnx import NodeProto, numpy_helper
from torch import Tensor

from quoth.encoder import Encoder, Shape, Style
from quoth.export.verify import random_windows
from quoth.files import read_json
from quoth.heads import build_head
from quoth.hub import ONNX
from quoth.model.model import Model, Origin
from quoth.model.saving import save
from quoth.runtime.onnx_runner import OnnxRunner
from quoth.runtime.torch_runner import TorchRunner

INT8 = "MatMulIntegerToFloat"


class Constants:
    """The constants of a graph, and its nodes by what they give."""

    def __init__(self, path: Path) -> None:
        graph = onnx.load(path).graph
        self.values = {tensor.name: numpy_helper.to_array(tensor) for tensor in graph.initializer}
        self.nodes = list(graph.node)
        self.makers = {node.output[0]: node for node in self.nodes}

    def products(self) -> Iterator[tuple[NodeProto, np.ndarray, np.ndarray | None]]:
        """Every product with a constant matrix, in order: its node, the matrix (k, outputs), the bias (outputs,)."""
        adds = {node.input[0]: node for node in self.nodes if node.op_type == "Add" and node.input[1] in self.values}
        for node in self.nodes:
            if node.op_type == INT8:
                matrix = self.values[node.input[1]].astype(np.float32) * self.values[node.input[3]]
                scaled = self.makers[self.makers[node.input[0]].input[0]]
                if scaled.op_type == "Mul" and scaled.input[1] in self.values:
                    matrix = matrix * self.values[scaled.input[1]][:, None]
                yield node, matrix, self.values[node.input[6]] if len(node.input) > 6 else None
            elif node.op_type == "MatMul" and node.input[1] in self.values:
                add = adds.get(node.output[0])
                yield node, self.values[node.input[1]], self.values[add.input[1]] if add is not None else None

    def table(self, name: str) -> np.ndarray:
        """A table of embeddings."""
        if name in self.values:
            return np.asarray(self.values[name])
        return np.asarray(self.values[f"{name}.rows"].astype(np.float32) * self.values[f"{name}.scales"])

    def tables(self) -> list[np.ndarray]:
        """Words, positions and types, in order."""
        gathers = [node for node in self.nodes if node.op_type == "Gather"]
        names = [node.input[0] for node in gathers]
        names = [name.removesuffix(".rows") for name in names if not name.endswith(".scales")]
        return [table for name in names if (name in self.values or f"{name}.rows" in self.values)
                and (table := self.table(name)).ndim == 2]  # fmt: skip

    def norms(self) -> list[tuple[np.ndarray, np.ndarray]]:
        """Weight and bias of every LayerNorm, in order."""
        found = [node for node in self.nodes if node.op_type == "LayerNormalization"]
        return [(self.values[node.input[1]], self.values[node.input[2]]) for node in found]


def dequantised(folder: Path) -> Model:
    """The model of an exported folder, in float32."""
    description = read_json(folder / "quoth.json")
    shape, style = Shape.from_json(description["shape"]), Style(**description["style"])
    origin = Origin(description["provenance"]["source"], None, (folder / "tokenizer.json",))
    head = build_head(description["head"], shape.hidden, len(shape.layers))
    model = Model(Encoder(shape, style), head, family=description["family"], origin=origin)
    model.windows = description["windows"]
    fill(model, Constants(folder / ONNX))
    return model.eval()


def fill(model: Model, constants: Constants) -> None:
    """Give a model the weights of a graph."""
    encoder: Any = model.encoder
    embeddings = encoder.embeddings
    tables = [embeddings.words, embeddings.positions, embeddings.types]
    for module, table in zip(tables, constants.tables(), strict=True):
        give(module.weight, table)
    norms = iter(constants.norms())
    products = iter(list(constants.products()))
    norm(embeddings.norm, next(norms))
    for layer in encoder.layers:
        attention = layer.attention
        for linear in (attention.query, attention.key, attention.value, attention.output):
            _, matrix, bias = next(products)
            dense(linear, matrix, bias)
        norm(layer.attention_norm, next(norms))
        feed_forward(layer, products)
        norm(layer.ffn_norm, next(norms))
    _, matrix, bias = next(products)
    dense(model.head.linear, matrix, bias)
    if next(products, None) is not None or next(norms, None) is not None:
        raise SystemExit("the graph has more products or norms than the shape of the model")


def feed_forward(layer: Any, products: Iterator[tuple[NodeProto, np.ndarray, np.ndarray | None]]) -> None:
    """The units in int8, then the outliers in float32, if there are: their order among the units does not matter."""
    ups: list[np.ndarray] = []
    up_biases: list[np.ndarray] = []
    downs: list[np.ndarray] = []
    down_bias = None
    while sum(up.shape[1] for up in ups) < layer.up.out_features:
        (_, up, up_bias), (_, down, bias) = next(products), next(products)
        ups.append(up)
        up_biases.append(np.zeros(up.shape[1]) if up_bias is None else up_bias)
        downs.append(down)
        down_bias = bias if bias is not None else down_bias
    dense(layer.up, np.concatenate(ups, 1), np.concatenate(up_biases))
    dense(layer.down, np.concatenate(downs), down_bias)


def dense(linear: Any, matrix: np.ndarray, bias: np.ndarray | None) -> None:
    give(linear.weight, matrix.T)
    give(linear.bias, np.zeros(matrix.shape[1]) if bias is None else bias)


def norm(module: Any, values: tuple[np.ndarray, np.ndarray]) -> None:
    give(module.weight, values[0])
    give(module.bias, values[1])


def give(parameter: Tensor, value: np.ndarray) -> None:
    """Copy, if the shapes are equal."""
    if tuple(parameter.shape) != value.shape:
        raise SystemExit(f"a weight of the graph has shape {value.shape}; {tuple(parameter.shape)} is wanted")
    with torch.no_grad():
        parameter.copy_(torch.from_numpy(np.array(value, np.float32)))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", type=Path, default=Path("src/quoth/embedded"), help="a folder of `quoth export`")
    parser.add_argument("--out", type=Path, required=True, help="the folder to write")
    options = parser.parse_args()
    model = dequantised(options.model)
    save(model, options.out)
    runner = OnnxRunner(options.model / ONNX)
    packed = random_windows(runner.longest, runner.vocab, runner.types)
    pairs = zip(runner(packed), TorchRunner(model)(packed), strict=True)
    worst = max(float(np.abs(one - other).max()) for one, other in pairs)
    print(
        f"{options.out}: {sum(p.numel() for p in model.parameters()):,} parameters; logits differ by up to {worst:.2f}"
    )


if __name__ == "__main__":
    main()
