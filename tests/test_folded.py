"""Folded heads: matrices that take directions, offsets that are relative, vectors that know where they live."""

import pytest
import torch
from tiny import MAKERS, tiny

from armillary.anatomy.folded import fold, fold_forward, mlp_norm, reading_norm
from armillary.anatomy.read import read
from armillary.anatomy.space import RAW, Space, Vectors
from armillary.errors import SpaceError
from armillary.specimens.models.draws import generator


@pytest.mark.parametrize("name", list(MAKERS))
def test_w_qk_is_the_score_s_bilinear_part(name):
    """scores(z_i, z_j) less what is linear or constant in z is z_i W_QK z_j, but for what a q/k-norm divides by."""
    anatomy = read(tiny(name))
    folded = fold(anatomy, 1, 4)
    if folded.attention.softcap is not None or folded.attention.q_norm is not None:
        pytest.skip("not bilinear: the score is capped, or divided by each token's own length")
    z = Vectors(torch.randn(5, anatomy.d, generator=generator(1), dtype=torch.float64), folded.reads)
    none = Vectors(torch.zeros(1, anatomy.d, dtype=torch.float64), folded.reads)
    for offset in (0, 3) if folded.rotary is not None else (0,):
        whole = folded.scores(z, z, offset)
        rest = folded.scores(z, none, offset) + folded.scores(none, z, offset) - folded.scores(none, none, offset)
        product = folded.qk(offset).scores(z.values.expand(len(whole), -1, -1), z.values.expand(len(whole), -1, -1))
        assert torch.allclose(whole - rest, product, atol=1e-10)


def test_rotation_counts_the_offset_alone():
    folded = fold(read(tiny("llama-yarn")), 0, 9)
    turns = [folded.turn(offset) for offset in range(9)]
    size = turns[0][0, 0]  # YaRN makes q and k longer
    assert torch.allclose(turns[3] @ turns[4], turns[7] * size, atol=1e-5)
    assert torch.equal(folded.turn(-5), folded.turn(5).mT)
    with pytest.raises(ValueError, match="offset 9 is outside"):
        folded.turn(9)


def test_without_rotation_every_offset_is_the_same():
    folded = fold(read(tiny("gpt2")), 0)
    assert torch.equal(folded.qk(0).dense(), folded.qk(7).dense())


@pytest.mark.parametrize("name", ["gpt2", "gpt_neox", "opt", "bert"])
def test_layernorm_s_mean_is_no_singular_vector(name):
    folded = fold(read(tiny(name)), 1)
    for matrix in (folded.A_Q, folded.A_K, folded.A_V):
        assert matrix.sum(1).abs().max() < 1e-12


def test_spaces_do_not_mix():
    anatomy = read(tiny("llama"))
    folded = fold(anatomy, 1)
    site, _ = reading_norm(anatomy, 1)
    here = Vectors(torch.ones(2, anatomy.d, dtype=torch.float64), Space("direction", site))
    elsewhere = Vectors(here.values, Space("direction", "L2.ln1"))
    stream = Vectors(here.values, RAW)
    assert folded.queries(here).shape == (anatomy.n_heads, 2, anatomy.k)
    for wrong in (elsewhere, stream):
        with pytest.raises(SpaceError, match=r"a query takes directions at L1\.ln1"):
            folded.queries(wrong)
        for mix in (here.dot, here.cosine, here.__add__, here.__sub__):
            with pytest.raises(SpaceError, match="is undefined"):
                mix(wrong)
    assert folded.updates(here).space == RAW
    # Behind Gemma's second norm a head's write is not the stream's yet.
    gemma = fold(read(tiny("gemma2")), 1)
    write = gemma.updates(Vectors(here.values, gemma.reads))
    with pytest.raises(SpaceError, match=r"the residual stream at L1\.ln1_post with the residual stream"):
        write + stream


def test_a_layer_without_a_norm_before_it_reads_the_stream():
    anatomy = read(tiny("opt-post"))
    assert fold(anatomy, 0).reads == RAW
    assert fold(anatomy, 1).reads == Space("direction", "L0.ln2")


@pytest.mark.parametrize("name", list(MAKERS))
def test_a_folded_feed_forward_takes_directions(name):
    """Scores of folded keys, weighing the values, give what the layer writes for the norm's output."""
    anatomy = read(tiny(name))
    folded = fold_forward(anatomy, 1)
    site, norm = mlp_norm(anatomy, 1)
    x = torch.randn(5, anatomy.d, generator=generator(1), dtype=torch.float64)
    written = folded.scores(Vectors(norm.direction(x), Space("direction", site))) @ folded.W_out
    written = written if folded.b_out is None else written + folded.b_out
    expected = anatomy.blocks[1].feed_forward(norm(x))
    assert torch.allclose(written, expected, atol=1e-10 * float(expected.abs().max()))
    with pytest.raises(SpaceError, match="a key takes directions"):
        folded.scores(Vectors(x, RAW))
