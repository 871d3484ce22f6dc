"""`Masked`: a packed batch in which some tokens are to be guessed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from quoth.windows.packed import Array, Other, Packed

NOTHING = -100  # the target of a place that does not count, as torch's cross-entropy has it


@dataclass(frozen=True)
class Masked(Packed[Array]):
    """A batch whose `ids` have masks and wrong words in them.

    places: (m,) which tokens of the batch are to be guessed; targets: (m,) what stood there, or `NOTHING`. A batch
    may have more places than masked tokens, so that their number need not be read from the device.
    weight: what each masked token counts in a loss that is summed over windows (`quoth.tasks.pretrain`)
    """

    places: Array
    targets: Array
    weight: float

    def map(self, to: Callable[[Array], Other]) -> Masked[Other]:
        """The same batch with every array passed through `to`."""
        return Masked(
            to(self.ids),
            to(self.positions),
            to(self.types),
            to(self.starts),
            self.lengths,
            to(self.places),
            to(self.targets),
            self.weight,
        )
