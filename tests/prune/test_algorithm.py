"""Algorithm 1 of schuBERT with the paper's loss and table 5's gates, against a loop written from the paper."""

from types import SimpleNamespace

import pytest
import torch
import transformers
from safetensors.torch import load_file

from heads.test_mlm import masked_batch
from prune.by_hand import betas_of, cost_of, gate, loss_of, remove, sizes_of, smallest_removed
from prune.shapes import random_alpha
from quoth.encoder.shape import Shape
from quoth.model.loading import load
from quoth.prune.cost import Parameters, betas
from quoth.prune.gates import Gates, gated
from quoth.prune.recipe import make_prune_recipe
from quoth.tasks.pretraining import Pretraining
from quoth.tasks.seeds import seed_of
from quoth.windows.batches import Batches
from tiny import hugging_face
from train.material import FACTS, copy_tokenizer, prepare, prune

HEADS, LAYERS = [3, 3, 3], 3
GATES = {"steps": 4, "batch_size": 4, "gamma": 2e-3, "learning_rate": 1e-2, "precision": "fp32"}
RECOVERY = {"epochs": 1.0, "batch_size": 4, "learning_rate": 1e-4, "adam_epsilon": 1e-6, "dropout": 0.0}


@pytest.fixture(scope="module")
def bert(tmp_path_factory):
    """Every tensor random and wide, in both of Hugging Face's and our own."""
    theirs, folder = hugging_face("bert", "ForPreTraining"), tmp_path_factory.mktemp("bert")
    theirs.save_pretrained(folder)
    return SimpleNamespace(theirs=theirs, folder=folder)


def test_the_model_by_hand_has_the_loss_of_hugging_face(bert):
    padded, packed = masked_batch((9, 31, 2, 17))
    labels = torch.tensor([0, 1, 1, 0])
    with torch.no_grad():
        expected = bert.theirs(
            input_ids=padded["ids"], token_type_ids=padded["types"], attention_mask=padded["mask"],
            labels=padded["labels"], next_sentence_label=labels,
        )  # fmt: skip
        found = loss_of(load(bert.folder).state_dict(), HEADS, packed, labels)
    assert found.item() == pytest.approx(expected.loss.item(), rel=1e-5)


@pytest.mark.parametrize("ones", [True, False])
@pytest.mark.parametrize(("kind", "relative"), [(torch.float64, 1e-6), (torch.float32, 1e-5)])
def test_the_gradient_of_alpha_is_that_of_the_model_by_hand(bert, ones, kind, relative):
    """Of MLM + NSP under table 5's gates, in every dimension. The loss itself is computed in fp32."""
    model = load(bert.folder).to(kind).eval().requires_grad_(False)
    gates = Gates(model.encoder.shape).to(kind)
    if not ones:
        random_alpha(gates, 3)
    _, packed = masked_batch((9, 31, 2, 17))
    labels = torch.tensor([0, 1, 1, 0])
    with gated(model, gates):
        loss = Pretraining.loss(None, model(packed), packed, labels) / 4
    loss.backward()
    alpha = {name: value.detach().clone().requires_grad_() for name, value in gates.alpha.items()}
    by_hand = loss_of(gate(dict(model.state_dict()), HEADS, alpha), HEADS, packed, labels)
    by_hand.backward()
    assert loss.item() == pytest.approx(by_hand.item(), rel=relative)
    for name, value in alpha.items():
        apart = (gates.alpha[name].grad - value.grad).norm() / value.grad.norm()
        assert apart < relative, name


def test_beta_of_bert_base_as_printed():
    """§5: 1.0, 0.73, 0.093, 0.093, 0.0078 for a, h, k, v, f; and ours is β by hand, here without embeddings."""
    n = {"h": 768} | {f"{kind}{i}": {"a": 12, "k": 64, "v": 64, "f": 3072}[kind] for i in range(12) for kind in "akvf"}
    base = Shape.uniform(layers=12, hidden=768, heads=12)
    ours, by_hand = betas(Parameters(embeddings=False, pooler=True), base), betas_of(n, 12)
    assert ours == pytest.approx(by_hand, rel=1e-12)
    whole = betas(Parameters(pooler=True), base)
    assert [whole[name] for name in ("a0", "h", "k0", "v0", "f0")] == pytest.approx(
        [1.0, 0.73, 0.093, 0.093, 0.0078], abs=2e-3
    )


@pytest.fixture(scope="module")
def material(minilm, tmp_path_factory):
    """A tiny BERT with both heads of pre-training, and paragraphs."""
    folder = tmp_path_factory.mktemp("algorithm")
    config = transformers.BertConfig(
        hidden_size=24, num_hidden_layers=3, num_attention_heads=3, intermediate_size=40, initializer_range=0.2
    )
    torch.manual_seed(0)
    transformers.BertForPreTraining(config).save_pretrained(folder / "model")
    copy_tokenizer(minilm, folder / "model")
    paragraphs = [" ".join(FACTS[(i + j) % len(FACTS)][0] for j in range(3)) for i in range(24)]
    (folder / "text.txt").write_text("\n\n".join(paragraphs))
    return SimpleNamespace(model=folder / "model", text=folder / "text.txt")


