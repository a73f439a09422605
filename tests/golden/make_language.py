#!/usr/bin/env python3
"""Makes tests/golden/language/*.json: logits and greedy continuations that transformers computes for small decoder-only models.

    pip install torch==2.13.0 transformers gguf safetensors   (CPU builds are enough)
    python3 tests/golden/make_language.py tests/golden/language

One file a model: its config.json as transformers saves it, the names and shapes of its tensors with a scale and an offset, the
names of the same tensors in GGUF, a seed, a prompt, the logits of all positions of the prompt in f32, and 64 tokens of greedy decoding.
Weights are no part of the files: both sides make them as offset + scale * numbers(count, seed), by the seed + the index of the
name in sorted order, by splitmix64.
"""
import json
import math
import os
import sys
import tempfile

import gguf
import numpy as np
import safetensors.numpy
import torch
import transformers

COMMON = dict(vocab_size=64, hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=4,
              num_key_value_heads=2, max_position_embeddings=128, bos_token_id=1, eos_token_id=2, pad_token_id=0)
FULL = {"rope_type": "default", "rope_theta": 10000.0}
SLIDING_FIRST = ["sliding_attention", "full_attention"]
# file name: (class of the config, its values beside COMMON, architecture of GGUF)
MODELS = {
    "llama": ("LlamaConfig", dict(num_key_value_heads=4, tie_word_embeddings=False, attention_bias=True, mlp_bias=True), "llama"),
    "llama_3": ("LlamaConfig", dict(tie_word_embeddings=True, rope_parameters={
        "rope_type": "llama3", "rope_theta": 500000.0, "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
        "original_max_position_embeddings": 64}), "llama"),
    "llama_linear": ("LlamaConfig", dict(tie_word_embeddings=False, rope_parameters={
        "rope_type": "linear", "rope_theta": 10000.0, "factor": 4.0}), "llama"),
    "llama_yarn": ("LlamaConfig", dict(tie_word_embeddings=False, rope_parameters={
        "rope_type": "yarn", "rope_theta": 10000.0, "factor": 4.0, "original_max_position_embeddings": 32}), "llama"),
    "llama_yarn_mscale": ("LlamaConfig", dict(tie_word_embeddings=False, rope_parameters={
        "rope_type": "yarn", "rope_theta": 10000.0, "factor": 4.0, "original_max_position_embeddings": 32, "mscale": 1.4,
        "mscale_all_dim": 0.6, "beta_fast": 16.0, "beta_slow": 2.0, "truncate": False}), "llama"),
    "llama_yarn_factor": ("LlamaConfig", dict(tie_word_embeddings=False, rope_parameters={
        "rope_type": "yarn", "rope_theta": 10000.0, "factor": 4.0, "original_max_position_embeddings": 32, "attention_factor": 0.8}),
        "llama"),
    "mistral": ("MistralConfig", dict(sliding_window=8, head_dim=16, tie_word_embeddings=False), "llama"),
    "qwen2": ("Qwen2Config", dict(tie_word_embeddings=True), "qwen2"),
    "qwen3": ("Qwen3Config", dict(head_dim=16, tie_word_embeddings=False), "qwen3"),
    "qwen3_moe": ("Qwen3MoeConfig", dict(head_dim=16, tie_word_embeddings=False, num_experts=4, num_experts_per_tok=2,
                                        moe_intermediate_size=24, norm_topk_prob=True, decoder_sparse_step=1), "qwen3moe"),
    "mixtral": ("MixtralConfig", dict(tie_word_embeddings=False, num_local_experts=4, num_experts_per_tok=2,
                                     sliding_window=None), "llama"),
    "gemma": ("GemmaConfig", dict(head_dim=16), "gemma"),
    "gemma2": ("Gemma2Config", dict(head_dim=16, sliding_window=8, query_pre_attn_scalar=32, attn_logit_softcapping=5.0,
                                   final_logit_softcapping=3.0, layer_types=SLIDING_FIRST), "gemma2"),
    "gemma3": ("Gemma3TextConfig", dict(head_dim=16, sliding_window=8, query_pre_attn_scalar=32, layer_types=SLIDING_FIRST,
                                       rope_parameters={
                                           "full_attention": {"rope_type": "linear", "rope_theta": 100000.0, "factor": 8.0},
                                           "sliding_attention": {"rope_type": "default", "rope_theta": 10000.0}}), "gemma3"),
    "phi3": ("Phi3Config", dict(tie_word_embeddings=False, sliding_window=8, original_max_position_embeddings=128), "phi3"),
    "phi3_long": ("Phi3Config", dict(
        tie_word_embeddings=False, original_max_position_embeddings=8, num_attention_heads=2, num_key_value_heads=2,
        rope_parameters={"rope_type": "longrope", "rope_theta": 10000.0, "partial_rotary_factor": 0.75,
                         "original_max_position_embeddings": 8,
                         "short_factor": [1.0, 1.1, 1.2, 1.3, 1.4, 1.5], "long_factor": [1.0, 1.5, 2.0, 2.5, 3.0, 4.0]}), "phi3"),
    "olmo2": ("Olmo2Config", dict(tie_word_embeddings=False), "olmo2"),
    "gpt2": ("GPT2Config", dict(n_embd=32, n_layer=2, n_head=4, n_positions=128, n_inner=None), "gpt2"),
}
SEEDS = {"llama": 2000, "qwen3": 2000}  # 1000 where two tokens are not almost as likely as each other
PROMPT = [1, 17, 5, 44, 23, 60, 9, 31, 12, 50, 3, 28]


