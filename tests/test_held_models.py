"""Models as people hold them: wrapped, adapted, packed, spread over devices; and folders that hold more or less than
their config says."""

import json
import struct

import pytest
import torch
from safetensors.torch import load_file, save_file
from tiny import tiny
from tiny_kinds import KINDS, tiny_of
from tiny_senses import SENSES

import armillary
from armillary.anatomy.facts import facts
from armillary.anatomy.families import FAMILIES
from armillary.anatomy.loading.gguf import ARCHITECTURES, check_gguf
from armillary.anatomy.loading.load import load_model
from armillary.errors import ModelError
from armillary.flow.laws import check
from armillary.specimens.models.perturbed import SMALL, llama, perturbed
from armillary.views.text.anatomy import anatomy_text


# Both compilers and the old quantisation announce their end with every use.
@pytest.mark.filterwarnings("ignore")
def test_wrapped_and_compiled_models_are_unwrapped():
    model = tiny("llama")
    for held in (torch.nn.DataParallel(model), torch.compile(model), torch.nn.DataParallel(torch.compile(model))):
        anatomy = load_model(held)
        assert anatomy.model is model
        assert check(anatomy)


def _compiled_layer(model):
    model.model.layers[1] = torch.compile(model.model.layers[1])


def _compiled_forward(model):
    model.forward = torch.compile(model.forward)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    ("change", "named"),
    [
        (_compiled_layer, r"model\.layers\.1"),
        (_compiled_forward, "this model"),
        (lambda model: model.compile(), "this model"),
    ],
)
def test_what_is_compiled_where_it_stands_is_named(change, named):
    model = tiny("llama")
    change(model)
    with pytest.raises(ModelError, match=f"^{named} was compiled in place"):
        load_model(model)


def test_a_trainer_gives_its_model_and_tokenizer():
    class Trainer:
        model, processing_class = tiny("gpt2"), object()

    anatomy = load_model(Trainer())
    assert anatomy.model is Trainer.model
    assert anatomy.tokenizer is Trainer.processing_class


def test_a_model_in_float64_is_told_to_be_float32():
    with pytest.raises(ModelError, match=r"as if computed in float32.*model\.float\(\)"):
        armillary.load(tiny("llama").double(), progress=False)


def test_a_pipeline_gives_its_model_and_tokenizer():
    from transformers import AutoTokenizer, pipeline

    tokenizer = AutoTokenizer.from_pretrained("src/armillary/builtin/tokenizer", local_files_only=True)
    model = tiny("gpt2")
    anatomy = load_model(pipeline("text-generation", model=model, tokenizer=tokenizer, device="cpu"))
    assert anatomy.model is model
    assert anatomy.tokenizer is tokenizer


def _adapted():
    peft = pytest.importorskip("peft")
    model = tiny("llama")
    adapted = peft.get_peft_model(model, peft.LoraConfig(r=2, target_modules=["q_proj", "down_proj"]))
    with torch.no_grad():
        for name, parameter in adapted.named_parameters():
            if "lora_B" in name:
                parameter.normal_(std=0.2)
    return adapted


def test_an_adapter_is_merged_into_a_copy():
    adapted = _adapted()
    ids = torch.tensor([[5, 6, 7, 8]])
    before = adapted(input_ids=ids).logits
    anatomy = armillary.load(adapted, progress=False)
    assert anatomy.provenance["kind"] == "live, adapter merged into a copy"
    torch.testing.assert_close(anatomy.model(input_ids=ids).logits, before, atol=1e-5, rtol=1e-5)
    assert torch.equal(adapted(input_ids=ids).logits, before)
    assert any("lora_" in name for name, _ in adapted.named_parameters())


def _switched_off():
    adapted = _adapted()
    adapted.base_model.disable_adapter_layers()
    return adapted


def _on_tied_embeddings():
    """LoRA of the unembedding: merged, it would change the embeddings too, which are the same weight."""
    peft = pytest.importorskip("peft")
    model = perturbed(lambda: llama(tie_word_embeddings=True))
    adapted = peft.get_peft_model(model, peft.LoraConfig(r=2, target_modules=["lm_head"]))
    for name, parameter in adapted.named_parameters():
        if "lora_B" in name:
            parameter.data.normal_(std=0.2)
    return adapted


@pytest.mark.filterwarnings("ignore")  # peft warns of tied weights
@pytest.mark.parametrize("make", [_switched_off, _on_tied_embeddings])
def test_an_adapter_that_does_not_merge_into_what_the_model_computes_is_refused(make):
    adapted = make()
    adapted.train()
    with pytest.raises(ModelError, match=r"gives other outputs with its adapter merged .* disabled, or"):
        load_model(adapted)
    assert adapted.training


