"""The process that runs the model: packed windows in, their start and end logits out."""

from __future__ import annotations

from multiprocessing.connection import Connection

import numpy as np

from quoth.errors import QuothError
from quoth.hub import find_model
from quoth.runtime.load import load_runner
from quoth.runtime.onnx_runner import OnnxRunner
from quoth.serve.child import join_message, split_message
from quoth.windows import Packed

TOKENS = 1024  # of a batch for each core: enough windows to keep it busy, few enough that others do not wait for long


def run_model(connection: Connection, source: str | None, device: str | None, precision: str | None) -> None:
    """Load a model, tell its limits, and answer batches until the server closes the pipe."""
    try:
        runner = load_runner(find_model(source), device, precision)
    except (QuothError, OSError) as error:
        connection.send_bytes(join_message({"error": str(error)}))
        return
    tokens = TOKENS * runner.threads if isinstance(runner, OnnxRunner) else runner.budget
    facts = {"longest": runner.longest, "tokens": tokens, "parameters": runner.parameters}
    connection.send_bytes(join_message(facts))
    while True:
        try:
            batch = read_batch(connection.recv_bytes())
        except (EOFError, OSError):
            return
        try:
            message = write_logits(*runner(batch))
        except QuothError as error:
            message = join_message({"error": str(error)})
        connection.send_bytes(message)


def write_batch(batch: Packed[np.ndarray]) -> bytes:
    """A batch as bytes: lengths, token ids and types."""
    data = [np.ascontiguousarray(values, np.int32).tobytes() for values in (batch.lengths, batch.ids, batch.types)]
    return join_message({"windows": len(batch.lengths)}, b"".join(data))


def read_batch(message: bytes) -> Packed[np.ndarray]:
    """What `write_batch` was given."""
    header, data = split_message(message)
    values = np.frombuffer(data, np.int32)
    count = header["windows"]
    lengths, rest = values[:count], values[count:]
    ids, types = rest.reshape(2, -1)
    starts = np.zeros(count + 1, np.int32)
    np.cumsum(lengths, out=starts[1:])
    positions = np.arange(len(ids), dtype=np.int32) - np.repeat(starts[:-1], lengths)
    return Packed(ids, positions, types, starts, tuple(lengths.tolist()))


def write_logits(start: np.ndarray, end: np.ndarray) -> bytes:
    """Logits, (T,) each, as bytes."""
    return join_message({}, np.stack([start, end]).astype(np.float32).tobytes())


def read_logits(message: bytes) -> np.ndarray:
    """(2, T): what `write_logits` was given, or the `QuothError` that came instead."""
    header, data = split_message(message)
    if "error" in header:
        raise QuothError(header["error"])
    return np.frombuffer(data, np.float32).reshape(2, -1)
