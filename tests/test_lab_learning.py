"""Training matches a plain loop, learns what the text contains, and does not touch the caller's random state."""

import random
from collections import Counter
from typing import Any

import numpy as np
import pytest
import torch
from runs import RECIPES, finished, log, noise, prose, small, trainer

import armillary
from armillary import laboratory
from armillary.lab.data import END, Stream
from armillary.lab.exam import bits_per_byte
from armillary.lab.model import build, unmasked
from armillary.lab.recipe import ARCHITECTURES


@pytest.fixture(scope="module")
def text(tmp_path_factory):
    return prose(tmp_path_factory.mktemp("text") / "prose.txt")


@pytest.fixture(scope="module")
def whole(text, tmp_path_factory):
    """A run of every recipe that nothing interrupted."""
    return finished(text, tmp_path_factory.mktemp("whole"))


def test_exam_and_training_read_a_text_alike(whole, text):
    """Or their bits per byte would not compare."""
    run = whole["gpt"]
    tokens, size = laboratory._tokens(armillary.load(str(run.out), progress=False), text)
    parts = [run.train, run.valid]
    assert tokens[: len(run.train)].tolist() == run.train.window(0, len(run.train)).tolist()
    assert size == sum(part.bytes for part in parts)


@pytest.mark.parametrize("recipe", RECIPES)
def test_the_losses_are_those_of_a_plain_loop(whole, recipe):
    """AdamW with decay on matrices alone, clipping, the schedule, dropout from the seed: written out by hand."""
    run, plan = whole[recipe], RECIPES[recipe]
    stream = Stream(run.out / "tokens", "train")
    model = build(plan, run.bpe.token_to_id(END)).train()
    bare = [name for name, _ in model.named_parameters() if name.endswith("bias") or "ln_" in name or "norm" in name]
    groups = [
        {"params": [p for name, p in model.named_parameters() if (name in bare) == flag], "weight_decay": decay}
        for flag, decay in ((False, 0.1), (True, 0.0))
    ]
    optimizer = torch.optim.AdamW(groups, betas=(0.9, 0.95))
    rows = [row for row in log(run.out) if "loss" in row]
    with torch.random.fork_rng():
        torch.manual_seed(plan.seed)
        for step, row in enumerate(rows):
            ids = torch.from_numpy(stream.batch(plan, step))
            logits = model(input_ids=ids[:, :-1]).logits
            loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1), ids[:, 1:].flatten())
            model.zero_grad()
            loss.backward()
            norm = torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            for group in optimizer.param_groups:
                group["lr"] = plan.rate_at(step)
            optimizer.step()
            assert (row["loss"], row["norm"]) == pytest.approx((loss.item(), norm.item()), rel=1e-5)
    trained = run.model.state_dict()
    assert all(torch.allclose(tensor, trained[name], atol=1e-6) for name, tensor in model.state_dict().items())


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_matrices_decay_and_gains_and_biases_do_not(whole, architecture):
    run = whole[architecture]
    names = {id(parameter): name for name, parameter in run.model.named_parameters()}
    decayed, bare = ([names[id(p)] for p in group["params"]] for group in run.optimizer.param_groups)
    assert [group["weight_decay"] for group in run.optimizer.param_groups] == [0.1, 0.0]
    assert Counter(decayed + bare) == Counter(names.values()), "each parameter once"
    assert all(name.endswith(".weight") and "ln_" not in name and "norm" not in name for name in decayed)
    assert all(name.endswith(".bias") or "ln_" in name or "norm" in name for name in bare)


def test_gradients_are_clipped_before_they_are_used(text, tmp_path, monkeypatch):
    used: list[float] = []
    real = torch.optim.AdamW.step

    def step(self: Any, *args: Any) -> Any:
        gradients = [p.grad.norm() for group in self.param_groups for p in group["params"]]
        used.append(float(torch.stack(gradients).norm()))
        return real(self, *args)

    monkeypatch.setattr(torch.optim.AdamW, "step", step)
    trainer(small(clip=0.5, steps=4), text, tmp_path / "run").run()
    raw = [row["norm"] for row in log(tmp_path / "run") if "loss" in row]
    assert used == pytest.approx([min(0.5, norm) for norm in raw], rel=1e-4)
    assert max(raw) > 0.5, "there was something to clip"


