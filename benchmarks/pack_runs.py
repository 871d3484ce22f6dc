"""Pack what is small of run folders and sweeps, to bring it from one machine to another; and unpack it.

    python -m benchmarks.pack_runs runs/methods --out $OUT                      # $OUT/methods-1.tar.gz, methods-2.tar.gz ...
    python -m benchmarks.pack_runs --unpack $OUT/methods-*.tar.gz --out runs    # runs/methods
    python -m benchmarks.pack_runs --store runs/reproduce/hulburd --out benchmarks/results/runs    # for make papers

Packed are finished runs alone, without models: recipe.toml, metrics.json, log.jsonl and answers.jsonl.gz, also of heads on
frozen states and of the targets of a pruning run; and the sweep.json of a sweep. `quoth sweep` goes on from an unpacked
folder with the same grid: what was packed has finished, the rest is trained.

Stored are the same files as they are, in a folder, but scores.json.gz in the place of answers: the score of each question.
Reports can be made of them without the questions. Evaluation data is read where the recipes name it.
"""  # noqa: E501 - commands are not broken

from __future__ import annotations

import argparse
import tarfile
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from quoth.config import read_table
from quoth.data import read
from quoth.errors import QuothError
from quoth.experiments.compare_answers import write_scores
from quoth.files import atomic_file

KEPT = ("recipe.toml", "metrics.json", "log.jsonl", "answers.jsonl.gz", "answers.jsonl")
METRICS, SWEEP, RECIPE, SCORES = "metrics.json", "sweep.json", "recipe.toml", "scores.json.gz"
LARGEST = 15 * 2**20  # bytes of a part before it is compressed


def small_files(folder: Path) -> Iterator[Path]:
    """The files of a run or a sweep that are packed, run by run."""
    if (folder / METRICS).exists():
        yield from sorted(path for path in folder.rglob("*") if path.name in KEPT and path.is_file())
        return
    if not (folder / SWEEP).exists():
        raise QuothError(f"{folder}: has no {METRICS} and no {SWEEP}; name the folder of a finished run, or a sweep")
    yield folder / SWEEP
    for run in sorted(path.parent for path in folder.glob(f"*/{METRICS}")):
        yield from small_files(run)


def parts(files: Iterator[Path], largest: int) -> Iterator[list[Path]]:
    """The files in parts of at most so many bytes."""
    part: list[Path] = []
    size = 0
    for file in files:
        own = file.stat().st_size
        if own > largest:
            raise QuothError(f"{file}: has {own:,} bytes, a part has at most {largest:,}")
        if part and size + own > largest:
            yield part
            part, size = [], 0
        part.append(file)
        size += own
    if part:
        yield part


def pack(folder: Path, out: Path, largest: int = LARGEST) -> list[Path]:
    """Write OUT/NAME-1.tar.gz and so on; names inside begin with that of the folder."""
    found = []
    name = folder.resolve().name
    for number, files in enumerate(parts(small_files(folder), largest), 1):
        target = out / f"{name}-{number}.tar.gz"
        with atomic_file(target) as part, tarfile.open(part, "w:gz") as archive:
            for file in files:
                archive.add(file, Path(name) / file.relative_to(folder))
        found.append(target)
    return found


def unpack(archives: list[Path], out: Path) -> None:
    """Write what archives hold into a folder."""
    for path in archives:
        with tarfile.open(path) as archive:
            archive.extractall(out, filter="data")


def store(folder: Path, out: Path) -> Path:
    """Write the small files of a run or a sweep to OUT/NAME, with scores in the place of answers."""
    read_once = cache(read)
    target = out / folder.resolve().name
    for file in small_files(folder):
        kept = target / file.relative_to(folder)
        if file.name.startswith("answers."):
            recipe = next(path / RECIPE for path in file.parents if (path / RECIPE).exists())
            write_scores(kept.with_name(SCORES), read_once(read_table(recipe)["data"]["evaluate"]), file)
        else:
            with atomic_file(kept) as part:
                part.write_bytes(file.read_bytes())
    return target


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("paths", type=Path, nargs="+", metavar="RUN|SWEEP|ARCHIVE")
    parser.add_argument("--out", type=Path, required=True, help="the folder to write into")
    parser.add_argument("--unpack", action="store_true", help="unpack archives")
    parser.add_argument("--store", action="store_true", help="write folders, for reports")
    options = parser.parse_args()
    if options.unpack:
        unpack(options.paths, options.out)
        return
    if options.store:
        for folder in options.paths:
            print(store(folder, options.out))
        return
    for folder in options.paths:
        for path in pack(folder, options.out):
            print(f"{path}: {path.stat().st_size / 2**20:.1f} MiB")


if __name__ == "__main__":
    main()
