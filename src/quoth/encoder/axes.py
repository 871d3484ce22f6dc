"""The axes of tensors that pruning may cut, by the names of the dimensions that they run over.

A head or a tuning method states in its own file which of its parameters have such an axis; `quoth.prune` does the rest.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar, Protocol, runtime_checkable

from torch import Tensor

Axis = tuple[str, ...]
"""What an axis runs over: ("h",), or ("a0", "k0") for heads of keys, the heads outside; () for what is never cut."""

Keep = Mapping[str, Tensor]
"""Which elements stay: (size,) booleans by the name of the dimension; a dimension that is not named stays whole."""

Alpha = Mapping[str, Tensor]
"""α by the name of the dimension, (size,) each: of `quoth.prune.Gates`, or computed from what is trained."""

HIDDEN: Axis = ("h",)
FREE: Axis = ()

Axes = Mapping[str, tuple[Axis, ...]]
"""For each parameter, by name, what each of its axes runs over."""


@runtime_checkable
class Prunable(Protocol):
    """A head that can follow a cut of the hidden size: it says which axes of its parameters run over that."""

    axes: ClassVar[Axes]
