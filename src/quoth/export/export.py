"""`export`: a model or an ensemble as `model.onnx` in a folder that `Reader.load` opens without torch.

    model.onnx       encoders and heads on windows of equal length: input_ids and, if the model has types,
                     token_type_ids, (batch, length) int64 each → start, end (members, batch, length); or logits
                     (batch, labels). What the runner has to know is in the file's metadata.
    model.onnx.data  the large tensors, which onnxruntime maps into memory
    quoth.json       what it was made of, the settings of its windows, its calibration and threshold if any
    tokenizer.json … the tokenizer

LoRA is folded into the weights, adapters stay. Nothing is written unless the file gives the logits that torch gives.
"""

from __future__ import annotations

import math
import shutil
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import torch

from quoth._version import __version__
from quoth.answer import Reader
from quoth.answer.abstention import KEY, stored_abstention
from quoth.answer.confidence import KEY as CONFIDENCE
from quoth.answer.confidence import stored_confidence
from quoth.data import Dataset, Question
from quoth.errors import QuothError
from quoth.export import verify
from quoth.export.build import Subject, build, open_subject
from quoth.export.graph import OPSET
from quoth.export.observe import calibration_windows, find_ranges
from quoth.export.outliers import find_outliers
from quoth.export.quantise import quantise
from quoth.files import write_json
from quoth.folders import atomic_folder
from quoth.hub import ONNX, ONNX_DATA, ModelFiles
from quoth.model.checkpoint import FORMAT
from quoth.runtime.onnx_runner import OnnxRunner
from quoth.score import span_quality
from quoth.windows import Packed, Tokenizer
from quoth.windows.settings import window_settings

APART = 4096  # bytes; larger tensors lie in a file of their own
SAMPLE = 16  # windows of a dataset that are compared


@dataclass(frozen=True)
class Exported:
    """What was written, and how it compares.

    bytes: of model.onnx and its data in float32, whether that or int8 was asked for
    difference: the largest of a logit from torch's; largest_logit: the largest of torch's
    f1: official F1 on the dataset given
    """

    folder: str
    bytes: int
    difference: float
    largest_logit: float
    int8_bytes: int | None = None
    int8_difference: float | None = None
    f1: float | None = None
    int8_f1: float | None = None


def export(
    source: str | Path,
    folder: str | Path,
    *,
    int8: bool = False,
    data: Dataset | None = None,
    ranges: Sequence[Question] = (),
) -> Exported:
    """Export a model (a folder or a hub id, also of an ensemble).

    data: questions whose windows are compared too, and on which F1 is taken
    ranges: questions by whose windows int8 chooses its ranges, answers having no part in that; by default those of data
    """
    subject = open_subject(source)
    _check_place(subject.files, Path(folder))
    if data is not None and subject.task != "span":
        raise QuothError(f"{source}: has a head for classes, so questions cannot be asked of it; leave out the data")
    tokenizer = Tokenizer.load(subject.files.tokenizer[0].parent) if subject.files.tokenizer else None
    if data is not None and tokenizer is None:
        raise QuothError(f"{source}: has no tokenizer; tokenizer.json should lie beside the weights")
    with atomic_folder(folder) as part, torch.no_grad():
        questions = ranges or (data.questions if data is not None else ())
        windows = _calibration(subject, tokenizer, questions) if int8 else None
        result = _write(subject, part, tokenizer, data, windows)
        for path in subject.files.tokenizer:
            shutil.copyfile(path, part / path.name)
        write_json(part / "quoth.json", _description(subject, result))
    return Exported(str(folder), **result)


def _write(
    subject: Subject,
    part: Path,
    tokenizer: Tokenizer | None,
    data: Dataset | None,
    windows: Packed[np.ndarray] | None,
) -> dict[str, Any]:
    """Write model.onnx, in float32 or, once that is known to be right, in int8; return what was measured.

    windows: by which the ranges of int8 are chosen; None for float32
    """
    model = build(subject, [find_outliers(body.encoder, windows) for body in subject.bodies] if windows else ())
    with tempfile.TemporaryDirectory() as elsewhere:
        path = (Path(elsewhere) if windows else part) / ONNX
        size = _save(model, path)
        runner = OnnxRunner(path)
        reader = _reader(runner, subject, tokenizer)
        batches = _batches(runner, reader, data)
        wanted = [subject.expected(packed) for packed in batches]
        largest = max(float(np.abs(logits).max()) for logits in wanted)
        worst = verify.difference(runner, batches, wanted)
        verify.check(subject.files.source, worst, largest)
        found: dict[str, Any] = {"bytes": size, "difference": worst, "largest_logit": largest}
        found["f1"] = _f1(reader, data) if reader and data else None
        if windows is None:
            return found
        found["int8_bytes"] = _save(quantise(onnx.load(path), find_ranges(path, windows)), part / ONNX)
    runner = OnnxRunner(part / ONNX)
    found["int8_difference"] = verify.difference(runner, batches, wanted)
    if not math.isfinite(found["int8_difference"]):
        raise QuothError(f"{subject.files.source}: in int8 its logits are not finite; export it without --int8")
    if reader and data:
        reader.runner = runner
        found["int8_f1"] = _f1(reader, data)
    return found


