"""Cases of every verb of the command line: its arguments, and the files that they name."""

from __future__ import annotations

import json
from contextlib import chdir
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from hypothesis import strategies as st

from fuzz.case import Case
from fuzz.data_formats import ANSWERS, PREDICTIONS, PROBABILITIES
from fuzz.hostile import TEXTS, Draw, changed, damage, json_file, json_lines, toml
from fuzz.material import CONTEXT, model_folders, squad
from fuzz.run_formats import LOG, METRICS, PRUNED, STAGE
from quoth.experiments.advise import Ask
from quoth.experiments.advise import advise as run_search
from quoth.search import open_index

OUT = "out"  # the only place that a verb may write to
SQUAD = json.dumps(squad()).encode()
ODD = (
    "",
    "-",
    "--",
    "-x",
    "--json",
    "--help",
    "no-such",
    "a/b",
    "a/b/c",
    "/dev/null",
    "/dev/zero",
    ".",
    "..",
    "é",
    "\x1b[31m",
    "x" * 300,
    "\udc80",
)
NUMBERS = ("0", "1", "-1", "3", "0.5", "1e300", "nan", "inf", "-inf", "99999999999999999999", "²", "1_000", "", "x")


def _below(name: str, files: dict[str, bytes]) -> dict[str, bytes]:
    return {f"{name}/{key}": data for key, data in files.items()}


@st.composite
def data_files(draw: Draw) -> dict[str, bytes]:
    """Questions: as they should be, or hostile."""
    bad = draw(st.integers(0, 2)) == 2
    return {"d.json": draw(json_file(squad(), zipped=True)) if bad else SQUAD}


@st.composite
def model_files(draw: Draw, *kinds: str) -> dict[str, bytes]:
    """A model folder `m`: of some kind, sometimes with one file changed."""
    kind = draw(st.sampled_from(kinds))
    files = dict(model_folders()[kind])
    if draw(st.integers(0, 2)) == 2:
        name = draw(st.sampled_from([key for key in sorted(files) if key.endswith(".json")]))
        files[name] = draw(json_file(json.loads(files[name]), most=2))
    if kind == "delta":
        return {key if key.startswith("base/") else key.replace("delta/", "m/", 1): data for key, data in files.items()}
    return _below("m", files)


@st.composite
def options(draw: Draw, **known: Any) -> list[str]:
    """Some of the options of a verb, each with one of its values or an odd one; sometimes one that nobody knows."""
    found: list[str] = []
    for name in draw(st.lists(st.sampled_from(sorted(known)), max_size=3, unique=True)) if known else []:
        values, flag = known[name], f"--{name.replace('_', '-')}"
        found += [flag] if values is None else [flag, draw(st.sampled_from(values))]
    if draw(st.integers(0, 11)) == 11:
        found.append(draw(st.sampled_from((*ODD, "--no-such", "--out"))))
    return found


def _argument(draw: Draw, usual: str) -> str:
    """What is usually given, rarely something odd."""
    return usual if draw(st.integers(0, 7)) < 7 else draw(st.sampled_from(ODD))


DEVICE = {"device": ("cpu", "cuda", "x", ""), "json": None}
READER = {**DEVICE, "precision": ("fp32", "bf16", "x"), "min_score": ("0", "0.5", *NUMBERS)}
QUESTIONS = b"Who built the mill?\n:all\n# no\nWhen?\n:top x\n:min-score 0\nWhy?\n"
WHOLE = ("whole", "hf", "delta", "ensemble", "exported", "sharded", "bin")


