"""The families that Quoth knows, by name."""

from quoth.encoder.families import albert, bert, distilbert, electra, roberta
from quoth.encoder.families.family import Family
from quoth.errors import QuothError

FAMILIES: dict[str, Family] = {
    module.FAMILY.name: module.FAMILY for module in (bert, albert, roberta, distilbert, electra)
}


def family_of(name: object, source: str) -> Family:
    """The family of this name, or an error that lists the known ones."""
    if name not in FAMILIES:
        raise QuothError(f"{source}: unknown family {name!r}; known: {', '.join(FAMILIES)}")
    return FAMILIES[str(name)]


__all__ = ["FAMILIES", "Family", "family_of"]
