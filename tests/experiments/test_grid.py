"""Which runs a grid file asks for: the product by hand and by properties, overrides, names, mistakes."""

import itertools
import tomllib

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from quoth.config import dump_toml, flat
from quoth.errors import QuothError
from quoth.experiments.grid import Grid, plan_runs, read_grid
from quoth.recipes import find_recipe

SHARED = {"model": "m", "data": {"train": "t.json", "evaluate": "d.json"}}


def grid(**more):
    return Grid(**{"recipe": "hulburd/l6", "override": SHARED, **more})


def recipe_of(run):
    return flat(tomllib.loads(run.recipe.to_toml()))


RATES = st.lists(st.sampled_from([1e-5, 3e-5, 1e-4, 3e-4]), min_size=1, unique=True)
LAYERS = st.lists(st.integers(0, 12), min_size=1, max_size=4, unique=True)
SEEDS = st.lists(st.integers(0, 99), min_size=1, max_size=4, unique=True)
NAMES = st.lists(st.from_regex(r"[A-Z][a-z0-9]{0,6}", fullmatch=True), max_size=3, unique_by=str.casefold)


@settings(deadline=None, max_examples=30)
@given(RATES, LAYERS, SEEDS, NAMES)
def test_the_product_of_everything(rates, layers, seeds, names):
    """Every combination once, as itertools has them; every run with its own folder, and nothing else changed."""
    batch = {name: {"optimisation": {"batch_size": 4 + i}} for i, name in enumerate(names)}
    values = {"optimisation": {"learning_rate": rates}, "tuning": {"layers": layers}}
    runs = plan_runs(grid(seeds=tuple(seeds), runs=batch, grid=values), "grid.toml")
    sizes = [4 + i for i in range(len(names))] or [8]
    wanted = list(itertools.product(sizes, rates, layers, seeds))
    keys = ("optimisation.batch_size", "optimisation.learning_rate", "tuning.layers", "seed")
    assert [tuple(recipe_of(run)[key] for key in keys) for run in runs] == wanted
    assert len({run.folder.casefold() for run in runs}) == len(runs)
    assert len({run.method for run in runs}) == len(runs) // len(seeds)
    base = recipe_of(plan_runs(grid(), "")[0])
    for run in runs:
        assert {key: value for key, value in recipe_of(run).items() if base[key] != value}.keys() <= set(keys)


VALUES = st.one_of(st.text(max_size=100), st.integers(), st.floats(allow_nan=False), st.booleans())


@settings(deadline=None, max_examples=50)
@given(st.lists(VALUES, min_size=1, max_size=4, unique_by=lambda value: (type(value), value)))
def test_any_value_makes_a_folder_name(values):
    """`data.evaluate` takes any text: names stay names, and are not equal."""
    texts = [value for value in values if isinstance(value, str) and value]
    if not texts:
        return
    if len({text.casefold() for text in texts}) < len(texts):
        return  # "a" and "A" would lie in one folder: `test_mistakes_name_the_culprit`
    for run in plan_runs(grid(grid={"data": {"evaluate": texts}}), "g"):
        assert not set(run.folder) & set('/\\:*?"<>|\0\n')
        assert not run.folder.startswith((".", "-"))
        assert len(run.folder) < 130


def test_a_file(tmp_path):
    """The example of docs/compare.md."""
    path = tmp_path / "grid.toml"
    path.write_text(
        """
        recipe = "hulburd/l0-a64"
        seeds = [0, 1, 2]
        [override]
        model = "m"
        data.train = "train.json"
        [runs.adapters]
        tuning.size = 32
        [runs.lora]
        recipe = "hulburd/lora"
        [grid]
        optimisation.learning_rate = [1e-4, 3e-4]
        """
    )
    runs = read_grid(path)
    assert len(runs) == 2 * 2 * 3
    first, last = runs[0].recipe, runs[-1].recipe
    assert first.tuning["kind"] == "adapters"
    assert first.tuning["size"] == 32, "other keys of the recipe's tuning stay"
    assert (last.tuning["kind"], last.optimisation.learning_rate, last.seed) == ("lora", 3e-4, 2)
    assert (
        first.optimisation.batch_size
        == tomllib.loads(find_recipe("hulburd/l0-a64").read_text())["optimisation"]["batch_size"]
    ), "other keys of the recipe stay"
    assert runs[0].folder == "adapters-learning_rate=0.0001-seed0"
    over = read_grid(path, ["seeds=[7]", "optimisation.epochs=1", "optimisation.learning_rate=1"][:2])
    assert [run.seed for run in over] == [7] * 4
    assert {run.recipe.optimisation.epochs for run in over} == {1.0}


def test_a_table_of_a_kind_takes_the_place_of_another():
    table = {"a": {"tuning": {"kind": "full"}}, "b": {"tuning": {"layers": 2}}}
    full, freeze = plan_runs(grid(runs=table), "g")
    assert full.recipe.tuning == {"kind": "full"}
    assert freeze.recipe.tuning == {"kind": "freeze", "layers": 2}


@pytest.mark.parametrize(
    ("made", "message"),
    [
        ({"seeds": ()}, "seeds is []; different whole numbers"),
        ({"seeds": (1, 1)}, "different whole numbers"),
        ({"seeds": (-1,)}, "different whole numbers"),
        ({"override": {**SHARED, "seed": 3}}, "override has a seed"),
        ({"grid": {"seed": [1, 2]}}, "grid has a seed"),
        ({"grid": {"optimisation": {"learning_rate": 1e-4}}}, "grid.optimisation.learning_rate is 0.0001; a list"),
        ({"grid": {"optimisation": {"learning_rate": []}}}, "a list of at least one value"),
        ({"grid": {"optimisation": {"learning_rat": [1]}}}, "did you mean optimisation.learning_rate?"),
        (
            {"grid": {"optimisation": {"learning_rate": [-1.0]}}},
            "g: learning_rate=-1: optimisation.learning_rate is -1.0",
        ),
        ({"runs": {"a": 3}}, "runs.a is 3, a table is wanted"),
        ({"runs": {"a/b": {}}}, "'a/b' in runs: a name has letters"),
        ({"runs": {"a": {}, "A": {"tuning": {"layers": 1}}}}, "would lie in one folder"),
        ({"runs": {"a": {}, "b": {}}}, "the runs 'a' and 'b' are the same recipe"),
        ({"runs": {"a": {"recipe": "no/such"}}}, "no such recipe in Quoth"),
        ({"recipe": ""}, "runs are made of a recipe"),
        ({"grid": {"optimisation": {"batch_size": list(range(1, 10_002))}}}, "is 10,001 runs; at most 10,000"),
    ],
)
def test_mistakes_name_the_culprit(made, message):
    with pytest.raises(QuothError) as error:
        plan_runs(grid(**made), "g")
    assert message in str(error.value)
    assert "\n" not in str(error.value)


def test_an_unknown_key_of_the_grid(tmp_path):
    path = tmp_path / "g.toml"
    path.write_text(dump_toml({"recipe": "hulburd/l6", "seed": [1]}))
    with pytest.raises(QuothError, match="unknown key seed; did you mean seeds"):
        read_grid(path)
