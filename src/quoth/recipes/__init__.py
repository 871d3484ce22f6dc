"""The recipes that ship with Quoth, one TOML file each, by name: `hulburd/l6`, `bertvision/heads`, `prune`, `embedded`.

hulburd/      tables 1 to 3 of Hulburd 2020, LoRA and BitFit                                   quoth train
bertvision/   tables and figures 2 to 6 of Jiang, Benge and King 2022, GLUE                    quoth train
silva/        tables 1 to 3 of Silva 2020                                                      quoth train
pretrain      MLM and NSP on plain text                                                        quoth train
schubert/     Algorithm 1 of Khetan and Karnin 2020 on the loss of pre-training, and baselines   quoth prune
prune         the same algorithm by distillation, on a fine-tuned model                        quoth prune
embedded      the embedded reader                                                              quoth build

A recipe of a paper has a comment "Rows:" with the rows of tables and the figures that it gives, and says what the paper
leaves open and is ours.
"""

from __future__ import annotations

from pathlib import Path

from quoth.config import nearest
from quoth.errors import QuothError

FOLDER = Path(__file__).parent
SUFFIX = ".toml"


def recipe_names() -> list[str]:
    """The names of all recipes that ship, sorted."""
    return sorted(path.relative_to(FOLDER).with_suffix("").as_posix() for path in FOLDER.rglob(f"*{SUFFIX}"))


def find_recipe(name: str | Path) -> Path:
    """The file of a recipe: a path to a file, or the name of a recipe that ships, with or without `.toml`."""
    if Path(name).is_file():
        return Path(name)
    short = str(name).removesuffix(SUFFIX)
    known = recipe_names()
    if short not in known:
        raise QuothError(f"{name}: no such file, and no such recipe in Quoth; did you mean {nearest(short, known)}?")
    return FOLDER / f"{short}{SUFFIX}"
