"""Compares adapters with PEFT's.

usage: adapters.py EGRET ORACLE_LOGITS

EGRET is the command, ORACLE_LOGITS the program of logits_driver.cpp. For small models of several architectures with random weights that transformers
makes: `egret finetune --lora` trains an adapter; PEFT loads it and must give egret's logits, as must the folder that `egret merge` writes when
transformers loads it; an adapter that PEFT saves must give PEFT's logits in egret. Exit code 1 where one does not.
"""
import copy
import json
import pathlib
import subprocess
import sys
import tempfile

import peft
import torch
import transformers

from small_tokenizer import write_tokenizer

COMMON = dict(vocab_size=64, hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2,
              max_position_embeddings=128, bos_token_id=1, eos_token_id=2, pad_token_id=0)
# class of the configuration, its values, targets
MODELS = {
    "llama": ("LlamaConfig", dict(COMMON, tie_word_embeddings=False), "q,v,o,gate,down"),
    "qwen3": ("Qwen3Config", dict(COMMON, head_dim=16, tie_word_embeddings=True), "q,k,up"),
    "gemma2": ("Gemma2Config", dict(COMMON, head_dim=16, sliding_window=8), "q_proj,v_proj"),
    "phi3": ("Phi3Config", dict(COMMON, tie_word_embeddings=False), "qkv,gate_up,down"),
    "mixtral": ("MixtralConfig", dict(COMMON, num_local_experts=4, num_experts_per_tok=2), "q,w1,w2,w3"),
    "qwen3_moe": ("Qwen3MoeConfig", dict(COMMON, head_dim=16, num_experts=4, num_experts_per_tok=2, moe_intermediate_size=24), "k,gate,up,down"),
    "gpt2": ("GPT2Config", dict(vocab_size=64, n_embd=32, n_layer=2, n_head=4, n_positions=128, bos_token_id=1, eos_token_id=2), "c_attn,c_proj"),
}
IDS = [1, 9, 30, 12, 44, 8, 61, 17, 23, 5, 40, 33]


def run(*command):
    done = subprocess.run([str(part) for part in command], capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"adapters.py: {' '.join(map(str, command))}: {done.stderr}")
    return done.stdout


def logits_of(model):
    with torch.no_grad():
        return model.eval()(torch.tensor([IDS])).logits[0].float()


def expect_equal(a, b, what):
    off = float((a - b).abs().max() / b.abs().max())
    if not off <= 1e-4:
        sys.exit(f"adapters.py: {what}: off by {off:.2e} of the largest logit")
    print(f"ok: {what} ({off:.1e})")


def main():
    egret, driver = sys.argv[1:]

    def logits(folder, adapter):
        return torch.tensor(json.loads(run(driver, folder, adapter, *IDS))).reshape(len(IDS), -1)

    for name, (kind, values, targets) in MODELS.items():
        with tempfile.TemporaryDirectory() as temporary:
            root = pathlib.Path(temporary)
            torch.manual_seed(1)
            make = lambda folder: transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
            transformers.AutoModelForCausalLM.from_config(getattr(transformers, kind)(**values)).save_pretrained(root / "model")
            write_tokenizer(root / "model")
            words = ["cat", "dog", "sun", "moon", "tree"]
            with open(root / "data.jsonl", "w") as data:
                for a in words:
                    for b in words:
                        data.write(json.dumps({"messages": [{"role": "user", "content": f"{a} and {b}"},
                                                            {"role": "assistant", "content": f"{b} then {a}"}]}) + "\n")
            run(egret, "finetune", "--model", root / "model", "--data", root / "data.jsonl", "--out", root / "adapter", "--lora", 4, "--targets",
                targets, "--length", 64, "--steps", 10, "--lr", 0.01)
            ours = logits(root / "model", root / "adapter")
            theirs = peft.PeftModel.from_pretrained(make(root / "model"), root / "adapter")
            expect_equal(ours, logits_of(theirs), f"{name}: an adapter of egret in PEFT")
            if float((ours - logits(root / "model", "")).abs().max()) < 1e-3:
                sys.exit(f"adapters.py: {name}: the adapter changes nothing")
            run(egret, "merge", "--model", root / "model", "--adapter", root / "adapter", "--out", root / "merged")
            expect_equal(logits_of(make(root / "merged")), ours, f"{name}: the merged folder in transformers")
            config = peft.LoraConfig(r=3, lora_alpha=5, task_type="CAUSAL_LM", target_modules=theirs.peft_config["default"].target_modules,
                                     fan_in_fan_out=name == "gpt2", init_lora_weights=False, use_rslora=True)
            # Experts are parameters of one module; one of the two alone is stored under another name.
            parameters = [[f"experts.{p}" for p in some] for some in (("gate_up_proj", "down_proj"), ("gate_up_proj",), ("down_proj",))]
            for i, some in enumerate(parameters if "num_experts_per_tok" in values else [None]):
                config.target_parameters = some
                other = peft.get_peft_model(make(root / "model"), copy.deepcopy(config))
                other.save_pretrained(root / f"other{i}")
                expect_equal(logits(root / "model", root / f"other{i}"), logits_of(other), f"{name}: an adapter of PEFT in egret {some or ''}")


main()