@st.composite
def ask(draw: Draw) -> Case:
    text = draw(st.sampled_from([CONTEXT, CONTEXT * 20, "", *TEXTS])).encode("utf-8", "surrogatepass")
    lines = draw(st.sampled_from([QUESTIONS, b"", b"# none\n", b"\xff\nWho?\n", b"\x1b[31mWho?\r\0\n" * 3]))
    files = {"a.txt": text, "q.txt": lines, **draw(model_files(*WHOLE))}
    asked = draw(st.sampled_from(["Who built the mill?", "When?", "", "\udc80", "x" * 3000, "\x1b[31mWho?"]))
    given = draw(st.sampled_from([[asked]] * 3 + [["-q", _argument(draw, "q.txt")], ["-i"]]))
    more = draw(
        options(
            top=("1", "3", "1000", *NUMBERS),
            read=("0", "1", *NUMBERS),
            all=None,
            sentences=None,
            no_index=None,
            index=(OUT, f"{OUT}/i", "a.txt", ""),
            **READER,
        )
    )
    model = ["-m", _argument(draw, "m")] if draw(st.integers(0, 5)) < 5 else []
    stdin = lines if given == ["-i"] else text
    return Case(files, (_command(draw, "ask"), *given, _argument(draw, "a.txt"), *model, *more), stdin)


@cache
def _stored_index() -> bytes:
    """The file of an index, of another folder."""
    with TemporaryDirectory() as folder:
        Path(folder, "a.txt").write_text(CONTEXT)
        opened, _ = open_index(folder, Path(folder, "i"))
        opened.close()
        return Path(folder, "i").read_bytes()


@st.composite
def index(draw: Draw) -> Case:
    """A folder of texts, and sometimes an index that is damaged, of another folder, or none."""
    texts = draw(st.lists(st.sampled_from([CONTEXT, "", *TEXTS]), min_size=1, max_size=3))
    files = {f"f/{i}.txt": text.encode("utf-8", "surrogatepass") for i, text in enumerate(texts)}
    files |= {f"{OUT}/i": damage(draw, _stored_index()), "i": CONTEXT.encode()}
    more = draw(
        options(index=(f"{OUT}/i", f"{OUT}/new", f"{OUT}/a/b", "i", "i/x", "f", ".", ""), rebuild=None, json=None)
    )
    return Case(files, (_command(draw, "index"), _argument(draw, "f"), *more))


@st.composite
def answer(draw: Draw) -> Case:
    files = {**draw(data_files()), **draw(model_files(*WHOLE))}
    more = draw(
        options(
            nbest=("out/n.json", "."),
            na_probs=("out/p.json.gz",),
            top=NUMBERS,
            rule=("devlin", "probability", "bertvision", "x"),
            max_answer_tokens=NUMBERS,
            **READER,
        )
    )
    return Case(
        files, (_command(draw, "answer"), _argument(draw, "d.json"), "--out", _out(draw, "p.json"), "-m", "m", *more)
    )


@st.composite
def score(draw: Draw) -> Case:
    files = {**draw(data_files()), "p.json": draw(json_file(PREDICTIONS)), "n.json": draw(json_file(PROBABILITIES))}
    more = draw(
        options(
            na_probs=("n.json", "p.json"), na_threshold=NUMBERS, against=("p.json", "n.json"), squad1=None, json=None
        )
    )
    return Case(files, (_command(draw, "score"), _argument(draw, "d.json"), _argument(draw, "p.json"), *more))


@st.composite
def evaluate(draw: Draw) -> Case:
    files = {**draw(data_files()), **draw(model_files(*WHOLE))}
    more = draw(
        options(rule=("devlin", "x"), max_answer_tokens=NUMBERS, threshold=NUMBERS, store_threshold=None, **READER)
    )
    return Case(files, (_command(draw, "evaluate"), _argument(draw, "d.json"), "-m", _argument(draw, "m"), *more))


@st.composite
def calibrate(draw: Draw) -> Case:
    files = {**draw(data_files()), **draw(model_files(*WHOLE))}
    more = draw(options(dry_run=None, **DEVICE))
    data = [_argument(draw, "d.json") for _ in range(draw(st.integers(1, 2)))]
    return Case(files, (_command(draw, "calibrate"), *data, "-m", _argument(draw, "m"), *more))


@st.composite
def negatives(draw: Draw) -> Case:
    parts = ("0.5", "1", "2", *NUMBERS)
    known = dict.fromkeys(("moved", "lookalike", "entity", "negation"), parts)
    more = draw(options(**known, seed=NUMBERS, show=NUMBERS, out=("out/n.json", "out/n.json.gz"), json=None))
    return Case(draw(data_files()), (_command(draw, "negatives"), _argument(draw, "d.json"), "--entity", "1", *more))


