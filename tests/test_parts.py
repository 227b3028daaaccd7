"""Models of several parts: which part is opened, how it is asked for, and layers that share their weights."""

import pytest
import torch
import transformers as tr
from tiny_senses import SENSES, SMALL, SPECIAL

import armillary
from armillary.anatomy.facts import describe
from armillary.anatomy.loading.load import load_model
from armillary.anatomy.read import read
from armillary.errors import ModelError
from armillary.flow.capture import run, still
from armillary.flow.controls import random_twin
from armillary.flow.laws import check
from armillary.specimens.models.perturbed import perturbed


@pytest.fixture(scope="module")
def clip(tmp_path_factory):
    text = {**SMALL, **SPECIAL, "intermediate_size": 48, "max_position_embeddings": 64}
    vision = {**text, "image_size": 24, "patch_size": 4}
    path = tmp_path_factory.mktemp("clip")
    perturbed(lambda: tr.CLIPModel(tr.CLIPConfig(text_config=text, vision_config=vision))).save_pretrained(path)
    return path


def test_the_towers_of_a_folder_are_opened_one_at_a_time(clip):
    first, text = load_model(str(clip)), load_model(f"{clip}#text")
    assert (first.family, first.reads) == ("clip_vision_model", "images")
    assert (text.family, text.reads) == ("clip_text_model", "text")
    assert check(first)
    assert check(text)
    assert "the text part is not read: add #text to the model's name" in describe(first).not_understood
    with pytest.raises(ModelError, match=r"there is no part 'sound' of this clip model; it has vision, text"):
        load_model(f"{clip}#sound")


def test_a_live_model_of_two_stacks_is_read_by_its_encoder():
    model = perturbed(lambda: tr.T5ForConditionalGeneration(tr.T5Config(
        vocab_size=97, d_model=32, d_kv=8, d_ff=48, num_layers=2, num_heads=4, **SPECIAL)))  # fmt: skip
    anatomy = load_model(model)
    assert anatomy.family == "t5.encoder"
    assert anatomy.model is model.encoder
    assert check(anatomy)


def test_a_model_that_is_read_whole_has_no_parts(tmp_path):
    perturbed(SENSES["vit"]).save_pretrained(tmp_path)
    assert load_model(str(tmp_path)).family == "vit"
    with pytest.raises(ModelError, match="read whole"):
        load_model(f"{tmp_path}#vision")


def test_shared_layers_are_told_apart_and_stay_shared():
    model = perturbed(SENSES["albert"])
    ids = torch.randint(3, 97, (2, 9), generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        before = model.albert(input_ids=ids).last_hidden_state
    anatomy = read(model)
    assert anatomy.layers == 3
    assert len(model.albert.encoder.albert_layer_groups) == 1
    with still(anatomy.model):
        assert torch.equal(run(anatomy, ids), before)
    weights = [block.attention.W_Q.data_ptr() for block in anatomy.blocks]
    assert len(set(weights)) == 1
    assert len({site.path for site in anatomy.sites.values() if site.name.endswith(".z")}) == 3
    twin = random_twin(anatomy, 1)
    assert twin.layers == 3
    assert twin.blocks[0].attention.W_Q.data_ptr() == twin.blocks[2].attention.W_Q.data_ptr()


@pytest.mark.parametrize("name", ["whisper.encoder", "bart.encoder", "convnext", "dinov2_with_registers"])
def test_an_untrained_twin_is_lawful_and_reads_the_same_table(name):
    anatomy = read(perturbed(SENSES[name]))
    twin = random_twin(anatomy, 0)
    assert check(twin)
    if anatomy.signal is not None:
        assert torch.equal(twin.signal.table, anatomy.signal.table)
    assert twin.W_E.shape == anatomy.W_E.shape


def test_a_decoder_is_surveyed_beside_its_encoder(tmp_path):
    """The encoder reads the decoder's tokens; claims about two sublayers, or about texts that grow, do not apply."""
    from armillary.results import Why
    from armillary.specimens.untrained import tokenizer

    config = tr.BartConfig(
        vocab_size=8192, d_model=32, encoder_layers=2, decoder_layers=2, encoder_ffn_dim=48, decoder_ffn_dim=48,
        encoder_attention_heads=4, decoder_attention_heads=4, max_position_embeddings=256, decoder_start_token_id=5,
        pad_token_id=1, bos_token_id=0, eos_token_id=2, forced_eos_token_id=2,
    )  # fmt: skip
    perturbed(lambda: tr.BartForConditionalGeneration(config)).save_pretrained(tmp_path)
    tokenizer("gpt").save_pretrained(tmp_path)
    claims = "sphere.radius,attention.two-views,words.travel,stability.prefix,others.collapse"
    survey = armillary.survey(f"{tmp_path}#decoder", claims=claims, quick=True, progress=False)
    assert survey["sphere.radius"].verdict == survey["attention.two-views"].verdict == "supported"
    others = [survey[name] for name in ("words.travel", "stability.prefix", "others.collapse")]
    assert all(finding.why is Why.NOT_APPLICABLE for finding in others)
    assert "the encoder is given the same tokens, for every document" in survey.text.notes
    anatomy = armillary.load(tr.BartForConditionalGeneration.from_pretrained(tmp_path), part="decoder", progress=False)
    assert "L1.cross_out" in anatomy.sites and "L1.ln_cross" in anatomy.norms
    assert anatomy.encoder.start == 5