def test_adapters_of_models_that_read_images_are_compared_too():
    peft = pytest.importorskip("peft")
    adapted = peft.get_peft_model(perturbed(SENSES["vit"]), peft.LoraConfig(r=2, target_modules=["q_proj"]))
    assert load_model(adapted).provenance["kind"] == "live, adapter merged into a copy"
    adapted.base_model.disable_adapter_layers()
    for name, parameter in adapted.named_parameters():
        if "lora_B" in name:
            parameter.data.normal_(std=0.2)
    with pytest.raises(ModelError, match="with its adapter merged"):
        load_model(adapted)


def test_layers_of_an_adapter_without_the_adapter_are_named():
    with pytest.raises(ModelError, match=r"layers\.0\.self_attn\.q_proj is a Linear of an adapter \(PEFT\)"):
        load_model(_adapted().base_model.model)


def test_an_adapter_folder_says_what_it_is(tmp_path):
    _adapted().save_pretrained(tmp_path)
    with pytest.raises(ModelError, match=r"is an adapter \(PEFT\) of .*merge it first: armillary.load"):
        load_model(str(tmp_path))


@pytest.mark.parametrize(("kind", "named"), [("PromptTuningConfig", "PROMPT_TUNING"), ("PrefixTuningConfig", "PREFIX")])
def test_learned_prompts_cannot_be_merged_and_say_so(kind, named):
    peft = pytest.importorskip("peft")
    settings = getattr(peft, kind)(task_type="CAUSAL_LM", num_virtual_tokens=3)
    with pytest.raises(ModelError, match=rf"{named}.*puts learned vectors before every text.*get_base_model"):
        load_model(peft.get_peft_model(tiny("llama"), settings))


def test_an_adapter_of_an_unnamed_model_asks_for_no_model_called_none(tmp_path):
    _adapted().save_pretrained(tmp_path)
    file = tmp_path / "adapter_config.json"
    file.write_text(json.dumps({**json.loads(file.read_text()), "base_model_name_or_path": None}))
    with pytest.raises(ModelError, match="a model that it does not name") as refused:
        load_model(str(tmp_path))
    assert "None" not in str(refused.value)


def test_what_holds_no_weights_is_named_by_its_type():
    model = tiny("llama")
    for source, what in (
        (model.state_dict(), "a OrderedDict"),
        (type(model), "the class Llama"),
        (model.config, "a Ll"),
    ):
        with pytest.raises(ModelError, match=f"^{what}.* is not a model with weights") as refused:
            load_model(source)
        assert len(str(refused.value)) < 300


def test_weights_of_two_types_say_so():
    model = tiny("llama")
    model.model.layers[1].to(torch.bfloat16)
    with pytest.raises(ModelError, match=r"weights are of several dtypes \(bfloat16, float32\)"):
        armillary.load(model, progress=False)


@pytest.mark.filterwarnings("ignore")
def test_packed_weights_are_named_and_the_rest_is_measured():
    model = torch.ao.quantization.quantize_dynamic(tiny("llama"), {torch.nn.Linear}, dtype=torch.qint8)
    anatomy = armillary.load(model, progress=False)
    assert "packed weights (torch.ao.nn.quantized" in anatomy.opaque["heads"]
    assert "packed weights" in anatomy.opaque["hidden"]
    assert {law.name for law in anatomy.laws if law.where != "not applicable"} == {
        *("shapes", "embedding", "norm", "stream", "edits")
    }


def test_offloaded_weights_are_refused():
    model = tiny("llama")
    model.model.layers[1].to("meta")
    with pytest.raises(ModelError, match=r"the weight model\.layers\.1\..* cannot be read; load it whole"):
        load_model(model)


@pytest.fixture
def folder(tmp_path):
    tiny("llama").save_pretrained(tmp_path)
    return tmp_path


def test_weights_that_no_config_calls_for_are_named(folder):
    file = folder / "model.safetensors"
    save_file({**load_file(file), "model.extra.weight": torch.ones(3)}, file, metadata={"format": "pt"})
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, "slidingg_window": 16}))
    anatomy = armillary.load(str(folder), progress=False)
    assert anatomy.weights_ignored == ("model.extra.weight",)
    printed = anatomy_text(facts(anatomy))
    assert "weights that the config does not call for: model.extra.weight" in printed
    assert "slidingg_window" in printed


@pytest.mark.filterwarnings("ignore")
def test_a_misspelt_key_of_the_rotation_is_named(folder):
    config = json.loads((folder / "config.json").read_text())
    config["rope_parameters"] = {**config["rope_parameters"], "facter": 2.0}
    (folder / "config.json").write_text(json.dumps(config))
    assert armillary.load(str(folder), progress=False).config_ignored == ("rope_parameters.facter",)


