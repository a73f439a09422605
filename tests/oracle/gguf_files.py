"""Compares GGUF files that egret writes with what the package gguf reads from them.

usage: gguf_files.py EGRET

For small models of several architectures with random weights that transformers makes, `egret quantize` writes files of each type. gguf must read
them: metadata, names that its table has for the architecture, and values that are those of the folder, within the type's rounding. Exit code 1
where one does not.
"""
import pathlib
import subprocess
import sys
import tempfile

import gguf
import numpy
import torch
import transformers

from small_tokenizer import write_tokenizer

COMMON = dict(vocab_size=64, hidden_size=256, intermediate_size=512, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2,
              max_position_embeddings=128, bos_token_id=1, eos_token_id=2, pad_token_id=0)
MODELS = {
    "llama": ("LlamaConfig", dict(COMMON, tie_word_embeddings=False)),
    "mixtral": ("MixtralConfig", dict(COMMON, num_local_experts=4)),
    "qwen2": ("Qwen2Config", dict(COMMON)),
    "qwen3": ("Qwen3Config", dict(COMMON, head_dim=64)),
    "gemma2": ("Gemma2Config", dict(COMMON, head_dim=64)),
    "gemma3": ("Gemma3TextConfig", dict(COMMON, head_dim=64)),
    "phi3": ("Phi3Config", dict(COMMON)),
    "olmo2": ("Olmo2Config", dict(COMMON)),
    "gpt2": ("GPT2Config", dict(vocab_size=64, n_embd=256, n_layer=2, n_head=4, n_positions=128, bos_token_id=1, eos_token_id=2)),
}
MOST = {"f32": 0, "f16": 5e-4, "q8_0": 0.01, "q4_0": 0.11, "q4_k": 0.09}  # relative errors by the 2-norm


def check(name, root, egret):
    kind, values = MODELS[name]
    torch.manual_seed(1)
    model = transformers.AutoModelForCausalLM.from_config(getattr(transformers, kind)(**values))
    model.save_pretrained(root / "model")
    write_tokenizer(root / "model")
    exact = {}
    for type_name, most in MOST.items():
        path = root / f"{type_name}.gguf"
        done = subprocess.run([egret, "quantize", root / "model", path, "--type", type_name], capture_output=True, text=True)
        if done.returncode != 0:
            sys.exit(f"gguf_files.py: {name}: {done.stderr}")
        reader = gguf.GGUFReader(path)
        architecture = reader.get_field("general.architecture").contents()
        arch = next(key for key, value in gguf.MODEL_ARCH_NAMES.items() if value == architecture)
        known = {gguf.TENSOR_NAMES[one].format(bid=layer) for one in gguf.MODEL_TENSORS[arch] for layer in range(2)}
        tokens = reader.get_field("tokenizer.ggml.tokens").contents()
        assert len(tokens) == 64 and tokens[2] == "</s>", tokens
        assert reader.get_field("tokenizer.ggml.pre").contents() == "gpt-2"
        assert reader.get_field(f"{architecture}.block_count").contents() == 2
        worst = 0
        for tensor in reader.tensors:
            stem = tensor.name.rsplit(".", 1)[0]
            assert stem in known or stem == "rope_freqs", f"{name}: {tensor.name} is no tensor of {architecture}"
            value = gguf.quants.dequantize(tensor.data, tensor.tensor_type)
            if type_name == "f32":
                exact[tensor.name] = value
            off = float(numpy.linalg.norm(value - exact[tensor.name]) / max(numpy.linalg.norm(exact[tensor.name]), 1e-30))
            worst = max(worst, off)
        if worst > most:
            sys.exit(f"gguf_files.py: {name} {type_name}: off by {worst}")
        print(f"ok: {name} {type_name} ({worst:.1e})")
    table = model.get_input_embeddings().weight.detach().numpy()
    assert numpy.array_equal(exact["token_embd.weight"], table), name


if __name__ == "__main__":
    for name in MODELS:
        with tempfile.TemporaryDirectory() as folder:
            check(name, pathlib.Path(folder), sys.argv[1])
