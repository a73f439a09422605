#!/usr/bin/env python3
"""Makes tests/golden/images/*.json: logits that timm and transformers compute for small networks over images.

    pip install torch==2.13.0 transformers==5.23.0 safetensors timm==1.0.31 pillow   (CPU builds are enough)
    python3 tests/golden/make_images.py tests/golden/images

One file a model: its config.json as the hub has it, the names and shapes of its tensors (filled as make_language.py says), and the logits
of two images that are numbers of a seed. resize.json has what Pillow makes of an image in other sizes.
"""
import importlib.abc
import importlib.machinery
import json
import os
import sys
import tempfile
import types

import numpy as np
import safetensors.numpy
import torch
import transformers
from PIL import Image

from make_language import filled, numbers, described


class AbsentType(type):
    def __getattr__(cls, name):
        if name.startswith("__"):
            raise AttributeError(name)
        return f"{cls.__name__}.{name}"


class Absent(types.ModuleType):
    """Stands in for torchvision, which needs another build of PyTorch: timm names parts of it, and these models use none."""
    __path__ = []

    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        return AbsentType(name, (), {})


class FindAbsent(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    def find_spec(self, name, path, target=None):
        return importlib.machinery.ModuleSpec(name, self, is_package=True) if name.split(".")[0] == "torchvision" else None

    def create_module(self, spec):
        return Absent(spec.name)

    def exec_module(self, module):
        pass


transformers.ViTForImageClassification  # imported without torchvision, before there seems to be one
sys.meta_path.append(FindAbsent())
import timm  # noqa: E402

SEED = 5000
VIT = dict(hidden_size=24, num_hidden_layers=2, num_attention_heads=4, intermediate_size=40, image_size=32, patch_size=8, num_labels=5,
           id2label={i: f"kind {i}" for i in range(5)}, label2id={f"kind {i}": i for i in range(5)})
# file name: (name of the model in timm, its arguments, size of images)
TIMM = {
    "resnet18": ("resnet18", dict(layers=[1, 1, 2, 1], channels=[8, 16, 24, 32]), 64),
    "resnet50": ("resnet50", dict(layers=[1, 2, 1, 1], channels=[4, 8, 12, 16]), 64),
    "resnext50": ("resnext50_32x4d", dict(layers=[1, 1, 1, 1], channels=[16, 16, 16, 16]), 64),
    "convnext_tiny": ("convnext_tiny", dict(depths=[1, 1, 2, 1], dims=[8, 16, 24, 32]), 64),
    "convnext_atto": ("convnext_atto", dict(depths=[1, 1, 1, 1], dims=[8, 16, 24, 32]), 64),
    "convnextv2_tiny": ("convnextv2_tiny", dict(depths=[1, 1, 1, 1], dims=[8, 16, 24, 32]), 64),
    "vit_timm": ("vit_tiny_patch16_224", dict(img_size=64, embed_dim=24, depth=2, num_heads=3), 64),
}


def images(size):
    return numbers(2 * 3 * size * size, SEED - 1).astype(np.float32).reshape(2, 3, size, size)


def rounded(tensor):
    return [float(f"{v:.6g}") for v in np.asarray(tensor).flatten().tolist()]


def save(folder, name, config, rules, size, logits):
    print(f"{name:16} largest logit {float(logits.abs().max()):8.3f}")
    with open(os.path.join(folder, name + ".json"), "w") as f:
        json.dump({"config": config, "tensors": rules, "seed": SEED, "size": size, "logits": rounded(logits)}, f, separators=(",", ":"))
        f.write("\n")


def rules_of(model):
    """Of a state_dict: numbers of batches stay 0."""
    shapes = {key: list(value.shape) for key, value in model.state_dict().items()}
    rules = described(shapes, 1.5)
    for name, rule in rules.items():
        if name.endswith("num_batches_tracked"):
            rule["dtype"] = "i64"
        elif name.endswith("running_var") or (name.endswith("weight") and len(rule["shape"]) == 1):
            rule.update(scale=0.3, offset=1)
    return rules


def make_timm(name, folder):
    architecture, arguments, size = TIMM[name]
    model = timm.create_model(architecture, num_classes=5, **arguments).eval()
    rules = rules_of(model)
    tensors = filled({k: r for k, r in rules.items() if "dtype" not in r}, SEED)
    state = model.state_dict()
    state.update({k: torch.from_numpy(v) for k, v in tensors.items()})
    model.load_state_dict(state)
    config = {"architecture": architecture, "num_classes": 5, "num_features": model.num_features, "global_pool": "avg",
              "model_args": arguments,
              "pretrained_cfg": {"tag": "a_in1k", "custom_load": False, "input_size": [3, size, size], "fixed_input_size": False,
                                 "interpolation": "bicubic", "crop_pct": 0.875, "crop_mode": "center", "mean": [0.485, 0.456, 0.406],
                                 "std": [0.229, 0.224, 0.225], "num_classes": 5, "pool_size": [2, 2], "first_conv": "conv1",
                                 "classifier": "fc"}}
    with torch.no_grad():
        save(folder, name, config, rules, size, model(torch.from_numpy(images(size))))


def make_vit(folder):
    torch.manual_seed(0)
    with tempfile.TemporaryDirectory() as path:
        transformers.ViTForImageClassification(transformers.ViTConfig(**VIT)).save_pretrained(path)
        file = os.path.join(path, "model.safetensors")
        rules = described({key: list(value.shape) for key, value in safetensors.numpy.load_file(file).items()}, 1.5)
        safetensors.numpy.save_file(filled(rules, SEED), file, metadata={"format": "pt"})
        config = json.load(open(os.path.join(path, "config.json")))
        model = transformers.ViTForImageClassification.from_pretrained(path, dtype=torch.float32, attn_implementation="eager").eval()
    with torch.no_grad():
        save(folder, "vit", config, rules, 32, model(torch.from_numpy(images(32))).logits)


def make_resize(folder):
    picture = ((numbers(21 * 34 * 3, 7) + 1) * 127.99).astype(np.uint8).reshape(21, 34, 3)
    cases = []
    for kind in ("bilinear", "bicubic"):
        for width, height in [(13, 9), (50, 40), (34, 10)]:
            resized = Image.fromarray(picture).resize((width, height), getattr(Image.Resampling, kind.upper()))
            cases.append({"kind": kind, "width": width, "height": height, "pixels": np.asarray(resized).flatten().tolist()[::5]})
    with open(os.path.join(folder, "resize.json"), "w") as f:
        json.dump(cases, f, separators=(",", ":"))
        f.write("\n")


if __name__ == "__main__":
    for name in TIMM:
        make_timm(name, sys.argv[1])
    make_vit(sys.argv[1])
    make_resize(sys.argv[1])
