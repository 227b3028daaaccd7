"""The laboratory's own models of other kinds: MLP-Mixer and LSTM layers. Transformers learns them from `lab.kinds`."""

from dataclasses import replace

from armillary.anatomy.families.family import SIZES, Family, Patches

MIXER = Family(
    model_type="armillary_mixer",
    classes="armillary.lab.kinds",
    norm="layernorm",
    blocks="layers",
    embed="",
    patches=Patches("patches"),
    ln_final="ln_final",
    plain_head=False,
    ln1="ln1",
    ln2="ln2",
    mixer="a perceptron over the patches",
    attention="mixing",
    output="",
    attn_write="mixing",
    mlp_write="mlp",
    mlp_in="mlp.fc1",
    mlp_out="mlp.fc2",
    activation="gelu",
    causal=lambda config: False,
    understood=SIZES | {"token_size", "image_size", "patch_size", "num_channels"},
)
LSTM = replace(
    MIXER,
    model_type="armillary_lstm",
    embed="embed",
    patches=None,
    plain_head=True,
    mixer="an LSTM",
    causal=lambda config: True,
    understood=SIZES,
)
FAMILIES = (MIXER, LSTM)
