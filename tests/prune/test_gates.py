"""Gates at one, gates by hand, their gradients, and what they refuse."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from prune.shapes import HEADS, make_batch, make_model, outputs, random_alpha, random_keep, shapes
from quoth import QuothError
from quoth.encoder.encoder import Encoder
from quoth.encoder.shape import LayerShape, Shape
from quoth.heads.cacnn import ContextCNN
from quoth.heads.chain import Chain
from quoth.model import apply
from quoth.model.model import Model
from quoth.prune.dimensions import axes
from quoth.prune.gates import Gates, gated, gated_weights
from quoth.prune.shrink import raise_to_floor
from quoth.tune.adapters import Adapters
from quoth.tune.lora import LoRA

SHAPE = Shape(23, 16, 2, 8, 8, (LayerShape(3, 4, 2, 5), LayerShape(2, 1, 3, 6)))
KINDS = ("all", "h", "f", "a", "k", "v", "hf")


def weights(model):
    return {name: value.clone() for name, value in model.state_dict().items()}


@given(shapes(), st.sampled_from(KINDS), st.sampled_from(list(HEADS)), st.booleans())
@settings(max_examples=40, deadline=None)
def test_gates_at_one_change_no_bit(shape, kinds, head, training):
    model = make_model(shape, head, dtype=torch.float32).train(training)
    packed = make_batch(shape)
    torch.manual_seed(0)
    plain = outputs(model, packed)
    torch.manual_seed(0)
    with gated(model, Gates(shape, kinds)):
        assert torch.equal(outputs(model, packed), plain)


def test_only_the_kinds_asked_for_exist():
    assert sorted(Gates(SHAPE, "h").alpha) == ["h"]
    assert sorted(Gates(SHAPE, ("k", "v")).alpha) == ["k0", "k1", "v0", "v1"]
    every = {name: len(value) for name, value in Gates(SHAPE).alpha.items()}
    assert every == {"h": 8, "a0": 3, "k0": 4, "v0": 2, "f0": 5, "a1": 2, "k1": 1, "v1": 3, "f1": 6}


def test_tied_layers_share_their_gates():
    tied = Shape(23, 16, 2, 5, 8, (LayerShape(3, 4, 2, 5),) * 3, tied=True)
    assert sorted(Gates(tied).alpha) == ["a0", "f0", "h", "k0", "v0"]


def factors(alpha, number, shape):
    """Table 5, entry by entry: for each matrix of a layer, the factor at (row, column)."""
    a, k, v, f, h = (alpha[name] for name in (f"a{number}", f"k{number}", f"v{number}", f"f{number}", "h"))

    def of_heads(own):
        return lambda r: a[r // len(own)] * own[r % len(own)]

    keys, values = of_heads(k), of_heads(v)
    assert (len(a), len(k), len(v), len(f)) == (shape.heads, shape.key, shape.value, shape.ffn)
    return {
        "attention.query.weight": lambda r, c: keys(r) * h[c],
        "attention.key.weight": lambda r, c: keys(r) * h[c],
        "attention.value.weight": lambda r, c: values(r) * h[c],
        "attention.output.weight": lambda r, c: h[r] * values(c),
        "up.weight": lambda r, c: f[r] * h[c],
        "down.weight": lambda r, c: h[r] * f[c],
    }


def test_table_5_element_by_element():
    model, gates = make_model(SHAPE), Gates(SHAPE).double()
    random_alpha(gates, 0)
    alpha = {name: value.tolist() for name, value in gates.alpha.items()}
    found = gated_weights(model, gates)
    matrices = {f"encoder.layers.{n}.{name}" for n in (0, 1) for name in factors(alpha, n, SHAPE.layers[n])}
    assert set(found) == matrices  # no bias, embedding, LayerNorm, pooler or head
    for number, shape in enumerate(SHAPE.layers):
        expected, layer = factors(alpha, number, shape), model.encoder.layers[number]
        for name, factor in expected.items():
            old, new = layer.get_parameter(name), found[f"encoder.layers.{number}.{name}"]
            for place in torch.ones(old.shape).nonzero().tolist():
                assert new[tuple(place)].item() == pytest.approx(old[tuple(place)].item() * factor(*place), rel=1e-12)


@pytest.mark.parametrize("projection", [False, True])
def test_every_parameter_with_a_gated_size_follows_a_cut(projection):
    """Of a model whose sizes are all different, the parameters with an axis to cut are those that have a gated size."""
    shape = Shape(101, 103, 3, 11 if projection else 13, 13, (LayerShape(7, 5, 17, 29),))
    model = make_model(shape, "dense")
    gated_sizes = {13, 7 * 5, 7 * 17, 29}
    expected = {name for name, value in model.named_parameters() if gated_sizes & set(value.shape)}
    assert set(axes(model)) == expected


@pytest.mark.parametrize("tied", [False, True])
@pytest.mark.parametrize("zeros", [False, True])
def test_gradients_by_differences(tied, zeros):
    shape = Shape(11, 8, 2, 4, 5, (LayerShape(2, 3, 2, 3),) * 2, tied)
    model, gates, packed = make_model(shape), Gates(shape).double(), make_batch(shape, (3, 2))
    random_alpha(gates, 1)
    if zeros:
        gates.zero({"h": torch.tensor([True, False, True, True, True])})

    def run(*values):
        with gated(model, dict(zip(gates.alpha, values))):
            return torch.stack(model(packed))

    assert torch.autograd.gradcheck(run, list(gates.alpha.values()))


def test_the_model_is_as_it_was_afterwards_even_after_an_error():
    model, gates, packed = make_model(SHAPE), Gates(SHAPE).double(), make_batch(SHAPE)
    random_alpha(gates, 0)
    gates.zero(random_keep(SHAPE, 0))
    before, names = weights(model), [name for name, _ in model.named_modules()]
    kinds = [type(module) for module in model.modules()]
    plain = outputs(model, packed)

    def fail():
        with gated(model, gates):
            assert not torch.equal(outputs(model, packed), plain)
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    assert [name for name, _ in model.named_modules()] == names
    assert [type(module) for module in model.modules()] == kinds
    assert all(isinstance(value, torch.nn.Parameter) for value in model.parameters())


def test_training_alpha_alone_lowers_a_loss():
    model, gates, packed = make_model(SHAPE).requires_grad_(False), Gates(SHAPE).double(), make_batch(SHAPE)
    optimiser = torch.optim.Adam(gates.parameters(), 1e-2)
    losses = []
    for _ in range(20):
        with gated(model, gates):
            losses.append(torch.stack(model(packed)).square().mean())
        optimiser.zero_grad()
        losses[-1].backward()
        optimiser.step()
    assert losses[-1] < 0.9 * losses[0]
    assert all(value.grad is None for value in model.parameters())


def test_zeros_are_where_keep_says_no():
    gates, keep = Gates(SHAPE, "hf"), random_keep(SHAPE, 3, "hf")
    gates.zero(keep)
    assert all(torch.equal(gates.keep()[name], mask) for name, mask in keep.items())
    assert all(torch.equal(gates.scores()[name], mask.float()) for name, mask in keep.items())


def test_a_floor_keeps_the_sign_and_none_changes_nothing():
    gates = Gates(Shape(23, 16, 2, 8, 8, (LayerShape(3, 4, 2, 4),)), "f")
    values = torch.tensor([-0.01, 0.05, -2.0, 0.0])
    for floor, expected in ((0.0, values), (0.1, torch.tensor([-0.1, 0.1, -2.0, 0.1]))):
        with torch.no_grad():
            gates.alpha["f0"].copy_(values)
        raise_to_floor(gates, floor)
        assert torch.equal(gates.alpha["f0"].data, expected)


class TestRefusals:
    @pytest.mark.parametrize("kinds", ["x", "", "hx", ("heads",)])
    def test_unknown_kinds(self, kinds):
        with pytest.raises(QuothError, match="choose all, or some of h, a, k, v, f"):
            Gates(SHAPE, kinds)

    def test_gates_of_another_shape(self):
        other = Shape(23, 16, 2, 8, 8, SHAPE.layers[:1])
        with pytest.raises(QuothError, match="another shape"), gated(make_model(SHAPE), Gates(other)):
            pass

    @pytest.mark.parametrize(("tuning", "how"), [(Adapters(2), "prune its base"), (LoRA(2), "merge it first")])
    def test_modules_in_between(self, tuning, how):
        model = apply(make_model(SHAPE), tuning)
        with pytest.raises(QuothError, match=how), gated(model, Gates(SHAPE, "f")):
            pass

    @pytest.mark.parametrize("make", [lambda h: Chain(h, 2, "pool(learned) > linear"), ContextCNN])
    def test_heads_that_cannot_follow_h(self, make):
        model = Model(Encoder(SHAPE), make(8))
        with pytest.raises(QuothError, match="leave h out of the kinds"), gated(model, Gates(SHAPE)):
            pass
        with gated(model, Gates(SHAPE, "akvf")):
            model(make_batch(SHAPE))

    def test_checkpointing(self):
        model = make_model(SHAPE)
        model.encoder.checkpointing = True
        with pytest.raises(QuothError, match="checkpointing"), gated(model, Gates(SHAPE)):
            pass

    def test_masks_that_fit_no_gate(self):
        with pytest.raises(QuothError, match="f0 of 3 elements"):
            Gates(SHAPE).zero({"f0": torch.ones(3, dtype=torch.bool)})
