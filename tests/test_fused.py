"""The batched path of GPUs gives the numbers of the path that reads site by site; here both run on the CPU."""

import os
from dataclasses import replace
from types import SimpleNamespace

import pytest
import torch
from tiny import tiny

from armillary.anatomy.read import read
from armillary.errors import ModelError
from armillary.flow.tokens import Corpus
from armillary.geometry.fused import folding
from armillary.geometry.fused import head_lengths as lengths
from armillary.geometry.fused import row_statistics as rows
from armillary.measures import GroupedScalars, Largest, Moments, Named, Reservoir, Rows, TopK
from armillary.probes.instruments.covariances import COVARIANCES
from armillary.probes.instruments.head_parts.head_scores import QueryScores, fields_of
from armillary.probes.instruments.heads import FIELDS, HEADS
from armillary.probes.instruments.lengths import LENGTHS
from armillary.probes.instruments.samples import LAST_SAMPLES, SAMPLES
from armillary.probes.instruments.words import WORDS
from armillary.probes.instruments.write_samples import WRITE_SAMPLES
from armillary.probes.machinery.shared_pass import observe
from armillary.specimens.models.texts import chained

# Triton reads the variable when it is imported, and torch imports it.
INTERPRETED = pytest.mark.skipif(
    os.environ.get("TRITON_INTERPRET") != "1", reason="run with Triton installed and TRITON_INTERPRET=1"
)
SPHERE = (LENGTHS, COVARIANCES, SAMPLES, LAST_SAMPLES, WRITE_SAMPLES)
PATHS = (HEADS, WORDS)


def text() -> Corpus:
    """Documents of different lengths, so that batches hold padding."""
    whole = chained(24, 40, vocabulary=90)
    windows = tuple(replace(w, ids=w.ids[: 40 - w.document % 7]) for w in whole.windows)
    return replace(whole, windows=windows, tokens=sum(len(w.ids) for w in windows))


def both(family, dtype, monkeypatch, instruments, massive=True):
    monkeypatch.setattr("armillary.flow.tokens.BATCH_TOKENS", 320)
    live = tiny(family)
    if massive:
        with torch.no_grad():
            live.get_input_embeddings().weight[7, 3] = 4000.0
    anatomy = read(live.to(dtype))
    plain = observe(anatomy, text(), instruments)
    monkeypatch.setattr("armillary.geometry.fused.EVERYWHERE", True)
    return plain, observe(anatomy, text(), instruments)


