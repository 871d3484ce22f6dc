"""Pack what is small of run folders and sweeps, to bring it from one machine to another; and unpack it.

    python -m benchmarks.pack_runs runs/methods --out $OUT                      # $OUT/methods-1.tar.gz, methods-2.tar.gz ...
    python -m benchmarks.pack_runs --unpack $OUT/methods-*.tar.gz --out runs    # runs/methods

Packed are finished runs alone, without models: recipe.toml, metrics.json, log.jsonl and answers.jsonl.gz, also of heads on
frozen states and of the targets of a pruning run; and the sweep.json of a sweep. `quoth sweep` goes on from an unpacked
folder with the same grid: what was packed has finished, the rest is trained.
"""  # noqa: E501 - commands are not broken

from __future__ import annotations

import argparse
import tarfile
from collections.abc import Iterator
from pathlib import Path

from quoth.errors import QuothError
from quoth.files import atomic_file

KEPT = ("recipe.toml", "metrics.json", "log.jsonl", "answers.jsonl.gz", "answers.jsonl")
METRICS, SWEEP = "metrics.json", "sweep.json"
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


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("paths", type=Path, nargs="+", metavar="RUN|SWEEP|ARCHIVE")
    parser.add_argument("--out", type=Path, required=True, help="the folder to write into")
    parser.add_argument("--unpack", action="store_true", help="unpack archives")
    options = parser.parse_args()
    if options.unpack:
        unpack(options.paths, options.out)
        return
    for folder in options.paths:
        for path in pack(folder, options.out):
            print(f"{path}: {path.stat().st_size / 2**20:.1f} MiB")


if __name__ == "__main__":
    main()