RECIPE: dict[str, Any] = {
    "model": "m", "data": {"train": "d.json", "evaluate": "d.json", "max_length": 48, "step": 8, "max_query_length": 9},
    "optimisation": {"epochs": 1.0, "batch_size": 2, "learning_rate": 1e-3},
}  # fmt: skip
PRUNING = {
    **RECIPE,
    "target": {"keep": 0.95, "kinds": "f", "embeddings": False},
    "gates": {"steps": 1},
    "recovery": {"epochs": 0.5, "batch_size": 2},
}
PRUNING.pop("optimisation")
BUILDING = {
    "data": RECIPE["data"], "teacher": {"model": "m", "optimisation": RECIPE["optimisation"]},
    "cut": {key: PRUNING[key] for key in ("target", "gates", "recovery")}, "card": {"title": "A reader"},
}  # fmt: skip
OVERRIDES = (
    "seed=1",
    "data.train=d.json",
    "x=1",
    "seed=[",
    "",
    "=",
    "model=m",
    "optimisation.epochs=2",
    "data.task=answerable",
    "data.task=x",
)


@st.composite
def _recipe(draw: Draw, base: dict[str, Any]) -> bytes:
    return toml(draw(changed(base, most=2))).encode("utf-8", "surrogatepass")


@st.composite
def earlier_run(draw: Draw, verb: str, base: dict[str, Any]) -> dict[str, bytes]:
    """A run of the same recipe that has ended, with changed metrics or half-changed leftovers."""
    recipe = toml(base).encode()
    files = {"r.toml": recipe, "out/run/recipe.toml": recipe, "out/run/log.jsonl": draw(json_lines(*LOG))}
    if verb != "build":
        kept = draw(json_file(METRICS if verb == "train" else PRUNED))
        return {**files, "out/run/metrics.json": kept, "out/run/tuned.json": draw(json_file(METRICS))}
    stage = {"parameters": 10, "quality": {"best_f1": 50.0, "answered_f1": 60.0}}
    seconds = {"teacher": 1.0, "cut": 1.0, "quantise": 1.0}
    built = {
        "recipe": base, "stages": {"teacher": stage, "cut": stage}, "quality": {"f1": 50.0, "answered_f1": 50.0},
        "parameters": 10, "seconds": seconds, "exported": {"int8_bytes": 10},
    }  # fmt: skip
    files |= {"out/run/teacher/recipe.toml": b"", "out/run/seconds.json": draw(json_file(seconds))}
    return files | ({"out/run/build.json": draw(json_file(built))} if draw(st.booleans()) else {})


@st.composite
def recipe_run(draw: Draw, verb: str, base: dict[str, Any]) -> Case:
    """A run of a recipe, now and then in a folder that holds an earlier one."""
    files = {**draw(data_files()), **draw(model_files("whole", "hf", "sharded", "bin")), "r.toml": draw(_recipe(base))}
    if draw(st.integers(0, 4)) == 4:
        files |= draw(earlier_run(verb, base))
    more = [*draw(st.lists(st.sampled_from(OVERRIDES), max_size=1)), *draw(options(**DEVICE))]
    return Case(files, (_command(draw, verb), _argument(draw, "r.toml"), "--out", _out(draw, "run"), *more))


@st.composite
def prune(draw: Draw) -> Case:
    if draw(st.booleans()):
        return draw(recipe_run("prune", PRUNING))
    files = {**draw(data_files()), **draw(model_files(*WHOLE))}
    usual = ["--keep", "0.9", "--data", "d.json"] if draw(st.integers(0, 3)) < 3 else []
    more = draw(
        options(
            keep=("0.8", *NUMBERS),
            by=("parameters", "flops", "x"),
            data=("d.json",),
            evaluate=("d.json", "x"),
            search=("0", "-1", "x"),
            **DEVICE,
        )
    )
    sizes = {**RECIPE["data"], "train": "d.json"}
    fixed = [f"data.{key}={value}" for key, value in sizes.items()]
    fixed += ["gates.steps=1", "recovery.batch_size=2", "target.multiple=1", "target.embeddings=false"]
    return Case(
        files, (_command(draw, "prune"), _argument(draw, "m"), *fixed, "--out", _out(draw, "run"), *usual, *more)
    )


