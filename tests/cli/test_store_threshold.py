"""`quoth evaluate --store-threshold`: fitted on the data, kept in the folder, used from then on."""

import json
import shutil

import pytest

from quoth import Reader
from quoth.data import read
from quoth.encoder.shape import LayerShape
from quoth.score.quality import span_quality
from support.exporting import make_folder, shape, with_tokenizer
from train.material import make_questions


@pytest.fixture(scope="module")
def place(tmp_path_factory, minilm):
    place = tmp_path_factory.mktemp("store")
    sizes = {"hidden": 64, "embedding": 64, "vocab": 30522, "positions": 96}
    make_folder(place / "plain", shape((LayerShape(4, 16, 16, 256),) * 2, **sizes), {"kind": "span"})
    with_tokenizer(place / "plain", minilm)
    made = json.loads(make_questions(place / "asked.json", 1, passages=4).read_text())
    paragraphs = made["data"][0]["paragraphs"]
    made["data"] = [{"title": f"t{i}", "paragraphs": paragraphs[i : i + 1]} for i in range(4)]
    (place / "asked.json").write_text(json.dumps(made))
    return place


@pytest.fixture
def model(place, tmp_path):
    return shutil.copytree(place / "plain", tmp_path / "m")


def evaluated(cli, *arguments):
    result = cli("evaluate", *arguments, "--json")
    assert result.returncode == 0, result.stderr
    return json.loads(result.stdout)


def test_stored_then_used(cli, place, model):
    asked = place / "asked.json"
    before = evaluated(cli, asked, "--model", model)
    assert (before["threshold"], before["stored"]) == (0.0, None)
    fitted = evaluated(cli, asked, "--model", model, "--store-threshold")
    kept = json.loads((model / "quoth.json").read_text())["abstention"]
    assert fitted["stored"] == kept
    assert kept["fitted"]["data"] == "asked.json"
    assert kept["fitted"]["questions"] == fitted["total"] == 40
    assert fitted["f1"] == pytest.approx(fitted["best_f1"]) == pytest.approx(kept["fitted"]["f1"])
    after = evaluated(cli, asked, "--model", model)
    for facts in (before, fitted, after):
        del facts["cost"], facts["stored"]
    assert after == fitted
    assert after["threshold"] == kept["threshold"]
    assert evaluated(cli, asked, "--model", model, "--threshold", 0)["f1"] == before["f1"]

    dataset, reader = read(asked), Reader.load(model, device="cpu")
    assert reader.abstention.to_json() == kept
    decoded = reader.decode(dataset.questions)
    assert span_quality(dataset, decoded, kept["threshold"])[1]["f1"] == after["f1"]
    other = evaluated(cli, asked, "--model", model, "--rule", "probability")
    assert other["threshold"] == 0.0, "the threshold is one of Devlin's scores"


def test_the_exported_folder_has_it_and_takes_another(cli, place, model, tmp_path):
    asked = place / "asked.json"
    evaluated(cli, asked, "--model", model, "--store-threshold")
    found = json.loads(cli("export", model, "--to", tmp_path / "onnx", "--data", asked, "--json").stdout)
    after = evaluated(cli, asked, "--model", tmp_path / "onnx")
    assert after["threshold"] == Reader.load(model, device="cpu").abstention.threshold
    assert found["f1"] == pytest.approx(after["f1"])
    again = evaluated(cli, asked, "--model", tmp_path / "onnx", "--store-threshold")
    assert (
        Reader.load(tmp_path / "onnx").abstention.threshold
        == again["threshold"]
        == pytest.approx(after["threshold"], abs=1e-3)
    )


def test_cross_fitted_is_told(cli, place, model):
    crossed = evaluated(cli, place / "asked.json", "--model", model)["cross_fitted"]
    assert [half["articles"] for half in crossed["halves"]] == [2, 2]
    assert [half["questions"] for half in crossed["halves"]] == [20, 20]
    assert crossed["f1"] == pytest.approx(sum(half["f1"] for half in crossed["halves"]) / 2)
    assert crossed["total"] == 40
    shown = cli("evaluate", place / "asked.json", "--model", model, "--store-threshold").stdout
    assert f"each half of the articles at the other's threshold: F1 {crossed['f1']:.2f}" in shown
    assert "kept in the model folder" in shown


@pytest.mark.parametrize(
    ("arguments", "culprit"),
    [
        (("--threshold", "1"), "leave out --threshold and --rule"),
        (("--rule", "probability"), "leave out --threshold and --rule"),
    ],
)
def test_what_cannot_be_stored_is_one_line(cli, place, model, arguments, culprit):
    before = (model / "quoth.json").read_bytes()
    result = cli("evaluate", place / "asked.json", "--model", model, "--store-threshold", *arguments)
    assert (result.returncode, result.stdout) == (2, "")
    assert culprit in result.stderr.splitlines()[-1]
    assert (model / "quoth.json").read_bytes() == before


def test_where_nothing_can_be_stored(cli, place, model, minilm, tmp_path):
    asked = place / "asked.json"
    assert f"{minilm}: a threshold is kept in" in cli("evaluate", asked, "-m", minilm, "--store-threshold").stderr
    assert "name the folder with --model" in cli("evaluate", asked, "--store-threshold").stderr
    made = json.loads(asked.read_text())
    for article in made["data"]:
        for paragraph in article["paragraphs"]:
            paragraph["qas"] = [qa for qa in paragraph["qas"] if qa["answers"]]
    (tmp_path / "one.json").write_text(json.dumps({**made, "version": "1.1"}))
    result = cli("evaluate", tmp_path / "one.json", "--model", model, "--store-threshold")
    assert result.returncode == 2
    assert "every question has an answer" in result.stderr
    assert "abstention" not in json.loads((model / "quoth.json").read_text())
