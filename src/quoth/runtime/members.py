"""An ensemble folder, described without torch: its members, and whether models may stand in one ensemble.

    quoth.json      {"format": 1, "ensemble": {"how": "max", "members": ["members/0", …], "encoders": [0, …]}}
    tokenizer.json …  the tokenizer of all members
    members/0 …       a model folder each, whole or a delta

`encoders` numbers the encoder of each member: equal numbers are equal weights, which are held and run once.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from quoth.config import shown
from quoth.errors import QuothError
from quoth.files import read_object
from quoth.hub import ModelFiles, find_model
from quoth.model import Checkpoint, open_checkpoint
from quoth.model.checkpoint import FORMAT
from quoth.runtime.combine import How, check_how
from quoth.windows import Tokenizer
from quoth.windows.settings import window_settings

RULES = ("normalizer", "pre_tokenizer", "model", "added_tokens")  # what of a tokenizer decides ids and spans


@dataclass(frozen=True)
class Ensemble:
    """An ensemble on disk: how its members are combined, the members, and the number of each one's encoder."""

    files: ModelFiles
    how: How
    members: tuple[Checkpoint, ...]
    encoders: tuple[int, ...]


def open_ensemble(source: str | Path) -> Ensemble:
    """Describe the ensemble in a folder or under a hub id. No weight is read."""
    files = find_model(source)
    path = files.description
    if not files.members:
        raise QuothError(f"{source}: is one model, not an ensemble; make one with `quoth ensemble`")
    value = read_object(path)
    if value.get("format") != FORMAT:
        raise QuothError(
            f"{path}: format {value.get('format')!r} is not {FORMAT}, which this version reads; upgrade Quoth"
        )
    table = value["ensemble"]
    try:
        how = check_how(table.get("how"))
    except QuothError as error:
        raise QuothError(f"{path}: {error}") from None
    encoders = table.get("encoders")
    numbers = isinstance(encoders, list) and all(type(number) is int for number in encoders)
    if not numbers or len(encoders) != len(files.members):
        raise QuothError(f"{path}: encoders is {shown(encoders)}; it must number the encoder of each member")
    return Ensemble(files, how, tuple(open_checkpoint(member.source) for member in files.members), tuple(encoders))


def check_together(members: Sequence[Checkpoint]) -> Checkpoint:
    """Refuse models that do not read the same windows; return the one whose tokenizer serves all.

    They must give a text the same tokens, frame it in the same way, and make windows of the same length. A family
    without token types (DistilBERT) goes with one that has them: then it is the latter's tokenizer that sets them.
    """
    lead = next((member for member in members if member.shape.types), members[0])
    for member in members:
        if _windows(member) != _windows(lead):
            raise QuothError(
                f"{member.files.source}: has windows of {_windows(member)}, but {lead.files.source} of "
                f"{_windows(lead)}; all members of an ensemble must read the same windows"
            )
        if not same_tokens(member, lead):
            raise QuothError(
                f"{member.files.source}: does not have the tokenizer of {lead.files.source}; all members of an "
                "ensemble must split texts into the same tokens"
            )
    return lead


def _windows(member: Checkpoint) -> str:
    """The settings of its windows, as a reader of this model alone would have them."""
    kept = window_settings(member.files)
    kept["max_length"] = min(kept["max_length"], member.shape.positions - member.style.first_position)
    return ", ".join(f"{key} {value}" for key, value in sorted(kept.items()))


def same_tokens(member: Checkpoint, lead: Checkpoint) -> bool:
    """Whether a member's windows would be the lead's: by the bytes of the files, else by what they say."""
    if not member.files.tokenizer:
        raise QuothError(f"{member.files.source}: has no tokenizer; tokenizer.json should lie beside the weights")
    if _contents(member) == _contents(lead):
        return True
    types = member.shape.types
    mine, theirs = (Tokenizer.load(one.files.tokenizer[0].parent) for one in (member, lead))
    return _rules(mine) == _rules(theirs) and _frame(mine, types) == _frame(theirs, types)


def _contents(member: Checkpoint) -> list[tuple[str, bytes]]:
    return [(path.name, path.read_bytes()) for path in member.files.tokenizer]


def _rules(tokenizer: Tokenizer) -> dict[str, Any]:
    value = json.loads(tokenizer.backend.to_str())
    return {key: value[key] for key in RULES}


def _frame(tokenizer: Tokenizer, types: int) -> object:
    """The special tokens around question and passage, and, for an encoder that has token types, the types."""
    frame = tokenizer.template
    return frame if types else (frame.prefix, frame.middle, frame.suffix)