@st.composite
def ensemble(draw: Draw) -> Case:
    files = {
        **draw(model_files("whole", "hf", "delta", "ensemble", "exported")),
        **_below("n", model_folders()["whole"]),
    }
    more = draw(options(how=("max", "mean", "sum", "x"), json=None))
    return Case(
        files, (_command(draw, "ensemble"), _argument(draw, "m"), _argument(draw, "n"), "--out", _out(draw, "e"), *more)
    )


@st.composite
def analyse(draw: Draw) -> Case:
    """Two runs with their answers, metrics and recipe."""
    files = {
        **draw(data_files()), "r/answers.jsonl.gz": draw(json_lines(*ANSWERS, zipped=True)),
        "s/answers.jsonl": b"".join(json.dumps(line).encode() + b"\n" for line in ANSWERS),
        "r/metrics.json": draw(json_file(METRICS, STAGE)), "r/recipe.toml": draw(_recipe(RECIPE)),
    }  # fmt: skip
    more = draw(
        options(data=("d.json", "x"), threshold=("best", *NUMBERS), plots=("out/plots",), curves=None, json=None)
    )
    return Case(files, (_command(draw, "analyse"), _argument(draw, "r"), *draw(st.sampled_from([(), ("s",)])), *more))


@st.composite
def compare(draw: Draw) -> Case:
    """Two runs, or a sweep of them, with answers, metrics and recipes; plots take too long for more than a few."""
    recipe, answers = toml(RECIPE).encode(), b"".join(json.dumps(line).encode() + b"\n" for line in ANSWERS)
    listed = [{"folder": name, "method": "x", "state": "finished", "error": ""} for name in ("r", "s", "../r", "gone")]
    files = {
        **draw(data_files()), "w/sweep.json": draw(json_file({"format": 1, "runs": listed})),
        "r/metrics.json": draw(json_file(METRICS, PRUNED)), "r/recipe.toml": draw(_recipe(RECIPE)),
        "r/answers.jsonl.gz": draw(json_lines(*ANSWERS, zipped=True)), "s/metrics.json": json.dumps(METRICS).encode(),
        "s/recipe.toml": recipe, "s/answers.jsonl": answers, "r/keep-0.5/answers.jsonl": answers,
    }  # fmt: skip
    files |= {f"w/{name}": data for name, data in files.items() if name.startswith(("r/", "s/"))}
    given = draw(st.sampled_from([("r",), ("r", "s"), ("w",), ("w", "r")]))
    more = draw(options(data=("d.json", "x"), by=("f1", "best_f1", "x"), csv=("out/t.csv", "."), json=None))
    if draw(st.integers(0, 9)) == 9:
        more += ["--out", _out(draw, "p.html")]
    return Case(files, (_command(draw, "compare"), *given, *more))


@st.composite
def sweep(draw: Draw) -> Case:
    """A grid, only planned (a run of each would take seconds), now and then beside an earlier sweep."""
    grid = {
        "recipe": "r.toml", "seeds": [0, 1], "override": {"model": "m"},
        "runs": {"a": {"optimisation": {"epochs": 2.0}}, "b": {"tuning": {"kind": "freeze", "layers": 0}}},
        "grid": {"optimisation": {"learning_rate": [1e-3, 1e-2]}},
    }  # fmt: skip
    files = {
        **draw(data_files()), **draw(model_files("whole", "hf", "delta", "sharded")),
        "r.toml": draw(_recipe(RECIPE)), "g.toml": draw(_recipe(grid)),
    }  # fmt: skip
    if draw(st.integers(0, 4)) == 4:
        run = {"folder": "a-seed0", "method": "a", "seed": 0, "recipe": RECIPE, "state": "failed", "error": "x"}
        files["out/w/sweep.json"] = draw(json_file({"format": 1, "runs": [run]}))
    more = [*draw(st.lists(st.sampled_from((*OVERRIDES, "seeds=[3]", "seeds=x")), max_size=1))]
    more += draw(options(jobs=NUMBERS, **DEVICE))
    arguments = (_command(draw, "sweep"), _argument(draw, "g.toml"), "--dry-run", "--out", _out(draw, "w"), *more)
    return Case(files, arguments)


