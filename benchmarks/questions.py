"""Questions for measurements: fixed samples, and parts of SQuAD files.

python -m benchmarks.questions dev-v2.0.json --out data      data/dev.json and data/test.json, halves by article
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import numpy as np

from quoth.data import read
from quoth.data.dataset import Question
from quoth.data.source import read_source
from quoth.files import write_json


def sample(path: str, count: int) -> list[Question]:
    """A fixed sample of the questions of a file."""
    every = read(path).questions
    drawn = np.random.default_rng(0).choice(len(every), min(count, len(every)), replace=False)
    return [every[i] for i in drawn]


def hold_out(
    train: Path, folder: Path, part: float, names: tuple[str, str] = ("search-train", "search-held-out")
) -> tuple[Path, Path]:
    """Split a SQuAD file by article: about `part` of the questions, at least one article, go to the second file."""
    data = json.loads(read_source(train))
    sizes = [sum(len(p["qas"]) for p in article["paragraphs"]) for article in data["data"]]
    order = np.random.default_rng(0).permutation(len(sizes))
    count = max(1, int((np.cumsum(np.array(sizes)[order]) <= part * sum(sizes)).sum()))
    held = set(order[:count].tolist())
    folder.mkdir(parents=True, exist_ok=True)
    paths = folder / f"{names[0]}.json", folder / f"{names[1]}.json"
    for path, inside in zip(paths, (False, True)):
        articles = [article for i, article in enumerate(data["data"]) if (i in held) == inside]
        path.write_text(json.dumps({"version": "v2.0", "data": articles}), encoding="utf-8")
    return paths


def thin(train: Path, folder: Path, share: float) -> Path:
    """A SQuAD file with all unanswerable questions, and so many of the others that those are `share` of all."""
    data = json.loads(read_source(train))
    passages = [passage for article in data["data"] for passage in article["paragraphs"]]
    places = [(i, j) for i, passage in enumerate(passages) for j, qa in enumerate(passage["qas"]) if qa["answers"]]
    count = sum(len(passage["qas"]) for passage in passages) - len(places)
    kept = np.random.default_rng(0).permutation(len(places))[: round(count * (1 - share) / share)]
    chosen = {places[i] for i in kept}
    for i, passage in enumerate(passages):
        passage["qas"] = [qa for j, qa in enumerate(passage["qas"]) if not qa["answers"] or (i, j) in chosen]
    for article in data["data"]:
        article["paragraphs"] = [passage for passage in article["paragraphs"] if passage["qas"]]
    data["data"] = [article for article in data["data"] if article["paragraphs"]]
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"train-{share:g}.json"
    write_json(path, data)
    return path


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("squad", type=Path, help="a SQuAD file, such as the official dev-v2.0.json")
    parser.add_argument("--out", type=Path, required=True, help="the folder of dev.json and test.json")
    options = parser.parse_args()
    for path in hold_out(options.squad, options.out, 0.5, ("dev", "test")):
        print(f"wrote {path}: {len(read(path)):,} questions")


if __name__ == "__main__":
    main()
