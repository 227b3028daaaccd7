"""Does the exam find what a model was built to know, and nothing in one that knows nothing?"""

import math
from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
import transformers as tr
from tiny import tiny

from armillary.errors import ModelError
from armillary.lab import exam
from armillary.lab.exam import bits_per_byte, induction, lens, samples

FAMILIES = ["gpt2", "llama", "gemma2", "opt"]
VOCABULARY = 97


def _text(n: int, vocabulary: int = VOCABULARY, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).integers(vocabulary, size=n).astype(np.uint16)


def _copier(vocabulary: int = 150, context: int = 24) -> Any:
    """A GPT-2 that copies perfectly, written down by hand (Olsson et al. 2022).

    The stream holds four one-hot parts: this token, its position, the token before it, the answer. The head of layer 0
    finds the position before and notes its token; the head of layer 1 finds where the note is this token and answers
    with the token there. All vectors have the same number of ones, so a LayerNorm is the same affine map everywhere.
    """
    d = 3 * vocabulary + context
    shape = {"vocab_size": vocabulary, "n_positions": context, "n_embd": d, "n_layer": 2, "n_head": 1}
    config = tr.GPT2Config(**shape, tie_word_embeddings=False, bos_token_id=0, eos_token_id=0)
    model = tr.GPT2LMHeadModel(config).eval()
    token, note, answer = (slice(start, start + vocabulary) for start in (0, vocabulary, 2 * vocabulary))
    place = slice(3 * vocabulary, d)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            parameter.fill_(1.0 if name.endswith(("ln_1.weight", "ln_f.weight")) else 0.0)
        model.transformer.wte.weight[:, token] = torch.eye(vocabulary)
        model.transformer.wpe.weight[:, place] = torch.eye(context)
        previous, finder = (block.attn for block in model.transformer.h)
        sharp = 30.0
        previous.c_attn.weight[place, :context] = sharp * torch.eye(context)
        previous.c_attn.weight[place, d : d + context] = torch.eye(context).roll(1, dims=1)
        previous.c_attn.weight[token, 2 * d : 2 * d + vocabulary] = torch.eye(vocabulary)
        previous.c_proj.weight[:vocabulary, note] = torch.eye(vocabulary)
        finder.c_attn.weight[token, :vocabulary] = sharp * torch.eye(vocabulary)
        finder.c_attn.weight[note, d : d + vocabulary] = torch.eye(vocabulary)
        # The first position can only look at itself, so its note is wrong: every query turns away from it.
        finder.c_attn.bias[vocabulary] = sharp
        finder.c_attn.weight[place.start, d + vocabulary] = -1.0
        finder.c_attn.weight[token, 2 * d : 2 * d + vocabulary] = torch.eye(vocabulary)
        finder.c_proj.weight[:vocabulary, answer] = torch.eye(vocabulary)
        model.lm_head.weight[:, answer] = 3 * torch.eye(vocabulary)
    return model


@pytest.mark.parametrize("n", [2, 9, 16, 17, 18, 100])
def test_a_uniform_model_costs_the_vocabulary(n) -> None:
    model: Any = tiny("llama")
    torch.nn.init.zeros_(model.lm_head.weight)
    expected = math.log2(VOCABULARY) * (n - 1) / 31
    assert bits_per_byte(model, _text(n), 31, context=16) == pytest.approx(expected, rel=1e-6)


@pytest.mark.parametrize("name", FAMILIES)
@pytest.mark.parametrize(("n", "context", "batch"), [(50, 16, 2), (49, 16, 16), (40, 8, 3), (10, 16, 4), (12, 1, 5)])
def test_every_token_is_foretold_once(name, n, context, batch) -> None:
    model: Any = tiny(name).double()
    text, ticks, total = _text(n), [], 0.0
    with torch.no_grad():
        for t in range(1, n):
            start = (t - 1) // context * context
            logits = model(input_ids=torch.tensor(text[start:t].astype(int))[None]).logits[0, -1]
            total -= float(logits.log_softmax(-1)[int(text[t])])
    bits = bits_per_byte(model, text, 123, context, batch, ticks.append)
    assert bits == pytest.approx(total / math.log(2) / 123, rel=1e-7)  # some norms compute in float32
    assert sum(ticks) == n - 1