@st.composite
def reproduce(draw: Draw) -> Case:
    """Stored runs of the papers, changed, or a plan; nothing is trained. Pages take too long for more than a few."""
    recipe = {
        **RECIPE,
        "seed": 0,
        "frozen": {"at": [0.5, 1.0], "epochs": 1.0, "heads": {"lp": "pool(learned) > linear"}},
    }
    answers = b"".join(json.dumps(line).encode() + b"\n" for line in ANSWERS)
    listed = [{"folder": name, "method": name, "state": "finished", "error": ""} for name in REPRODUCED]
    one = draw(st.sampled_from(["sweep.json", *REPRODUCED]))  # what is changed
    sweep_of = {"format": 1, "runs": listed}
    files = {**draw(data_files()), "w/sweep.json": json.dumps(sweep_of).encode()}
    if one == "sweep.json":
        files["w/sweep.json"] = draw(json_file(sweep_of, most=1))
    for name, metrics in REPRODUCED.items():
        files[f"w/{name}/metrics.json"] = (
            draw(json_file(metrics, most=2)) if name == one else json.dumps(metrics).encode()
        )
        files[f"w/{name}/recipe.toml"] = (
            draw(_recipe(recipe)) if draw(st.integers(0, 3)) == 3 else toml(recipe).encode()
        )
        files[f"w/{name}/log.jsonl"] = draw(json_lines(*LOG))
        stored = draw(st.booleans())
        files[f"w/{name}/scores.json.gz" if stored else f"w/{name}/answers.jsonl"] = (
            draw(json_file(STORED_SCORES, zipped=True)) if stored else answers
        )
    if draw(st.integers(0, 9)) == 9:
        arguments = [
            "--runs",
            "w",
            *draw(st.sampled_from((["--claims", _out(draw, "c.md")], ["--report", "out/p.html"]))),
        ]
        return Case(files, (_command(draw, "reproduce"), *arguments))
    items = (
        "hulburd/table1",
        "hulburd/figure5",
        "bertvision/table2",
        "bertvision/figure4",
        "silva/figure7",
        "schubert/figure5",
    )
    item = _argument(draw, draw(st.sampled_from(items)))
    more = draw(options(rows=("L0", "x"), tasks=("RTE", "x"), evaluate=("d.json", "x"), json=None, list=None))
    if draw(st.integers(0, 2)) == 2:
        plan = draw(options(epochs=NUMBERS, fraction=NUMBERS, seeds=("2", "x", "-1"), text=("t.txt",), glue=("w", "x")))
        words = draw(st.lists(st.sampled_from(OVERRIDES), max_size=1))
        return Case(
            files, (_command(draw, "reproduce"), item, *words, "-m", "m", "--dry-run", "--out", "out/w", *plan, *more)
        )
    return Case(files, (_command(draw, "reproduce"), item, "--show", f"--runs={_argument(draw, 'w')}", *more))


SHAPE = {"hidden": 8, "layers": [{"heads": 2, "key": 4, "value": 4, "ffn": 8 + i} for i in range(6)]}
# Runs by the names that the papers' tables have, and scores of the four questions of `SQUAD` as stored runs have them.
REPRODUCED: dict[str, Any] = {
    **{name: {**METRICS, "quality": {"f1": 200 / 3}} for name in ("L0", "L1", "dot-5-epochs", "heads")},  # of `ANSWERS`
    "all-66M": {**PRUNED, "unpruned": {"shape": SHAPE}, "targets": {"keep-0.5": {"parameters": 9, "shape": SHAPE}}},
}  # fmt: skip
STORED_SCORES = {
    "format": 1, "groups": [0, 1, 2], "what": "questions", "scores": {"f1": [1.0, 0.0, 0.5], "exact": [1.0, 0.0, 0.0]},
    "curve": [[0.5, 1.0], [0.0, 0.5]], "shares": {"called_no_answer": None, "second_right": 50.0},
}  # fmt: skip
AMOUNTS = ("20ms", "1h", "30MB", "5kB", "9GB", "1.5 s", "30", "0s", "-1ms", "MB", "1e9h", *NUMBERS)


