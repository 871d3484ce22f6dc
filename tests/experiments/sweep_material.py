"""A grid of small runs, and a sweep of it in a process of its own."""

import json

from train.material import make_recipe_file, quoth, start, table

KEEP = ("quality", "trainable_parameters", "total_parameters", "steps", "windows", "epochs", "bytes", "seed", "frozen")
VARIES = (
    "train_seconds",
    "windows_per_second",
    "seconds",
    "bytes",
)  # of heads: the path of their base is among the bytes


def write_grid(folder, material, text="", epochs=1.0, **sections):
    """GRID.toml and its recipe; text: what comes after `recipe`."""
    optimisation = {"epochs": epochs, **sections.pop("optimisation", {})}
    made = table(material.model, material.train, material.dev, optimisation=optimisation, **sections)
    recipe = make_recipe_file(folder / "base.toml", made)
    grid = folder / "grid.toml"
    grid.write_text(f'recipe = "{recipe}"\n{text}\n')
    return grid


def sweep(*arguments, **options):
    return quoth("sweep", *arguments, "--device", "cpu", **options)


def start_sweep(*arguments):
    return start("sweep", *arguments, "--device", "cpu")


def results(folder):
    """What every run came to, by folder, without times: bit for bit."""
    found = {}
    for path in sorted(folder.glob("*/metrics.json")):
        metrics = json.loads(path.read_text())
        answers = (path.parent / "answers.jsonl.gz").read_bytes()
        found[path.parent.name] = ({key: _without_times(metrics.get(key)) for key in KEEP}, answers)
    return found


def _without_times(value):
    if isinstance(value, dict):
        return {key: _without_times(inner) for key, inner in value.items() if key not in VARIES}
    return value


def states(folder):
    return {run["folder"]: run["state"] for run in json.loads((folder / "sweep.json").read_text())["runs"]}