def test_training_mode_comes_back_and_is_not_used() -> None:
    model: Any = tiny("gpt2").train()
    assert bits_per_byte(model, _text(40), 9, 16) == bits_per_byte(model, _text(40), 9, 16)
    assert model.training and all(parameter.grad is None for parameter in model.parameters())


@pytest.mark.parametrize(
    ("text", "context", "size", "message"),
    [
        (_text(1), 8, 5, "got 1 tokens and 5 bytes"),
        (_text(9), 8, 0, "got 9 tokens and 0 bytes"),
        (_text(99), 65, 5, "windows of 65 tokens were asked for, but the model reads 1 to 64"),
        (_text(99), 0, 5, "windows of 0 tokens"),
        (np.array([3, 97]), 8, 5, "go from 3 to 97, but the model's vocabulary has 97"),
        (np.array([1.0, 2.0]), 8, 5, "integer token ids, got float64"),
        (_text(8).reshape(2, 4), 8, 5, "one stream"),
    ],
)
def test_texts_it_cannot_read_are_refused(text, context, size, message) -> None:
    with pytest.raises(ValueError, match=message):
        bits_per_byte(tiny("gpt2"), text, size, context)


def test_a_model_that_copies_is_found_out() -> None:
    copied = induction(_copier(), vocabulary=150, length=12, sequences=24)
    assert copied.first > math.log(150) - 0.5
    assert copied.second < 0.6
    assert copied.drop.low > 3.5 and copied.drop.low < float(copied.drop.value) < copied.drop.high
    assert float(copied.drop.value) == pytest.approx(copied.first - copied.second)
    assert copied.strongest == (1, 0)
    assert copied.score[1, 0] > 0.9 and copied.control[1, 0] < 0.05
    assert copied.score[0, 0] < 0.01, "the head that looks one token back does not look one copy back"


@pytest.mark.parametrize("name", ["gpt2", "llama"])
def test_a_random_model_copies_nothing(name) -> None:
    copied = induction(tiny(name), VOCABULARY, length=16, sequences=48)
    assert copied.score.shape == copied.control.shape == (3, 4)
    assert abs(float(copied.drop.value)) < 0.1
    assert np.abs(copied.score - copied.control).max() < 0.03


def test_scores_are_means_over_the_places_they_name() -> None:
    length = 5
    pattern = torch.rand(2, 3, 2 * length, 2 * length, generator=torch.Generator().manual_seed(0)).double()
    there, elsewhere = torch.zeros(2, 3), torch.zeros(2, 3)
    for t in range(length, 2 * length - 1):
        there += pattern[:, :, t, t - length + 1] / (length - 1)
        others = [j for j in range(length) if j != t - length + 1]
        elsewhere += pattern[:, :, t, others].mean(-1) / (length - 1)
    weights = exam._copying(pattern, length)
    np.testing.assert_allclose(weights, torch.stack([there, elsewhere], -1), rtol=1e-6)


def test_induction_is_the_same_for_a_seed_and_leaves_randomness_alone() -> None:
    model = tiny("gpt2")
    before = torch.random.get_rng_state()
    a, b, c = (induction(model, VOCABULARY, length=8, sequences=20, seed=seed) for seed in (0, 0, 1))
    assert a.first == b.first != c.first
    assert torch.equal(before, torch.random.get_rng_state())


