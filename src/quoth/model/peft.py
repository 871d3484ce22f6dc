"""LoRA models as peft keeps them: adapter_config.json and adapter_model.safetensors, with Hugging Face's names.

PeftModel.from_pretrained(BertForQuestionAnswering.from_pretrained(base), folder)   computes what our model computes
"""

from __future__ import annotations

from pathlib import Path

from torch import Tensor

from quoth.errors import QuothError
from quoth.files import atomic_file, write_json
from quoth.model.model import Model
from quoth.model.saving import hugging_face_kind
from quoth.model.tuned import trainable
from quoth.model.weights import write_weights
from quoth.tune import LoRA

# Not "QUESTION_ANS" for spans: peft's class for that (0.21) drops token_type_ids on the way to the model, so that its
# answers are others. Without a task peft hands everything on.
TASKS = {None: None, "span": None, "class": "SEQ_CLS"}


def save_peft(model: Model, folder: str | Path) -> None:
    """Save LoRA's weights for peft, and the head as `modules_to_save`; the base is what the model was loaded from."""
    tuning = model.tuning
    if not isinstance(tuning, LoRA):
        found = "no tuning" if tuning is None else f"tuning {tuning.kind}"
        raise QuothError(f"only LoRA can be saved for peft; this model has {found}")
    model.family.check_expressible(model.encoder.shape)
    kind = hugging_face_kind(model)
    if kind not in TASKS:
        raise QuothError(f"peft has no task for a head of kind {kind!r}; save as a Quoth folder")
    weights: dict[str, Tensor] = {}
    targets, whole = set(), set()
    state = model.state_dict()
    for name in sorted(trainable(model, tuning)):
        owner, _, last = name.rpartition(".")
        if last in ("lora_a", "lora_b"):
            theirs = model.family.to_hugging_face(f"{owner}.weight", kind).removesuffix(".weight")
            targets.add(theirs)
            theirs = f"{theirs}.lora_{last[-1].upper()}.weight"
        else:
            theirs = model.family.to_hugging_face(name, kind)
            whole.add("pooler" if name.startswith("pooler.") else theirs.partition(".")[0])
        weights[f"base_model.model.{theirs}"] = state[name].detach().cpu().contiguous()
    config = {
        "peft_type": "LORA",
        "task_type": TASKS[kind],
        "base_model_name_or_path": model.base.source if model.base is not None else model.origin.source,
        "r": tuning.rank,
        "lora_alpha": tuning.alpha,
        "lora_dropout": tuning.dropout,
        "bias": "none",
        "target_modules": sorted(targets),
        "modules_to_save": sorted(whole) or None,
        "inference_mode": True,
    }
    folder = Path(folder)
    with atomic_file(folder / "adapter_model.safetensors") as part:
        write_weights(part, weights, folder / "adapter_model.safetensors")
    write_json(folder / "adapter_config.json", config)
