"""`quoth reproduce` of one table of each paper, from training to verdicts, on a tiny model and tiny data."""

import json
import signal
import time

import pytest
import torch

from quoth.encoder.encoder import Encoder
from quoth.encoder.shape import LayerShape, Shape
from quoth.heads import build_head
from quoth.heads.mlm import mlm_table
from quoth.model.model import Model
from quoth.model.saving import save
from train.conftest import material as material
from train.material import FACTS, copy_tokenizer, quoth, start

pytestmark = pytest.mark.slow
SHORT = ("data.max_length=64", "data.step=24", "data.max_query_length=24", "optimisation.batch_size=6")


def arguments(material, item, out, *more):
    data = ("--data", material.train, "--evaluate", material.dev, "--device", "cpu")
    return ("reproduce", item, *SHORT, "-m", material.model, *data, "--out", out, *more)


def reproduce(material, item, out, *more):
    said = quoth(*arguments(material, item, out, "--json", *more))
    assert said.returncode == 0, said.stderr
    return json.loads(said.stdout), said.stderr


def scores(folder):
    return {path.parent.name: json.loads(path.read_text())["quality"] for path in folder.glob("*/metrics.json")}


def test_hulburd(material, tmp_path):
    """Interrupted, it goes on; tables share their runs; a third seed is one more run; nothing is trained twice."""
    out, rows = tmp_path / "out", ("--rows", "L1", "--rows", "L0")
    process = start(*arguments(material, "hulburd/table1", out, "--epochs", "30", *rows))
    deadline = time.monotonic() + 120
    while not (out / "L1-seed0/log.jsonl").exists() and time.monotonic() < deadline:
        time.sleep(0.01)
    process.send_signal(signal.SIGTERM)
    said = process.communicate(timeout=120)[1]
    assert process.returncode == 128 + signal.SIGTERM, said
    assert said.splitlines()[-1] == "quoth: stopped; the same command goes on from there"
    found, _ = reproduce(material, "hulburd/table1", out, "--epochs", "30", *rows)
    assert [row["seeds"] for row in found["rows"]] == [[0], [0]]
    assert found["rows"][1]["found"]["trainable_parameters"]["mean"] == 2 * 32 * 5 + 2 * 33  # LayerNorms and the head
    before = {path: path.stat().st_mtime_ns for path in out.glob("*/metrics.json")}
    more, told = reproduce(material, "hulburd/figure5", out, "--epochs", "30", *rows, "--seeds", "2")
    assert [row["seeds"] for row in more["rows"]] == [[0, 1], [0, 1]]
    assert {path: path.stat().st_mtime_ns for path in before} == before
    assert "L1-seed0: finished" not in told
    shown = quoth("reproduce", "hulburd/table1", "--show", "--out", out, "--json")
    claims = {claim["says"]: claim for claim in json.loads(shown.stdout)["claims"]}
    assert claims["one trained layer is better than none"]["seeds"] == 2
    assert claims["one trained layer is better than none"]["verdict"] != "not testable here"
    for row in more["rows"]:
        f1 = [scores(out)[f"{row['name']}-seed{seed}"]["f1"] for seed in (0, 1)]
        assert row["found"]["f1"]["seeds"] == pytest.approx(f1)


def test_bertvision(material, tmp_path):
    """Heads on frozen states after 2 epochs, and the ensemble of BERT and a head, scored from their models, once."""
    rows = ("--rows", "BERT 2 e", "--rows", "best model of 1 e", "--rows", "ensemble")
    found, told = reproduce(
        material, "bertvision/table5", tmp_path / "out", "--epochs", "1", "--no-models", "frozen.batch_size=6", *rows
    )
    assert "quoth: ensemble of two-epochs-seed0" in told
    f1 = {row["name"]: row["found"]["f1"]["mean"] for row in found["rows"]}
    run = tmp_path / "out/two-epochs-seed0"
    kept = json.loads((run / "ensembles/epoch-1/encoder+adapter-386/metrics.json").read_text())["quality"]["f1"]
    head = json.loads((run / "frozen/epoch-1/metrics.json").read_text())["heads"]["adapter-386"]["quality"]["f1"]
    own = json.loads((run / "metrics.json").read_text())["quality"]["f1"]
    assert f1 == {"BERT 2 e": own, "best model of 1 e": head, "ensemble": kept}
    assert not list(run.rglob("*.safetensors")), "models are removed after the ensemble"
    again, told = reproduce(
        material, "bertvision/table5", tmp_path / "out", "--epochs", "1", "--no-models", "frozen.batch_size=6", *rows
    )
    assert "ensemble of" not in told
    assert again == found


