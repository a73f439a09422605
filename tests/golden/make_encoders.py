#!/usr/bin/env python3
"""Makes tests/golden/encoders/*.json: hidden states that transformers computes for small encoders of text.

    pip install torch==2.13.0 transformers==5.23.0 safetensors   (CPU builds are enough)
    python3 tests/golden/make_encoders.py tests/golden/encoders

One file a model: its config.json as transformers saves it, the names and shapes of its tensors with a scale and an offset, a seed, two
texts of different lengths as tokens, and the hidden states of each behind the last layer, computed as one padded batch. Weights are no
part of the files: both sides make them as make_language.py says.
"""
import json
import os
import sys
import tempfile

import safetensors.numpy
import torch
import transformers

from make_language import described, filled

COMMON = dict(vocab_size=48, hidden_size=24, num_hidden_layers=2, num_attention_heads=4, intermediate_size=40)
# file name: (class of the config, its values, class of the saved model)
MODELS = {
    "bert": ("BertConfig", dict(COMMON, max_position_embeddings=32), "AutoModel"),
    "bert_masked": ("BertConfig", dict(COMMON, max_position_embeddings=32, hidden_act="gelu_new"), "AutoModelForMaskedLM"),
    "roberta": ("RobertaConfig", dict(COMMON, max_position_embeddings=34, type_vocab_size=1, pad_token_id=1), "AutoModelForMaskedLM"),
    "electra": ("ElectraConfig", dict(COMMON, max_position_embeddings=32, embedding_size=16), "AutoModel"),
    "distilbert": ("DistilBertConfig", dict(vocab_size=48, dim=24, n_layers=2, n_heads=4, hidden_dim=40, max_position_embeddings=32),
                   "AutoModel"),
    "mpnet": ("MPNetConfig", dict(COMMON, max_position_embeddings=34), "AutoModel"),
}
TEXTS = [[2, 17, 5, 44, 23, 40, 9, 31, 12, 47, 28, 3], [2, 33, 8, 14, 3]]


def make(name, folder):
    config_class, values, model_class = MODELS[name]
    config = getattr(transformers, config_class)(**values)
    torch.manual_seed(0)
    with tempfile.TemporaryDirectory() as path:
        getattr(transformers, model_class).from_config(config).save_pretrained(path)
        file = os.path.join(path, "model.safetensors")
        rules = described({key: list(value.shape) for key, value in safetensors.numpy.load_file(file).items()}, 2)
        safetensors.numpy.save_file(filled(rules, 3000), file, metadata={"format": "pt"})
        saved = json.load(open(os.path.join(path, "config.json")))
        model = transformers.AutoModel.from_pretrained(path, dtype=torch.float32, attn_implementation="eager").eval()
    pad = config.pad_token_id
    longest = max(map(len, TEXTS))
    tokens = torch.tensor([text + [pad] * (longest - len(text)) for text in TEXTS])
    mask = torch.tensor([[1] * len(text) + [0] * (longest - len(text)) for text in TEXTS])
    with torch.no_grad():
        states = model(tokens, attention_mask=mask).last_hidden_state
    print(f"{name:14} largest {float(states.abs().max()):8.3f}")
    out = {"config": saved, "tensors": rules, "seed": 3000, "texts": TEXTS,
           "hidden": [[float(f"{v:.6g}") for v in states[i, :len(text)].flatten().tolist()] for i, text in enumerate(TEXTS)]}
    with open(os.path.join(folder, name + ".json"), "w") as f:
        json.dump(out, f, separators=(",", ":"))
        f.write("\n")


if __name__ == "__main__":
    for name in sys.argv[2:] or MODELS:
        make(name, sys.argv[1])