@pytest.mark.parametrize("dtype", [torch.int8, torch.float8_e4m3fn])
def test_weights_of_other_types_are_refused(folder, dtype):
    file = folder / "model.safetensors"
    weights = load_file(file)
    name = "model.layers.0.self_attn.q_proj.weight"
    save_file({**weights, name: weights[name].to(dtype)}, file, metadata={"format": "pt"})
    with pytest.raises(ModelError, match=rf"holds the weight {name} as (I8|F8_E4M3), and config.json names no"):
        load_model(str(folder))


def test_a_weight_of_another_shape_is_named_with_both(folder):
    file = folder / "model.safetensors"
    save_file({**load_file(file), "model.norm.weight": torch.ones(7)}, file, metadata={"format": "pt"})
    with pytest.raises(ModelError, match=r"holds the weight model\.norm\.weight as \[7\] where .* calls for \[32\]"):
        load_model(str(folder))


def _gguf(architecture: str) -> bytes:
    """The smallest whole GGUF of an architecture: one pair of metadata and one tensor of 32 numbers."""

    def text(value: str) -> bytes:
        return struct.pack("<Q", len(value)) + value.encode()

    head = b"GGUF" + struct.pack("<IQQ", 3, 1, 1) + text("general.architecture") + struct.pack("<I", 8)
    head += text(architecture) + text("w") + struct.pack("<IQIQ", 1, 32, 0, 0)
    return head + bytes(-len(head) % 32) + bytes(128)


def test_a_gguf_of_an_unknown_architecture_is_refused_from_its_header(tmp_path):
    path = tmp_path / "model.gguf"
    path.write_bytes(_gguf("grok"))
    with pytest.raises(ModelError, match=r"of the architecture 'grok' \(read from GGUF are bloom, .*qwen3moe"):
        check_gguf(path)
    with pytest.raises(ModelError, match="grok"):
        armillary.survey(str(path), out=tmp_path / "out", progress=False)
    assert not (tmp_path / "out").exists()
    path.write_bytes(_gguf("llama"))
    assert check_gguf(path) == 32


def test_every_gguf_architecture_has_a_table():
    assert set(ARCHITECTURES.values()) <= {family.model_type for family in FAMILIES}


@pytest.mark.parametrize("name", ["mamba", "mixtral", "deberta-v2", "bloom"])
def test_the_anatomy_of_every_kind_can_be_printed(name):
    anatomy = armillary.load(perturbed(KINDS[name]), progress=False)
    printed = anatomy_text(facts(anatomy))
    assert ("not understood" in printed) == bool(anatomy.opaque)
    assert ("4 experts, of which a token gets 2" in printed) == (name == "mixtral")
    assert ("scores biased by distance" in printed) == (name == "bloom")


def test_heads_that_their_output_projection_cannot_take_are_refused():
    """Helium's output projection is as wide as the stream, whatever the heads' width is."""
    with pytest.raises(ModelError, match=r"o_proj takes 32 values, and 4 query heads .* of width 10 give 40"):
        load_model(perturbed(tiny_of("HeliumForCausalLM", head_dim=10)))


def test_a_model_that_cannot_run_says_so():
    """MPNet counts 32 buckets, whatever its table of distances has."""
    with pytest.raises(ModelError, match=r"own forward pass fails on a few tokens \(index out of range"):
        armillary.load(perturbed(tiny_of("MPNetForMaskedLM", SMALL, relative_attention_num_buckets=8)), progress=False)


@pytest.mark.parametrize("name", ["GemmaForCausalLM", "Gemma2ForCausalLM", "Gemma3ForCausalLM"])
def test_gemmas_that_see_later_tokens_are_refused_by_name(name):
    with pytest.raises(ModelError, match="use_bidirectional_attention=True"):
        load_model(perturbed(tiny_of(name, head_dim=16, use_bidirectional_attention=True)))


def test_a_decoder_begins_as_the_library_generates(tmp_path):
    """A config without the start token holds its class's default, which is another model's token."""
    perturbed(SENSES["whisper.decoder"]).save_pretrained(tmp_path)
    config = json.loads((tmp_path / "config.json").read_text())
    del config["decoder_start_token_id"]
    (tmp_path / "config.json").write_text(json.dumps(config))
    assert load_model(str(tmp_path), part="decoder").encoder.start == 2
    (tmp_path / "generation_config.json").unlink()
    with pytest.raises(ModelError, match=r"begin with token 50257 .* of a vocabulary of 97"):
        load_model(str(tmp_path), part="decoder")