@pytest.mark.parametrize("name", ["gpt2", "llama"])
def test_the_attention_in_use_comes_back(name, monkeypatch: pytest.MonkeyPatch) -> None:
    model: Any = tiny(name)
    ids = torch.tensor(_text(20).astype(int))[None]
    assert model.config._attn_implementation == "sdpa"
    before = model(input_ids=ids).logits
    induction(model, VOCABULARY, length=4, sequences=2)
    assert model.config._attn_implementation == "sdpa"
    assert not any(module._forward_hooks for module in model.modules()), "as output_attentions=True leaves behind"
    assert torch.equal(model(input_ids=ids).logits, before)

    def fail(*anything: Any) -> None:
        assert model.config._attn_implementation == "eager"
        raise RuntimeError("in the middle")

    monkeypatch.setattr(exam, "_copying", fail)
    with pytest.raises(RuntimeError, match="in the middle"):
        induction(model, VOCABULARY, length=4, sequences=2)
    assert model.config._attn_implementation == "sdpa"
    assert not any(module._forward_hooks for module in model.modules())


def test_a_model_without_patterns_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """The symptom of SDPA, were it not switched off."""
    model: Any = tiny("gpt2")
    monkeypatch.setattr("armillary.flow.capture._eager", nullcontext)
    with pytest.raises(ModelError, match="GPT2Attention gave no attention pattern"):
        induction(model, VOCABULARY, length=4, sequences=2)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"length": 33}, "windows of 66 tokens"),
        ({"length": 1}, "64 sequences of 1 from"),
        ({"length": 4, "sequences": 1}, "1 sequences of 4"),
        ({"length": 4, "first_id": 96}, "from 96 up to 96"),
        ({"length": 4, "vocabulary": 98}, "vocabulary has 97"),
    ],
)
def test_impossible_copies_are_refused(settings, message) -> None:
    with pytest.raises(ValueError, match=message):
        induction(tiny("gpt2"), **{"vocabulary": VOCABULARY, **settings})


@pytest.mark.parametrize("name", [*FAMILIES, "opt-post", "gpt_neox"])
def test_the_last_depth_is_the_model_itself(name) -> None:
    model: Any = tiny(name)
    text = _text(8 * 16 + 1)
    by_depth = lens(model, text, windows=8, context=16)
    assert by_depth.depths == ("L0.resid_pre", "L0.resid_post", "L1.resid_post", "L2.resid_post")
    own = bits_per_byte(model, text, 1, context=16) * math.log(2) / (len(text) - 1)
    assert by_depth.nats.value[-1] == pytest.approx(own, rel=1e-5)
    assert abs(by_depth.kl.value[-1]) < 1e-5
    assert (by_depth.kl.value[:-1] > 1e-3).all(), "earlier depths of a perturbed model answer something else"
    assert (by_depth.nats.low <= by_depth.nats.value).all() and (by_depth.nats.value <= by_depth.nats.high).all()


def test_the_lens_agrees_with_one_drawn_by_hand() -> None:
    model: Any = tiny("llama").double()
    text = _text(2 * 10 + 1)
    by_depth = lens(model, text, windows=2, context=10)
    windows = torch.tensor(np.stack([text[:11], text[10:]]).astype(int))
    with torch.no_grad():
        output = model(input_ids=windows[:, :-1], output_hidden_states=True)
        final = output.logits.log_softmax(-1)
        for depth in range(3):  # the last hidden state is normed already
            answer = model.lm_head(model.model.norm(output.hidden_states[depth])).log_softmax(-1)
            nats = -answer.gather(-1, windows[:, 1:, None]).mean()
            kl = (final.exp() * (final - answer)).sum(-1).mean()
            assert by_depth.nats.value[depth] == pytest.approx(float(nats), rel=1e-5)
            assert by_depth.kl.value[depth] == pytest.approx(float(kl), rel=1e-5)


def test_the_copier_knows_only_after_its_last_block() -> None:
    once = np.random.default_rng(0).permutation(150)[:12]
    by_depth = lens(_copier(), np.tile(np.concatenate([once, once]), 3), windows=2, context=24)
    assert by_depth.nats.value[-1] < by_depth.nats.value[0] - 1
    assert by_depth.nats.value[1] == pytest.approx(math.log(150), abs=0.2)


