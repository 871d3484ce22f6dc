"""Before any training: the cost of a run, its rounds, and whether they can be done at all."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from quoth.encoder import Shape
from quoth.errors import QuothError
from quoth.files import read_object, write_json
from quoth.model import Model
from quoth.prune.baselines import drop_layers, layers_kept
from quoth.prune.cost import Cost, Flops, Parameters
from quoth.prune.dimensions import check, sizes, with_sizes
from quoth.prune.latency import Latency, measure_latency
from quoth.prune.recipe import PruneRecipe
from quoth.tasks import task_of

START = "start"


@dataclass(frozen=True)
class Round:
    """A round of Algorithm 1.

    number: from 1; part: of the unpruned model's cost that it leaves, None for what is done before the first
    target: the name of the folder that its model is saved in, "" between targets
    before: the round whose model it begins from, 0 for the unpruned model
    """

    number: int
    part: float | None
    target: str
    before: int


def make_cost(recipe: PruneRecipe, model: Model, run: Path, device: str) -> Cost:
    """The objective of a run. A latency that was measured stays in the run folder, for a run that goes on."""
    target = recipe.target
    if target.by == "parameters":
        return Parameters(embeddings=target.embeddings, pooler=model.pooler is not None)
    if target.by == "flops":
        return Flops(recipe.data.max_length)
    kept = run / "latency.json"
    if kept.exists():
        return Latency.from_json(read_object(kept), str(kept))
    shape, style = model.encoder.shape, model.encoder.style
    latency = measure_latency(shape, target.device or device, length=recipe.data.max_length, style=style)
    write_json(kept, latency.to_json())
    return latency


def plan_rounds(recipe: PruneRecipe, shape: Shape, cost: Cost) -> list[Round]:
    """All rounds: T for each target that can be reached, each taking the same share of what is to go on the way."""
    rounds: list[Round] = []
    target, first, part = recipe.target, 0, 1.0
    started = start_shape(recipe, shape)
    if started is not None:
        rounds.append(Round(1, None, START, 0))
        first, part = 1, cost(started) / cost(shape)
    begin, before = part, first
    for keep in reached(recipe, unreachable(recipe, shape, cost)):
        if target.fresh:
            begin, before = part, first
        for number in range(1, target.rounds + 1):
            left = begin + (keep - begin) * number / target.rounds
            name = folder_of(keep) if number == target.rounds else ""
            rounds.append(Round(len(rounds) + 1, left, name, before))
            before = len(rounds)
        begin = keep
    return rounds


def folder_of(keep: float) -> str:
    """The folder of a target in RUN."""
    return f"keep-{keep:g}"


def reached(recipe: PruneRecipe, missed: Mapping[str, str]) -> tuple[float, ...]:
    """The targets of a recipe but for those that are missed, by the names of their folders."""
    return tuple(keep for keep in recipe.target.keep if folder_of(keep) not in missed)


def unreachable(recipe: PruneRecipe, shape: Shape, cost: Cost) -> dict[str, str]:
    """The targets that no shape satisfies, by the names of their folders, and a line that says why.

    shape: of the unpruned model
    """
    target, full = recipe.target, cost(shape)
    begun = start_shape(recipe, shape) or shape
    if recipe.method == "layers":
        how, least = "dropping layers", replace(begun, layers=begun.layers[:1])
    else:
        how, least = f"cutting {target.kinds}", smallest(begun, target.kinds, target.multiple)
    found = {}
    for keep in target.keep:
        why, left = "", cost(least) / full
        if cost(least) > keep * full:
            why = f"{how} as far as it goes leaves {left:.3f} of the {target.by}; keep more, or cut more kinds"
        elif keep * full >= cost(begun):
            why = f"what is done at the start leaves {cost(begun) / full:.3f} of the {target.by} already; keep less"
        if why:
            found[folder_of(keep)] = f"target.keep = {keep:g} cannot be reached: {why}"
    return found


def start_shape(recipe: PruneRecipe, shape: Shape) -> Shape | None:
    """The shape after what is done at the start, None if nothing is."""
    start = recipe.start
    if not start.changes:
        return None
    if start.layers is not None:
        kept = layers_kept(len(shape.layers), start.layers, start.which)
        shape = replace(shape, layers=tuple(shape.layers[i] for i in kept))
    if start.embedding is not None:
        shape = replace(shape, embedding=start.embedding, projection=True)
    return shape


def smallest(shape: Shape, kinds: str, multiple: int) -> Shape:
    """What is left if all dimensions of these kinds are cut as far as they go."""
    least = {name: min(size, 1 if name[0] == "a" else multiple) for name, size in sizes(shape, kinds).items()}
    return with_sizes(shape, least)


def check_run(recipe: PruneRecipe, model: Model, cost: Cost) -> None:
    """Refuse what cannot be done: a head that does not follow, targets of which no shape reaches one."""
    if model.head is None:
        raise QuothError(f"{recipe.model}: has no head, so there is no loss to prune by; train it first")
    if model.head.task != task_of(recipe.data).head_task:
        raise QuothError(f"{recipe.model}: its head is none for data.task = {recipe.data.task!r}; train one first")
    if recipe.method == "layers":
        drop_layers(model, 1)  # which looks at the head
    else:
        check(model, sizes(model.encoder.shape, recipe.target.kinds))
    missed = unreachable(recipe, model.encoder.shape, cost)
    if missed and not reached(recipe, missed):
        raise QuothError(f"recipe: {next(iter(missed.values()))}")
