"""The families that Quoth knows, by name."""

from quoth.config import shown
from quoth.encoder.families import albert, bert, camembert, distilbert, electra, mpnet, roberta, xlm_roberta
from quoth.encoder.families.family import Family, translate
from quoth.errors import QuothError

__all__ = ["FAMILIES", "Family", "family_of", "is_known", "register_family"]

FAMILIES: dict[str, Family] = {}
CUT = ("encoder.layers.{i}.attention.relative",)  # of encoders whose heads were cut; no family has them


def register_family(family: Family) -> None:
    """Make a family known by its name."""
    FAMILIES[family.name] = family


for module in (bert, albert, roberta, distilbert, electra, mpnet, xlm_roberta, camembert):
    register_family(module.FAMILY)


def family_of(name: object, source: str) -> Family:
    """The family of this name, or an error that lists the known ones."""
    if not isinstance(name, str) or name not in FAMILIES:
        raise QuothError(f"{source}: unknown family {shown(name)}; known: {', '.join(FAMILIES)}")
    return FAMILIES[name]


def is_known(name: str) -> bool:
    """Whether a tensor of this name, ours, belongs to the encoder or the pooler of some family."""
    patterns = {ours for family in FAMILIES.values() for ours, _ in family.rules}
    return any(translate(name, ours, ours) for ours in (*patterns, *CUT))