def _passages() -> bytes:
    """The questions of `SQUAD` three times, each time about another passage, so that some can be held out."""
    content = squad()
    (passage,) = content["data"][0]["paragraphs"]
    made = [
        {**passage, "context": CONTEXT + end, "qas": [{**qa, "id": qa["id"] + end} for qa in passage["qas"]]}
        for end in ("", " It fell.", " It stood.")
    ]
    return json.dumps({**content, "data": [{"title": "Mill", "paragraphs": made}]}).encode()


@cache
def _stored_search() -> dict[str, bytes]:
    """A search that has ended: of these questions and the model that `advise` draws most often, in OUT/run."""
    with TemporaryDirectory() as folder, chdir(folder):
        for name, data in {"d.json": _passages(), **_below("m", model_folders()["whole"])}.items():
            Path(name).parent.mkdir(exist_ok=True)
            Path(name).write_bytes(data)
        run_search(Ask("d.json", "m", device="cpu"), f"{OUT}/run")
        found = sorted(Path(OUT).rglob("*.json"))
        return {str(path): path.read_bytes() for path in found if path.name not in ("advise.json", "log.jsonl")}


@st.composite
def advise(draw: Draw) -> Case:
    """Questions and limits; now and then a search of the same that has ended, with one file of it changed."""
    files = {**draw(model_files("whole", "hf", "sharded", "bin")), "d.json": _passages()}
    if draw(st.integers(0, 2)) == 2:
        files |= draw(data_files())
    if draw(st.integers(0, 3)) == 3:
        stored = _stored_search()
        changed_one = draw(st.sampled_from(sorted(stored)))
        files = {"d.json": _passages(), **_below("m", model_folders()["whole"]), **stored}
        files[changed_one] = draw(json_file(json.loads(stored[changed_one]), most=2))
        given = ["--device", "cpu", *draw(st.sampled_from(([], ["--json"])))]
        return Case(files, ("advise", "--data", "d.json", "-m", "m", "--out", f"{OUT}/run", *given))
    more = draw(
        options(max_latency=AMOUNTS, max_size=AMOUNTS, max_train=AMOUNTS, budget=("0.01", "1", *NUMBERS), **DEVICE)
    )
    data = ["--data", _argument(draw, "d.json")] if draw(st.integers(0, 11)) < 11 else []
    arguments = (_command(draw, "advise"), *data, "-m", _argument(draw, "m"), "--out", _out(draw, "run"), *more)
    return Case(files, arguments)


