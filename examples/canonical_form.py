"""The canonical form: every head of every family as W_Q, W_K, W_V [d, k] and W_O [k, d], checked at load.

python examples/canonical_form.py
"""

import torch
import transformers as tr

import armillary

config = tr.LlamaConfig(
    hidden_size=64,
    intermediate_size=96,
    num_hidden_layers=2,
    num_attention_heads=8,
    num_key_value_heads=2,
    vocab_size=100,
    max_position_embeddings=128,
)
anatomy = armillary.load(tr.LlamaForCausalLM(config), progress=False)

for law in anatomy.laws:
    print(f"{law.name:<13} {law.error:.1e}  {law.statement}")

head = anatomy.blocks[1].attention.head(5)
print("L1H5: W_Q", tuple(head.W_Q.shape), " W_QK rank", int(torch.linalg.matrix_rank(head.W_Q @ head.W_K.T)))