def recipe(material):
    """Two rounds to 0.6 of the parameters without embeddings: with those, only h of a tiny model would be cut."""
    return make_prune_recipe(
        {
            "model": str(material.model),
            "data": {"train": str(material.text), "task": "pretrain", "max_length": 48, "held_out": 0.2},
            "target": {"keep": [0.6], "rounds": 2, "embeddings": False},
            "gates": GATES,
            "recovery": RECOVERY,
            "round_epochs": RECOVERY["epochs"],
        }
    )


def train_alpha(w, heads, feed, seed):
    """Equation 2: α alone, by Adam; gates of two zero-mean moments, β₂ = 0.99."""
    n = sizes_of(w, heads)
    alpha = {name: torch.ones(size, requires_grad=True) for name, size in n.items()}
    price = betas_of(n, LAYERS)
    optimiser = torch.optim.Adam(alpha.values(), GATES["learning_rate"], betas=(0.9, 0.99))
    order = Batches(feed.lengths, seed=seed, batch_size=4)
    for step in range(GATES["steps"]):
        packed, labels = feed.batch(order.batch(*divmod(step, order.count())), step)
        loss = loss_of(gate(w, heads, alpha), heads, packed, labels)
        loss = loss + GATES["gamma"] * sum(price[name] * value.abs().sum() for name, value in alpha.items())
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
    return {name: value.detach() for name, value in alpha.items()}


def fine_tune(w, heads, feed, seed):
    """Equation 1: all weights, by AdamW, with the learning rate up for a tenth of the steps and then down to 0."""
    w = {name: value.clone().requires_grad_() for name, value in w.items()}
    matrices, vectors = ([value for value in w.values() if (value.ndim > 1) == wide] for wide in (True, False))
    groups = [{"params": matrices, "weight_decay": 0.01}, {"params": vectors, "weight_decay": 0.0}]
    optimiser = torch.optim.AdamW(groups, eps=RECOVERY["adam_epsilon"])
    order = Batches(feed.lengths, seed=seed, batch_size=4)
    steps = round(RECOVERY["epochs"] * order.count())
    assert steps >= 3
    for step in range(steps):
        warm = 1  # ⌈0.1 · steps⌉
        for group in optimiser.param_groups:
            group["lr"] = RECOVERY["learning_rate"] * (1 if step < warm else 1 - (step - warm) / (steps - warm))
        packed, labels = feed.batch(order.batch(*divmod(step, order.count())), step)
        optimiser.zero_grad()
        loss_of(w, heads, packed, labels).backward()
        torch.nn.utils.clip_grad_norm_(w.values(), 1.0)
        optimiser.step()
    return {name: value.detach() for name, value in w.items()}


def test_two_rounds_step_by_step(material, tmp_path):
    """T = 2: α trained, ranked, zeroed, folded, cut; the smaller network fine-tuned; and again from that."""
    made, shrunk, kept = recipe(material), [], []
    facts = prune(made, tmp_path / "run", device="cpu", tell=lambda _: None)
    model = load(material.model)
    w, heads = {name: value.clone() for name, value in model.state_dict().items()}, [3, 3, 3]
    feed = prepare(made, model).feed(prepare(made, model).examples, torch.device("cpu"), made.seed)
    full = cost_of(sizes_of(w, heads), LAYERS)
    for number in (1, 2):
        alpha = train_alpha(w, heads, feed, seed_of(made.seed, number))
        keep = smallest_removed(alpha, sizes_of(w, heads), LAYERS, full * (1 - 0.4 * number / 2))
        found = load_file(tmp_path / f"run/rounds/{number:02d}/alpha.safetensors")
        for name, value in alpha.items():
            torch.testing.assert_close(found[name], value, atol=1e-5, rtol=1e-5, msg=name)
        w, heads = remove(gate(w, heads, alpha), heads, keep)
        w = fine_tune(w, heads, feed, seed_of(made.seed, number, 1))
        shrunk.append({name: int(mask.sum()) for name, mask in keep.items()})
        kept.append(keep)
    small = load(tmp_path / "run/keep-0.6/model")
    assert sizes_of(small.state_dict(), [layer.heads for layer in small.encoder.shape.layers]) == shrunk[-1]
    for name, value in small.state_dict().items():
        torch.testing.assert_close(value, w[name], atol=1e-5, rtol=1e-5, msg=name)
    cut = {name[0] for name, mask in (*kept[0].items(), *kept[1].items()) if not mask.all()}
    assert len(cut) >= 3, f"only {cut} were cut: the test shows little"
    assert facts["loss"] == {"gates": "task", "recovery": "task"}
    losses = facts["targets"]["keep-0.6"]["losses"]
    assert set(losses) == {"before", "gated", "cut", "recovered"}
