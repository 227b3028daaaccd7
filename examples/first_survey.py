"""A first survey in Python: a live model, a few documents, one claim looked at closely.

python examples/first_survey.py
"""

import transformers as tr
from tokenizers import Tokenizer, models, pre_tokenizers, trainers

import armillary
from armillary.flow.documents import sample

# Any live transformers model will do; this one is tiny and untrained, so that the example runs anywhere in seconds.
texts = list(sample().texts)[:24]
bpe = Tokenizer(models.BPE(unk_token="<unk>"))
bpe.pre_tokenizer = pre_tokenizers.ByteLevel()
bpe.train_from_iterator(texts, trainers.BpeTrainer(vocab_size=600, special_tokens=["<unk>"], show_progress=False))
tokenizer = tr.PreTrainedTokenizerFast(tokenizer_object=bpe, unk_token="<unk>")
config = tr.GPT2Config(n_embd=64, n_layer=3, n_head=4, vocab_size=600, n_positions=256, bos_token_id=0, eos_token_id=0)
model = tr.GPT2LMHeadModel(config)

survey = armillary.survey(model, texts, tokenizer=tokenizer, tokens=1500, progress=False)
print(survey)

zeros = survey["spectrum.two-zeros"]
print(zeros.reading)
print(zeros.to_frame()[["site", "zeros_z", "algebra", "smallest", "second"]])
