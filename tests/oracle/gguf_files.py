"""Compares GGUF files that egret writes with what the package gguf reads from them, and folders that egret makes of them with transformers.

usage: gguf_files.py EGRET ORACLE_LOGITS

For small models of several architectures with random weights that transformers makes, `egret quantize` writes files of each type. gguf must read
them: metadata, names that its table has for the architecture, and values that are those of the folder, within the type's rounding. `egret
dequantize` makes folders of them, which transformers must load: with the logits that egret (the program of logits_driver.cpp) gives for the file,
those of the model where the type is f32, and with the model's tokenizer. Exit code 1 where one does not.
"""
import json
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
    "llama_3": ("LlamaConfig", dict(COMMON, attention_bias=True, rope_parameters={
        "rope_type": "llama3", "rope_theta": 500000.0, "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
        "original_max_position_embeddings": 64})),
    "llama_yarn": ("LlamaConfig", dict(COMMON, rope_parameters={
        "rope_type": "yarn", "rope_theta": 10000.0, "factor": 4.0, "original_max_position_embeddings": 32, "attention_factor": 0.8})),
    "mistral": ("MistralConfig", dict(COMMON, sliding_window=8)),
    "mixtral": ("MixtralConfig", dict(COMMON, num_local_experts=4)),
    "qwen2": ("Qwen2Config", dict(COMMON)),
    "qwen3": ("Qwen3Config", dict(COMMON, head_dim=64)),
    "qwen3_moe": ("Qwen3MoeConfig", dict(COMMON, head_dim=64, num_experts=4, num_experts_per_tok=2, moe_intermediate_size=256,
                                         norm_topk_prob=True)),
    "gemma2": ("Gemma2Config", dict(COMMON, head_dim=64, sliding_window=8)),
    "gemma3": ("Gemma3TextConfig", dict(COMMON, head_dim=64, sliding_window=8, layer_types=["full_attention", "sliding_attention"])),
    "phi3": ("Phi3Config", dict(COMMON)),
    "phi3_long": ("Phi3Config", dict(COMMON, original_max_position_embeddings=8, rope_parameters={
        "rope_type": "longrope", "rope_theta": 10000.0, "original_max_position_embeddings": 8,
        "long_factor": [1 + i / 8 for i in range(32)], "short_factor": [1 + i / 64 for i in range(32)]})),
    "olmo2": ("Olmo2Config", dict(COMMON)),
    "gpt2": ("GPT2Config", dict(vocab_size=64, n_embd=256, n_layer=2, n_head=4, n_positions=128, bos_token_id=1, eos_token_id=2)),
}
IDS = [1, 9, 30, 12, 44, 8, 61, 17, 23, 5, 40, 33]
TEXTS = ["hello you", "a<s> b </s>c", "<|user|>hello<|end|><|assistant|>"]
MOST = {"f32": 0, "f16": 5e-4, "q8_0": 0.01, "q4_0": 0.11, "q4_k": 0.09}  # relative errors by the 2-norm


def run(*command):
    done = subprocess.run([str(part) for part in command], capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"gguf_files.py: {' '.join(map(str, command))}: {done.stderr}")
    return done.stdout


def check_folder(name, root, type_name, model, egret, driver):
    """The file as a folder again."""
    path, folder = root / f"{type_name}.gguf", root / f"{type_name}-folder"
    run(egret, "dequantize", path, folder, "--dtype", "f32")
    again = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)

    def logits_of(one):
        with torch.no_grad():
            return one.eval()(torch.tensor([IDS])).logits[0].float()

    def expect_equal(a, b, what):
        off = float((a - b).abs().max() / b.abs().max())
        if not off <= 1e-4:
            sys.exit(f"gguf_files.py: {name} {type_name} as a folder: {what}: off by {off:.2e} of the largest logit")
        return off

    got = logits_of(again)
    read = torch.tensor(json.loads(run(driver, path, "", *IDS))).reshape(len(IDS), -1)
    off = expect_equal(got, read, "egret reads other logits from the file") if type_name != "f16" else 0
    if type_name == "f32":
        off = max(off, expect_equal(got, logits_of(model), "transformers gives other logits"))
    was = transformers.PreTrainedTokenizerFast.from_pretrained(root / "model")
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    for text in TEXTS:
        assert tokenizer(text)["input_ids"] == was(text)["input_ids"], (name, text)
    assert tokenizer.eos_token == was.eos_token, name
    print(f"ok: {name} {type_name} as a folder ({off:.1e})")


def check(name, root, egret, driver):
    kind, values = MODELS[name]
    torch.manual_seed(1)
    model = transformers.AutoModelForCausalLM.from_config(getattr(transformers, kind)(**values))
    model.save_pretrained(root / "model")
    write_tokenizer(root / "model")
    exact = {}
    for type_name, most in MOST.items():
        path = root / f"{type_name}.gguf"
        run(egret, "quantize", root / "model", path, "--type", type_name)
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
        check_folder(name, root, type_name, model, egret, driver)
    table = model.get_input_embeddings().weight.detach().numpy()
    assert numpy.array_equal(exact["token_embd.weight"], table), name


if __name__ == "__main__":
    for name in MODELS:
        with tempfile.TemporaryDirectory() as folder:
            check(name, pathlib.Path(folder), *sys.argv[1:])
