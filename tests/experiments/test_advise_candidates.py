"""The candidates of `quoth advise`: recipes that fit a model, their parameters, and those that it cannot have."""

import tomllib

import pytest
import transformers

from quoth.errors import QuothError
from quoth.experiments.advise_candidates import TABLE, final_epochs, read_candidates
from quoth.train import build_model, make_recipe
from train.conftest import material as material
from train.material import copy_tokenizer, make_model


@pytest.fixture(scope="module")
def deep(minilm, tmp_path_factory):
    """A random BERT of eight layers."""
    return make_model(tmp_path_factory.mktemp("models") / "deep", minilm, num_hidden_layers=8)


@pytest.fixture(scope="module")
def found(deep):
    candidates, left_out = read_candidates(str(deep), "my.json", 3, seed=7)
    assert left_out == {}
    return {one.name: one for one in candidates}


def test_every_run_of_the_table_is_a_candidate_in_its_order(found):
    with TABLE.open("rb") as file:
        assert list(found) == list(tomllib.load(file)["runs"])


def test_parts_of_the_layers_become_numbers(found):
    assert found["last half 3e-4"].recipe.tuning["layers"] == 4
    assert found["last quarter 5e-4"].recipe.tuning["layers"] == 2
    assert found["half depth 1e-4"].recipe.head == "layer(4) > linear"
    assert found["half depth 1e-4"].depth == 4
    assert found["full 1e-4"].depth == 8


def test_recipes_are_of_this_model_these_data_and_epochs(found, deep):
    for one in found.values():
        recipe = one.recipe
        assert (recipe.model, recipe.data.train, recipe.data.evaluate) == (str(deep), ("my.json",), "")
        assert (recipe.optimisation.epochs, recipe.seed) == (3.0, 7)
        assert float(one.name.rpartition(" ")[2]) == recipe.optimisation.learning_rate
        assert make_recipe(tomllib.loads(recipe.to_toml())) == recipe


def test_parameters_are_those_of_the_model(found):
    for one in found.values():
        model = build_model(one.recipe)
        values = list(model.parameters())
        assert one.sizes.trainable == sum(value.numel() for value in values if value.requires_grad)
        assert one.sizes.total == sum(value.numel() for value in values)
        above = model.encoder.layers[one.depth :]
        needed = one.sizes.total - sum(value.numel() for layer in above for value in layer.parameters())
        assert one.parameters == needed


def test_windows_are_no_longer_than_the_model(found, minilm, tmp_path):
    data = found["full 1e-4"].recipe.data
    assert (data.max_length, data.step, data.max_query_length) == (384, 128, 64)
    short = make_model(tmp_path / "short", minilm, max_position_embeddings=96)
    for one in read_candidates(str(short), "my.json", 1, 0)[0]:
        data = one.recipe.data
        assert (data.max_length, data.step, data.max_query_length) == (96, 32, 24)


def test_in_one_layer_half_of_the_depth_is_all_of_it(minilm, tmp_path):
    one = make_model(tmp_path / "one", minilm, num_hidden_layers=1)
    names = [candidate.name for candidate in read_candidates(str(one), "my.json", 1, 0)[0]]
    assert len(names) == len(set(names))
    assert names[0] == "full 5e-5"


def test_what_layers_that_share_their_weights_cannot_have_is_left_out_with_the_reason(minilm, tmp_path):
    small = {"hidden_size": 32, "num_hidden_layers": 4, "num_attention_heads": 2, "intermediate_size": 64}
    transformers.AlbertModel(transformers.AlbertConfig(**small, embedding_size=16, vocab_size=30522)).save_pretrained(
        tmp_path
    )
    copy_tokenizer(minilm, tmp_path)
    candidates, left_out = read_candidates(str(tmp_path), "my.json", 1, 0)
    names = {one.name for one in candidates}
    assert "full 1e-4" in names
    assert "last half 3e-4" in left_out
    assert "share" in left_out["last half 3e-4"]
    assert not names & left_out.keys()
    for one in candidates:
        assert one.parameters == one.sizes.total  # no layer can be left out


def test_a_table_in_which_nothing_can_be_trained(deep, tmp_path):
    table = tmp_path / "t.toml"
    table.write_text('recipe = "hulburd/l12"\n[runs."x 1e-3"]\nhead = "layer(99) > linear"\n')
    with pytest.raises(QuothError, match="cannot be trained by any candidate"):
        read_candidates(str(deep), "my.json", 1, 0, table)


@pytest.mark.parametrize(("windows", "epochs"), [(10, 8), (1500, 8), (3000, 4), (4000, 3), (30_000, 2)])
def test_epochs_make_about_12000_windows_but_two_to_eight(windows, epochs):
    assert final_epochs(windows) == epochs