HELLO = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "x", "version": "1"}}
MESSAGES = (
    {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": HELLO},
    {"jsonrpc": "2.0", "method": "notifications/initialized"},
    *(
        {"jsonrpc": "2.0", "id": 2 + number, "method": "tools/call", "params": {"name": name, "arguments": arguments}}
        for number, (name, arguments) in enumerate(
            (
                ("ask", {"question": "Who built the mill?", "top": 2, "form": "all", "min_score": 0.5}),
                ("find_passages", {"query": "mill", "count": 3}),
                ("verify_quote", {"quote": CONTEXT[:40]}),
            )
        )
    ),
    {"jsonrpc": "2.0", "id": 5, "method": "resources/list", "params": {"cursor": "quoth://documents/0.txt"}},
    {"jsonrpc": "2.0", "id": 6, "method": "resources/read", "params": {"uri": "quoth://documents/0.txt?start=1"}},
    {"jsonrpc": "2.0", "id": 7, "method": "tools/list"},
)


@st.composite
def mcp(draw: Draw) -> Case:
    """A folder of texts, and messages at standard input. Over HTTP it does not end."""
    texts = draw(st.lists(st.sampled_from([CONTEXT, "", *TEXTS]), min_size=1, max_size=3))
    files = {f"f/{i}.txt": text.encode("utf-8", "surrogatepass") for i, text in enumerate(texts)}
    files |= draw(model_files("exported")) | {f"{OUT}/i": damage(draw, _stored_index())}
    more = draw(
        options(
            model=("m", *ODD),
            index=(f"{OUT}/i", f"{OUT}/new", "f", ""),
            host=("0.0.0.0", "x", ""),
            port=NUMBERS,
            token_file=("f/0.txt", ""),
            no_auth=None,
            **DEVICE,
        )
    )
    arguments = (_command(draw, "mcp"), _argument(draw, "f"), "-m", "m", *more)
    return Case(files, arguments, draw(json_lines(*MESSAGES)))


@st.composite
def serve(draw: Draw) -> Case:
    """A folder of texts and a model. If nothing is wrong with them, the server runs until it is interrupted."""
    files = {"f/a.txt": draw(st.sampled_from([CONTEXT, "", *TEXTS])).encode("utf-8", "surrogatepass")}
    files |= draw(model_files("exported")) | {f"{OUT}/i": damage(draw, _stored_index()), "t": b"x" * 20}
    more = draw(
        options(
            index=(f"{OUT}/i", f"{OUT}/new", "f", ""),
            host=("127.0.0.1", "::1", "0.0.0.0", "300.1.1.1", ""),
            token_file=("t", "f/a.txt", "m", ""),
            no_auth=None,
            refresh=NUMBERS,
            queue=NUMBERS,
            timeout=NUMBERS,
            max_body=NUMBERS,
            batch_tokens=NUMBERS,
            device=("cpu", "cuda", "x", ""),
        )
    )
    port = ("--port", draw(st.sampled_from(("0", "0", "0", *NUMBERS))))
    return Case(files, (_command(draw, "serve"), _argument(draw, "f"), "-m", _argument(draw, "m"), *port, *more))


@st.composite
def inspect(draw: Draw) -> Case:
    shape = {"family": "bert", **json.loads(model_folders()["whole"]["quoth.json"])["shape"]}
    files = {**draw(model_files(*WHOLE)), "shape.json": draw(json_file(shape))}
    more = draw(options(length=NUMBERS, plot=("out/p.svg", "."), json=None))
    return Case(files, (_command(draw, "inspect"), _argument(draw, draw(st.sampled_from(["m", "shape.json"]))), *more))


@st.composite
def export(draw: Draw) -> Case:
    files = {**draw(data_files()), **draw(model_files("whole", "hf", "delta", "ensemble", "exported", "sharded"))}
    more = draw(options(data=("d.json", "x"), json=None))
    return Case(files, (_command(draw, "export"), _argument(draw, "m"), "--to", _out(draw, "o"), *more))


def _command(draw: Draw, verb: str) -> str:
    return verb if draw(st.integers(0, 60)) < 60 else draw(st.sampled_from((f"{verb}s", "", "--version", "--help")))


def _out(draw: Draw, name: str) -> str:
    """A place in `OUT`, rarely one that cannot be written: below a file, or one that holds what is not ours."""
    return (
        f"{OUT}/{name}" if draw(st.integers(0, 9)) < 9 else draw(st.sampled_from(("d.json/x", "m", ".", "/dev/null")))
    )


CASES: dict[str, Any] = {
    "ask": ask(),
    "serve": serve(),
    "mcp": mcp(),
    "index": index(),
    "answer": answer(),
    "score": score(),
    "evaluate": evaluate(),
    "calibrate": calibrate(),
    "negatives": negatives(),
    "train": recipe_run("train", RECIPE),
    "prune": prune(),
    "ensemble": ensemble(),
    "analyse": analyse(),
    "compare": compare(),
    "sweep": sweep(),
    "reproduce": reproduce(),
    "advise": advise(),
    "inspect": inspect(),
    "export": export(),
    "build": recipe_run("build", BUILDING),
}