def test_silva(material, tmp_path):
    """Curves of the loss and of F1; a run that fails is told, and the table shows the others."""
    rows = ("--rows", "dot", "--rows", "ALBERT", "--rows", "dot at 2 epochs")
    found, _ = reproduce(material, "silva/figure7", tmp_path / "out", "--epochs", "1", *rows)
    (dot,) = (row for row in found["rows"] if row["name"] == "dot")
    ((*_, (last, f1)),) = dot["curves"]["f1_curve"]
    assert (last, f1) == (1.0, dot["found"]["f1"]["mean"])
    middle = next(row for row in found["rows"] if row["name"] == "dot at 2 epochs")["found"]["f1"]["mean"]
    assert middle in [value for epoch, value in dot["curves"]["f1_curve"][0] if abs(epoch - 0.4) < 0.06]
    loss, _ = reproduce(material, "silva/figure3", tmp_path / "out", "--epochs", "1", "--rows", "dot")
    assert loss["drawing"]["lines"][0]["mean"] == [value for _, value in loss["rows"][0]["curves"]["loss_curve"][0]]
    rows = ("--rows", "encoder", "--rows", "dot")
    broken = quoth(*arguments(material, "silva/table3", tmp_path / "new", "--epochs", "1", *rows, "head=x"))
    assert broken.returncode == 1
    assert "encoder-5-epochs-seed0: failed: head: unknown step 'x'" in broken.stderr
    assert broken.stderr.splitlines()[-1] == "quoth: 2 runs failed; the same command tries them again"
    assert "encoder: head: unknown step 'x'; did you mean" in broken.stdout, "the table says why there are no numbers"


def test_schubert(material, minilm, tmp_path):
    """Pruned, then tuned from the pruned model. Stored runs are not trained again."""
    shape = Shape(30522, 64, 2, 32, 32, (LayerShape(16, 64, 64, 2048),) * 4)
    torch.manual_seed(0)
    encoder = Encoder(shape)
    save(Model(encoder, build_head(mlm_table(shape, encoder.style), 32, 4), pooler=True), tmp_path / "model")
    copy_tokenizer(minilm, tmp_path / "model")
    paragraphs = [" ".join(FACTS[(i + j) % len(FACTS)][0] for j in range(3)) for i in range(120)]
    (tmp_path / "text.txt").write_text("\n\n".join(paragraphs))
    short = ("gates.steps=2", "gates.batch_size=8", "recovery.batch_size=8")
    short += ("--text", tmp_path / "text.txt", "-m", tmp_path / "model", "--epochs", "0.2", "--tasks", "squad2")
    found, _ = reproduce(material, "schubert/table6", tmp_path / "out", *short, "--rows", "optBERT-f")
    (row,) = found["rows"]
    assert row["found"]["average"]["mean"] == row["found"]["squad2_f1"]["mean"]
    pruned = json.loads((tmp_path / "out/f-88M-seed0/metrics.json").read_text())
    recipe = (tmp_path / "out/f-88M-squad2-seed0/recipe.toml").read_text()
    assert f"{tmp_path}/out/f-88M-seed0/keep-0.8115/model" in recipe
    assert pruned["targets"]["keep-0.8115"]["shape"]["layers"][0]["ffn"] < 2048
    said = quoth(
        *arguments(material, "schubert/table6", tmp_path / "more", *short, "--rows", "optBERT-f", "--dry-run"),
        "--runs", tmp_path / "out", "--json",
    )  # fmt: skip
    assert json.loads(said.stdout)["runs"] == []