def test_lenses_that_cannot_be_ground() -> None:
    with pytest.raises(ValueError, match=r"4 windows of 16 tokens were asked for.* 65 tokens .* there are 64"):
        lens(tiny("gpt2"), _text(64), windows=4, context=16)
    with pytest.raises(ValueError, match="two or more are needed"):
        lens(tiny("gpt2"), _text(64), windows=1, context=16)
    with pytest.raises(ValueError, match="there are 100; give more text"):
        lens(tiny("gpt2"), _text(100), windows=2)  # the model's own 64
    with pytest.raises(ModelError, match="a causal model with an unembedding, which this bert is not"):
        lens(tiny("bert-decoder"), _text(64), windows=2, context=16)


class _Numbers:
    """A tokenizer of numbers, answering as `transformers` does."""

    def encode(self, text: str, add_special_tokens: bool = True) -> Any:
        return [1] * add_special_tokens + [int(word) for word in text.split()]

    def decode(self, ids: list[int], skip_special_tokens: bool = True) -> str:
        return " ".join(str(i) for i in ids if not skip_special_tokens or i > 2)


class _Numerals(_Numbers):
    """The same, answering as `tokenizers` does."""

    def encode(self, text: str, add_special_tokens: bool = True) -> Any:
        return SimpleNamespace(ids=super().encode(text, add_special_tokens))


def test_samples_repeat_for_a_seed_and_leave_randomness_alone() -> None:
    model = tiny("gpt2")
    before = torch.random.get_rng_state()
    prompts = ["5 6 7", "5 6 7", "2 8"]
    a, b = (samples(model, kind(), prompts, tokens=12) for kind in (_Numbers, _Numerals))
    assert a == b != samples(model, _Numbers(), prompts, tokens=12, seed=1)
    assert torch.equal(before, torch.random.get_rng_state())
    assert [len(text.split()) for text in a] == [15, 15, 14]
    assert a[0].startswith("5 6 7 ") and a[2].startswith("2 8 ")
    assert a[0] != a[1]


def test_the_likeliest_token_alone() -> None:
    model: Any = tiny("llama")
    ids = [int(i) for i in samples(model, _Numbers(), ["5 6"], tokens=5, top_k=1)[0].split()]
    for t in range(2, 7):
        with torch.no_grad():
            assert ids[t] == int(model(input_ids=torch.tensor([ids[:t]])).logits[0, -1].argmax())


def test_samples_follow_the_model() -> None:
    """The copier goes on with what it has read, past its own length too; at a high temperature it does not."""
    model = _copier()
    prompt = "11 22 33 44 55 11"
    known = samples(model, _Numbers(), [prompt], tokens=30, temperature=0.05)[0]
    assert known.split() == (["11", "22", "33", "44", "55"] * 8)[:36]
    assert samples(model, _Numbers(), [prompt], tokens=30, temperature=50.0)[0] != known


def test_draws_come_from_the_likeliest_in_proportion() -> None:
    model: Any = tiny("gpt2")
    with torch.no_grad():
        logits = model(input_ids=torch.tensor([[5]])).logits[0, -1]
    best = logits.topk(3)
    drawn = [int(text.split()[1]) for text in samples(model, _Numbers(), ["5"] * 600, tokens=1, top_k=3, temperature=2)]
    share = np.array([drawn.count(int(i)) for i in best.indices]) / 600
    np.testing.assert_allclose(share, (best.values / 2).softmax(-1), atol=0.07)


@pytest.mark.parametrize("settings", [{"tokens": -1}, {"top_k": 0}, {"temperature": 0.0}, {"temperature": math.nan}])
def test_impossible_draws_are_refused(settings) -> None:
    with pytest.raises(ValueError, match="set top_k=1"):
        samples(tiny("gpt2"), _Numbers(), ["5"], **settings)


def test_an_empty_prompt_is_refused() -> None:
    with pytest.raises(ValueError, match="the prompt '' contains no token"):
        samples(tiny("gpt2"), _Numbers(), [""])