def test_dropout_is_on_while_it_learns_and_off_while_it_is_looked_at(text, tmp_path, monkeypatch):
    modes: set[tuple[bool, bool]] = set()
    forward = torch.nn.Dropout.forward

    def seen(self: Any, x: torch.Tensor) -> torch.Tensor:
        modes.add((torch.is_grad_enabled(), self.training))
        return forward(self, x)

    monkeypatch.setattr(torch.nn.Dropout, "forward", seen)
    trainer(small(dropout=0.5, steps=3, look=1), text, tmp_path / "run").run()
    assert modes == {(True, True), (False, False)}


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_compiled_attention_is_told_that_it_is_causal_and_given_no_mask(architecture):
    """With a mask there is no fast kernel. Control: left to itself, Hugging Face makes one while it is compiled."""
    model, ids = build(small(architecture, dropout=0.2)).train(), torch.arange(32).reshape(2, 16)

    def attention() -> set[tuple[bool, bool]]:
        kinds: set[tuple[bool, bool]] = set()

        def backend(graph: torch.fx.GraphModule, inputs: Any) -> Any:
            for node in graph.graph.nodes:
                if node.target is torch.nn.functional.scaled_dot_product_attention:
                    kinds.add((node.kwargs["attn_mask"] is not None, node.kwargs["is_causal"]))
            return graph.forward

        torch.compile(lambda rows: model(input_ids=rows, use_cache=False).logits, dynamic=False, backend=backend)(ids)
        return kinds

    before = model.config.to_dict(), model.config._attn_implementation
    with unmasked(model):
        assert attention() == {(False, True)}
    assert (model.config.to_dict(), model.config._attn_implementation) == before
    model.eval()
    plain = model(input_ids=ids).logits
    with unmasked(model):
        assert torch.equal(model(input_ids=ids).logits, plain)
    if torch.__version__ < "2.14":
        torch.compiler.reset()
        assert attention() == {(True, False)}


def test_what_can_be_learnt_is_and_what_cannot_is_not(tmp_path):
    """Letters in a fixed order cost nothing in the end; letters at random cost four bits each, and never less."""
    plan = small(vocabulary=257, steps=60, warmup=5, rate=2e-2, look=60)
    (tmp_path / "order.txt").write_text(("abcdefghijklmnop" * 4 + "\n") * 300)
    losses = {}
    for name, source in (("order", tmp_path / "order.txt"), ("noise", noise(tmp_path / "noise.txt"))):
        losses[name] = log(trainer(plan, source, tmp_path / name).run())
    bits = {name: [row["valid_bits_per_byte"] for row in rows if "loss" not in row] for name, rows in losses.items()}
    assert bits["order"][-1] < 0.5 < 7 < bits["order"][0]
    assert 4 * 63 / 64 < bits["noise"][-1] < 4.5
    last = np.mean([row["loss"] for row in losses["noise"] if "loss" in row][-10:])
    assert np.log(16) * 63 / 64 - 0.05 < last


def test_the_last_look_is_of_the_model_that_is_written(whole):
    """In evaluation mode: dropout would cost bits."""
    run = whole["gpt-dropout"]
    tokens = run.valid.window(0, len(run.valid))
    again = bits_per_byte(run.model, tokens, run.valid.bytes, 16)
    assert log(run.out)[-1]["valid_bits_per_byte"] == again


def test_the_callers_world_stays_as_it_was(text, tmp_path, monkeypatch):
    monkeypatch.setattr(torch.cuda, "manual_seed_all", lambda seed: pytest.fail("a GPU of the caller's was seeded"))
    torch.default_generator.manual_seed(11)
    states = (torch.get_rng_state(), random.getstate(), np.random.get_state()[1].tolist())
    for wanted in (False, True):
        torch.use_deterministic_algorithms(wanted, warn_only=wanted)
        try:
            trainer(small(dropout=0.2, steps=2, seed=3), text, tmp_path / str(wanted)).run()
            assert torch.are_deterministic_algorithms_enabled() == wanted
            assert torch.is_deterministic_algorithms_warn_only_enabled() == wanted
        finally:
            torch.use_deterministic_algorithms(False)
    assert torch.equal(torch.get_rng_state(), states[0])
    assert (random.getstate(), np.random.get_state()[1].tolist()) == states[1:]
    assert torch.is_grad_enabled()