def numbers(count, seed):
    """Uniform in [-1, 1), multiples of 2^-23."""
    with np.errstate(over="ignore"):
        z = np.uint64(seed) + np.uint64(0x9E3779B97F4A7C15) * np.arange(1, count + 1, dtype=np.uint64)
        z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        z ^= z >> np.uint64(31)
    return (z >> np.uint64(40)).astype(np.float64) / (1 << 23) - 1


def rule(name, shape, model):
    """Scale and offset of a tensor's numbers."""
    if len(shape) == 1:
        norm = "norm" in name or ".ln_" in name
        offset = 1 if norm and name.endswith("weight") and not model.startswith("gemma") else 0
        return (0.3 if norm else 0.2), offset
    inputs = shape[0] if model == "gpt2" and ".h." in name else shape[-1]
    # Larger than usual, so that the likeliest token stands out.
    gain = 2
    if "embed" in name or "wte" in name or "lm_head" in name:
        gain = 1 if model.startswith("gemma") else 4  # Gemma scales its embedding
    return round(gain * math.sqrt(3 / inputs), 6), 0


def described(shapes, gain):
    """Scale and offset of the tensors of a model whose linear layers are [out, in], by name."""
    rules = {}
    for name, shape in shapes.items():
        norm = ("norm" in name.lower() or ".ln" in name or ".bn" in name) and len(shape) == 1
        inputs = math.prod(shape[1:]) if len(shape) > 1 else 0
        scale = 0.3 if norm else 0.2 if not inputs else round(gain * math.sqrt(3 / inputs), 6)
        rules[name] = {"shape": shape, "scale": scale, "offset": 1 if norm and name.endswith(("weight", "var")) else 0}
    return rules


def filled(rules, seed):
    """The tensors that described() describes."""
    return {name: (rule["offset"] + rule["scale"] * numbers(math.prod(rule["shape"]), seed + k)).astype(np.float32).reshape(rule["shape"])
            for k, (name, rule) in enumerate(sorted(rules.items()))}


def gguf_names(arch, layers, tensors):
    known = gguf.get_tensor_name_map(gguf.MODEL_ARCH_NAMES_BY_NAME[arch], layers)
    names = {}
    for name in tensors:
        stem, _, kind = name.rpartition(".")
        if kind not in ("weight", "bias"):
            stem, kind = name, ""
        found = known.get_name(stem)
        if found is None:
            names[name] = None  # experts: one tensor of all of them
        else:
            names[name] = found + ("." + kind if kind else "")
    return names


def make(name, folder):
    config_class, values, arch = MODELS[name]
    common = {} if name == "gpt2" else COMMON
    special = dict(vocab_size=64, bos_token_id=1, eos_token_id=2) if name == "gpt2" else {}
    config = getattr(transformers, config_class)(**{**common, **special, **values})
    torch.manual_seed(0)
    with tempfile.TemporaryDirectory() as path:
        transformers.AutoModelForCausalLM.from_config(config).save_pretrained(path)
        file = os.path.join(path, "model.safetensors")
        tensors, described = {}, {}
        shapes = {key: list(value.shape) for key, value in safetensors.numpy.load_file(file).items()}
        for k, key in enumerate(sorted(shapes)):
            scale, offset = rule(key, shapes[key], name)
            count = math.prod(shapes[key])
            tensors[key] = (offset + scale * numbers(count, SEEDS.get(name, 1000) + k)).astype(np.float32).reshape(shapes[key])
            described[key] = {"shape": shapes[key], "scale": scale, "offset": offset}
        safetensors.numpy.save_file(tensors, file, metadata={"format": "pt"})
        saved = json.load(open(os.path.join(path, "config.json")))
        model = transformers.AutoModelForCausalLM.from_pretrained(path, dtype=torch.float32, attn_implementation="eager").eval()
        tokens, closest = list(PROMPT), math.inf
        with torch.no_grad():
            logits = model(torch.tensor([PROMPT])).logits[0]
            for _ in range(64):
                last = model(torch.tensor([tokens]), use_cache=False).logits[0, -1]
                best = torch.topk(last, 2).values
                closest = min(closest, float(best[0] - best[1]))
                tokens.append(int(torch.argmax(last)))
    largest = float(logits.abs().max())
    greedy = tokens[len(PROMPT):]
    print(f"{name:14} largest logit {largest:8.3f}  closest race {closest:.5f}  {len(set(greedy))} different tokens")
    if closest < 1e-3 * largest:
        print(f"{name}: two tokens are too close to tell apart by rounding")
    out = {"config": saved, "tensors": described, "seed": SEEDS.get(name, 1000), "gguf_architecture": arch,
           "gguf_names": gguf_names(arch, 2, shapes), "prompt": PROMPT,
           "logits": [float(f"{v:.6g}") for v in logits.flatten().tolist()], "greedy": greedy}
    with open(os.path.join(folder, name + ".json"), "w") as f:
        json.dump(out, f, separators=(",", ":"))
        f.write("\n")


if __name__ == "__main__":
    gguf.MODEL_ARCH_NAMES_BY_NAME = {value: key for key, value in gguf.MODEL_ARCH_NAMES.items()}
    for name in sys.argv[2:] or MODELS:
        make(name, sys.argv[1])