def _calibration(subject: Subject, tokenizer: Tokenizer | None, questions: Sequence[Question]) -> Packed[np.ndarray]:
    """Windows that all encoders read, on which the ranges of int8 are measured."""
    shapes = [body.encoder.shape for body in subject.bodies]
    longest = min(body.encoder.longest_window for body in subject.bodies)
    return calibration_windows(
        questions,
        tokenizer,
        max_length=min(longest, window_settings(subject.files)["max_length"]),
        vocab=min(shape.vocab for shape in shapes),
        types=min(shape.types for shape in shapes),
    )


def _reader(runner: OnnxRunner, subject: Subject, tokenizer: Tokenizer | None) -> Reader | None:
    """What asks questions of the file, if it answers any."""
    if tokenizer is None or subject.task != "span":
        return None
    files = subject.files
    settings: dict[str, Any] = window_settings(files)
    return Reader(runner, tokenizer, **settings, abstention=stored_abstention(files), source=files.source)


def _save(model: onnx.ModelProto, path: Path) -> int:
    """Write a model, its large tensors beside it, where onnxruntime maps them into memory; return the bytes.

    The model's tensors are moved, so that it cannot be used after.
    """
    data = path.with_name(ONNX_DATA)
    onnx.save(model, path, save_as_external_data=True, location=data.name, size_threshold=APART)
    return sum(file.stat().st_size for file in (path, data) if file.is_file())


def _batches(runner: OnnxRunner, reader: Reader | None, data: Dataset | None) -> list[Packed[np.ndarray]]:
    """Windows to compare: random ones of all lengths, and some of the dataset's, the shortest to the longest."""
    batches = [verify.random_windows(runner.longest, runner.vocab, runner.types)]
    if reader is not None and data is not None:
        windows = reader.windows(data.questions[: 4 * SAMPLE])
        order = np.argsort(windows.lengths, kind="stable")
        batches.append(windows.packed(order[np.linspace(0, len(order) - 1, min(SAMPLE, len(order))).astype(int)]))
    return batches


def _f1(reader: Reader, data: Dataset) -> float | None:
    _, summary = span_quality(data, reader.decode(data.questions), reader.abstention.limit(data.version))
    return summary["f1"]


def _description(subject: Subject, found: dict[str, Any]) -> dict[str, Any]:
    """quoth.json: for one model as `save` writes it, but for the weights; with what was measured."""
    value: dict[str, Any] = {"format": FORMAT, "quoth": __version__}
    if subject.model is not None:
        value["family"] = subject.model.family.name
        value["shape"] = subject.model.encoder.shape.to_json()
        value["style"] = subject.model.encoder.style.to_json()
        value["head"] = subject.model.head.to_json()
    else:
        members = {number: head for body in subject.bodies for number, head in body.heads.items()}
        value["heads"] = [members[number].to_json() for number in range(len(members))]
    value["windows"] = window_settings(subject.files)
    abstention = stored_abstention(subject.files)
    if abstention is not None:
        value[KEY] = abstention.to_json()
    confidence = stored_confidence(subject.files)
    if confidence is not None:
        value[CONFIDENCE] = confidence.to_json()
    value["provenance"] = {"source": subject.files.source}
    value["exported"] = {"file": ONNX, "opset": OPSET, **{key: fact for key, fact in found.items() if fact is not None}}
    return value


def _check_place(files: ModelFiles, folder: Path) -> None:
    """Refuse to write over the model itself."""
    place = folder.resolve()
    for path in (files.description, *files.weights, *files.tokenizer):
        if place in path.resolve().parents:
            raise QuothError(f"{folder}: the model itself lies there; export to another folder")