def compare(a, b, loose: float) -> None:
    if isinstance(a, Named):
        assert list(a) == list(b)
        for name in a:
            compare(a[name], b[name], loose)
    elif isinstance(a, GroupedScalars):
        assert torch.equal(a.count, b.count)
        for field in ("sum", "square", "least", "greatest"):
            torch.testing.assert_close(getattr(b, field), getattr(a, field), rtol=1e-5, atol=2e-5)
    elif isinstance(a, Moments):
        assert a.count == b.count
        if a.count:
            size = a.covariance().abs().max()
            assert (a.covariance() - b.covariance()).abs().max() < loose * size
            assert (a.mean() - b.mean()).abs().max() < loose * size.sqrt()
    elif isinstance(a, Reservoir):
        for ours, theirs in zip(vars(a.sample()).values(), vars(b.sample()).values(), strict=True):
            torch.testing.assert_close(ours, theirs, rtol=0, atol=0)
    elif isinstance(a, TopK):
        torch.testing.assert_close(b.values, a.values)
        assert torch.equal(b.payload, a.payload)
    elif isinstance(a, Largest):
        torch.testing.assert_close(b.values, a.values, rtol=1e-4, atol=1e-7)
    elif isinstance(a, Rows):
        torch.testing.assert_close(b.joined(), a.joined(), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("family", ["gpt2", "llama", "bert", "opt"])
def test_batched_states_are_those_of_the_plain_path(family, dtype, monkeypatch):
    # Beside a massive coordinate the steps of a path are lost to rounding, so words are compared without one.
    for instruments, massive in ((SPHERE, True), (PATHS, False)):
        plain, batched = both(family, dtype, monkeypatch, instruments, massive)
        # Directions in half precision have eleven bits: each product is right to a thousandth, sums of many to less.
        loose = 2e-6 if dtype == torch.float32 else 1e-3
        for instrument in instruments:
            for field, measure in plain[instrument]._measures().items():
                compare(measure, getattr(batched[instrument], field), loose)
        monkeypatch.undo()


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("family", ["gpt2", "llama"])
@INTERPRETED
def test_kernels_give_what_plain_torch_gives(family, dtype, monkeypatch):
    pytest.importorskip("triton", reason="kernels are tested where Triton is")
    few = Corpus(text().windows[:6], "planted", 24, 200, ())
    anatomy = read(tiny(family).to(dtype))
    plain = observe(anatomy, few, (*SPHERE, WORDS))
    monkeypatch.setattr("armillary.geometry.fused.EVERYWHERE", True)
    kernels = observe(anatomy, few, (*SPHERE, WORDS))
    loose = 2e-6 if dtype == torch.float32 else 1e-3
    for instrument in plain:
        for field, measure in plain[instrument]._measures().items():
            compare(measure, getattr(kernels[instrument], field), loose)


@INTERPRETED
@pytest.mark.parametrize("centred", [False, True])
def test_kernels_of_many_sites_give_what_plain_torch_gives(centred, monkeypatch):
    """Eleven sites, each with rows of its own: statistics, directions of chosen rows, and copies."""
    pytest.importorskip("triton", reason="kernels are tested where Triton is")
    sites = [torch.randn(5, 12).to(torch.bfloat16) for _ in range(11)]
    # A view of every second number, as samples of rows are.
    chosen, bounds, shifts = torch.tensor([1, 0, 2, 0, 4])[::2], torch.full((11,), 1.5), torch.randn(11, 12)

    def outputs() -> list[torch.Tensor]:
        statistics = rows.row_statistics(sites, centred, 1e-5, torch.empty(11, 7, 5))
        out = torch.full((11, 4, 12), 9.0, dtype=torch.float16)
        directed = rows.directions(sites, statistics, chosen, centred, 1e-5, bounds, shifts, out)
        return [statistics, directed, rows.gathered(sites, chosen, torch.empty(11, 3, 12, dtype=torch.bfloat16))]

    kernels = outputs()
    monkeypatch.setattr(rows, "fused", lambda x: False)
    for ours, plain in zip(kernels, outputs(), strict=True):
        torch.testing.assert_close(ours, plain, rtol=1e-3, atol=1e-3)
    assert (kernels[1] == 0).all(-1).any()


@INTERPRETED
def test_lengths_of_heads_are_those_of_plain_torch(monkeypatch):
    pytest.importorskip("triton", reason="kernels are tested where Triton is")
    sites = [torch.randn(2, 5, 3, 6).to(torch.bfloat16) for _ in range(18)]
    kernels = lengths.vector_lengths(sites)
    monkeypatch.setattr(lengths, "fused", lambda x: False)
    torch.testing.assert_close(kernels, lengths.vector_lengths(sites))


@INTERPRETED
def test_sums_are_folded_into_float64_as_plain_torch_does(monkeypatch):
    """Of a block inside larger products, as a strip of a covariance is."""
    pytest.importorskip("triton", reason="kernels are tested where Triton is")
    products = torch.randn(3, 4, 9, 700)
    block, totals = products[:, :, 2:7, 40:], torch.randn(5, 5, 660, dtype=torch.float64)
    plain = totals.clone()
    folding.fold_in(totals[1:4], block)
    monkeypatch.setattr(folding, "fused", lambda parts: False)
    folding.fold_in(plain[1:4], block)
    torch.testing.assert_close(totals, plain, rtol=1e-14, atol=1e-14)


@INTERPRETED
@pytest.mark.parametrize("groups", [4, 2])
@pytest.mark.parametrize("biased", [False, True])
def test_kernels_of_queries_give_what_plain_torch_gives(groups, biased, monkeypatch):
    """All fields of sampled queries, with keys that are equal, so that ranks are tied; heads with keys of their own and
    heads that share them, with and without biases."""
    pytest.importorskip("triton", reason="kernels are tested where Triton is")
    b, h, n, t, k = 2, 4, 3, 21, 4
    query = torch.tensor([[8, 12, 20], [9, 15, 19]])
    keys = torch.randn(b, groups, t, k)
    keys[:, :, 5] = keys[:, :, 6] = keys[:, :, 3]
    keys[:, 0, 0] = keys[:, 0, 1]
    seen = QueryScores(
        attention=SimpleNamespace(scale=0.5, softcap=None, bias=None, sinks=None),
        q=torch.randn(b, h, n, k),
        k=keys,
        z=torch.randn(b, t, 8),
        update=torch.rand(b, h, n),
        query=query,
        sees=torch.arange(t) <= query[..., None],
        bare_q=torch.randn(b, h, n, k) if biased else None,
        bare_k=torch.randn(b, h, n, k) if biased else None,
        distinct=torch.ones(b, n, dtype=torch.bool),
    )
    null = (torch.rand(b, h, n), torch.rand(b, h, n), torch.rand(b, h, t))
    plain = fields_of(replace(seen), null, FIELDS)
    monkeypatch.setattr("armillary.geometry.fused.EVERYWHERE", True)
    torch.testing.assert_close(fields_of(replace(seen), null, FIELDS), plain, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("everywhere", [False, True])
def test_a_long_text_gives_a_seeded_share_of_its_tokens(everywhere, monkeypatch):
    """The same tokens in parts and in the whole, on either path; their covariance is near that of all."""
    monkeypatch.setattr("armillary.geometry.fused.EVERYWHERE", everywhere)
    monkeypatch.setattr("armillary.flow.tokens.BATCH_TOKENS", 320)
    anatomy, corpus = read(tiny("gpt2").to(torch.bfloat16)), text()
    everything = observe(anatomy, corpus, (COVARIANCES,))[COVARIANCES]
    wanted = corpus.tokens // 2
    monkeypatch.setattr("armillary.probes.instruments.covariances.ENOUGH", wanted / anatomy.d)
    whole = observe(anatomy, corpus, (COVARIANCES,))[COVARIANCES]
    numbers = range(corpus.batch_count())
    even, odd = (observe(anatomy, corpus, (COVARIANCES,), part=numbers[i::2])[COVARIANCES] for i in range(2))
    site = next(iter(anatomy.norms))
    count, both = COVARIANCES.count(whole)[0], even + odd
    assert abs(count - wanted) < 4 * wanted**0.5 and COVARIANCES.count(both)[0] == count
    torch.testing.assert_close(both.even[site].covariance(), whole.even[site].covariance(), rtol=1e-4, atol=1e-4)
    ratio = whole.even[site].covariance().trace() / everything.even[site].covariance().trace()
    assert 0.8 < ratio < 1.25


def test_massive_tokens_were_there_to_be_found(monkeypatch):
    plain, batched = both("gpt2", torch.float32, monkeypatch, (LENGTHS,))
    assert max(plain[LENGTHS].massive_counts()) > 0
    assert batched[LENGTHS].massive_counts() == plain[LENGTHS].massive_counts()


def test_a_model_that_changes_what_a_norm_received_is_refused(monkeypatch):
    """Groups are read after their sites have passed, so such a model would give wrong numbers."""
    monkeypatch.setattr("armillary.geometry.fused.EVERYWHERE", True)
    live = tiny("llama")
    anatomy, block, received = read(live), live.model.layers[0], []
    block.post_attention_layernorm.register_forward_pre_hook(lambda module, args: received.append(args[0]))
    handle = block.mlp.register_forward_hook(lambda *rest: bool(received[-1].add_(1.0).numel()) and None)
    with pytest.raises(ModelError, match=r"changes in place what .*L0\.ln2"):
        observe(anatomy, text(), (LENGTHS,))
    handle.remove()
    observe(anatomy, text(), (LENGTHS,))
