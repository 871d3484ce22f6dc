"""Checkpoints: what a run needs to resume exactly where it stopped, written whole or not at all, without pickle.

RUN/checkpoints/step-00000120/state.safetensors   what is trained, and AdamW's two moments of it
RUN/checkpoints/step-00000120/state.json          the number of the step, seconds so far, threads, processes
RUN/checkpoints/step-00000120/hashes.json         the sha256 of both
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor

from quoth.errors import QuothError
from quoth.files import read_json, sha256_of, write_json
from quoth.folders import atomic_folder
from quoth.train.log import Tell
from quoth.train.loop import Loop

MOMENTS = ("exp_avg", "exp_avg_sq")
STATE, HASHES = ("state.safetensors", "state.json"), "hashes.json"
KEPT = 2  # checkpoints: should the last one be damaged, there is one before it


def write_checkpoint(run: Path, loop: Loop, facts: dict[str, Any]) -> None:
    """Write the state of a loop and remove all older checkpoints but one. A full disk leaves the last good one."""
    tensors = {f"model.{name}": value.detach() for name, value, _ in loop.trained()}
    for name, value, optimiser in loop.trained():
        for moment in MOMENTS if value in optimiser.state else ():
            tensors[f"{moment}.{name}"] = optimiser.state[value][moment]
    folder = run / "checkpoints" / _name(loop.step)
    state = {"step": loop.step, "windows": loop.windows, **environment(loop), **facts}
    try:
        with atomic_folder(folder) as part:
            save_tensors(tensors | {"loss_sum": loop.loss_sum}, part / "state.safetensors")
            write_json(part / "state.json", {**state, "loss_steps": loop.loss_steps})
            write_json(part / HASHES, {name: sha256_of(part / name) for name in STATE})
            for path in (*part.iterdir(), part):
                _to_disk(path)
    except OSError as error:
        raise QuothError(
            f"{folder}: could not be written ({error.strerror}); make room, and the same command goes on from "
            "the checkpoint before"
        ) from None
    for old in _complete(run)[:-KEPT]:
        shutil.rmtree(old)


def read_checkpoint(run: Path, loop: Loop, identity: dict[str, str], tell: Tell) -> dict[str, Any]:
    """Bring a loop to the latest checkpoint of a run, if there is one. Returns the facts kept with it, else {}.

    identity: what must be the same as when the checkpoint was written, such as the hash of the data
    A checkpoint that is damaged is told, and the one before it is taken.
    """
    folder = _latest(run, tell)
    if folder is None:
        return {}
    state: dict[str, Any] = read_json(folder / "state.json")
    _check_environment(folder, state, environment(loop))
    changed = [key for key in identity if state.get(key) != identity[key]]
    if changed:
        raise QuothError(f"{folder}: the {changed[0]} has changed since it was written; use another --out")
    if state["step"] > loop.steps:
        raise QuothError(f"{folder}: is of a longer run, this one has {loop.steps} steps; use another --out")
    tensors = _load(folder / "state.safetensors", loop)
    for name, value, optimiser in loop.trained():
        with torch.no_grad():
            value.copy_(tensors[f"model.{name}"])
        if f"{MOMENTS[0]}.{name}" in tensors:  # none for a weight that no gradient has reached yet
            moments = {moment: tensors[f"{moment}.{name}"].clone() for moment in MOMENTS}
            steps = torch.tensor(float(state["step"]), device=value.device)
            optimiser.state[value] = {"step": steps, **moments}
    loop.step, loop.windows = state["step"], state["windows"]
    loop.loss_sum.copy_(tensors["loss_sum"] if loop.accelerator.is_main_process else torch.zeros_like(loop.loss_sum))
    loop.loss_steps = state["loss_steps"]
    return state


def environment(loop: Loop) -> dict[str, Any]:
    """What the last bit of a result depends on, beside recipe and data."""
    device = loop.accelerator.device.type
    return {
        "device": device,
        "processes": loop.accelerator.num_processes,
        "threads": torch.get_num_threads() if device == "cpu" else None,
    }


def remove_checkpoints(run: Path) -> None:
    """Remove all checkpoints: the run has ended."""
    shutil.rmtree(run / "checkpoints", ignore_errors=True)


def save_tensors(tensors: dict[str, Tensor], path: Path) -> None:
    """Write tensors; a full disk is an `OSError`, as with any other file."""
    try:
        save_file({name: value.cpu().contiguous() for name, value in tensors.items()}, path)
    except SafetensorError as error:
        raise OSError(None, str(error).strip(), str(path)) from None


def _name(step: int) -> str:
    return f"step-{step:08d}"


def _complete(run: Path) -> list[Path]:
    """Checkpoints that were written to the end, the latest last."""
    return sorted((run / "checkpoints").glob("step-*"))


def _latest(run: Path, tell: Tell) -> Path | None:
    """The latest checkpoint that is as it was written."""
    found = _complete(run)
    for folder in reversed(found):
        if _intact(folder):
            return folder
        tell(f"{folder}: damaged, so it is passed over")
    if found:
        raise QuothError(f"{found[-1]}: damaged, and so are all before it; remove {run / 'checkpoints'} to begin anew")
    return None


def _intact(folder: Path) -> bool:
    """Whether all files of a checkpoint have the hashes that were kept with them, and its state is one of ours."""
    try:
        if read_json(folder / HASHES) != {name: sha256_of(folder / name) for name in STATE}:
            return False
        state = read_json(folder / "state.json")
        return _is_state(state) and folder.name == _name(state["step"])
    except (QuothError, OSError, ValueError):
        return False


def _is_state(state: Any) -> bool:
    """Whether state.json has all that is read from it, of the right types."""
    if not isinstance(state, dict):
        return False
    counts = all(type(state.get(key)) is int and state[key] >= 0 for key in ("step", "windows", "loss_steps"))
    seconds, points = state.get("seconds", 0.0), state.get("evaluations", [])
    evaluations = isinstance(points, list) and all(
        isinstance(point, dict) and type(point.get("step")) is int and type(point.get("epoch")) in (int, float)
        for point in points
    )
    return counts and evaluations and type(seconds) in (int, float) and seconds >= 0


def _load(path: Path, loop: Loop) -> dict[str, Tensor]:
    device = loop.accelerator.device
    # of several processes on the CPU the device is called cpu:0, which safetensors does not know
    try:
        tensors: dict[str, Tensor] = load_file(path, device="cpu" if device.type == "cpu" else str(device))
    except SafetensorError as error:
        raise QuothError(
            f"{path}: not a safetensors file ({error}); remove {path.parent.parent} to begin anew"
        ) from None
    wanted = {f"model.{name}": value.shape for name, value, _ in loop.trained()}
    for name, value, _ in loop.trained():
        if any(f"{moment}.{name}" in tensors for moment in MOMENTS):
            wanted |= {f"{moment}.{name}": value.shape for moment in MOMENTS}
    wanted["loss_sum"] = loop.loss_sum.shape
    for name, shape in wanted.items():
        if name not in tensors or tensors[name].shape != shape:
            raise QuothError(f"{path}: has no {name} of shape {tuple(shape)}: it belongs to another model")
    return tensors


def _check_environment(path: Path, then: dict[str, Any], now: dict[str, Any]) -> None:
    hints = {
        "threads": "set OMP_NUM_THREADS={} for the same result",
        "processes": "launch {} process(es)",
        "device": "run it on {}",
    }
    for key, value in now.items():
        if then.get(key) != value:
            raise QuothError(
                f"{path}: was written with {key} = {then.get(key)}, and this run has {value}, so it cannot go on "
                f"exactly: {hints[key].format(then.get(key))}, or begin anew with another --out"
            )


def _to_disk(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
