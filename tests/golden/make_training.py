#!/usr/bin/env python3
"""Makes training.json: what PyTorch computes for the models, optimizers and layers of the tests in tests/e2e/golden.

    python3 tests/golden/make_training.py tests/golden/training.json

Initial weights and data are no part of the file: both sides make them from numbers that splitmix64 gives (weights, data below).
Everything is computed in f64; "f32" holds the same curve in f32, to show how far rounding alone carries it. The residual network
is the one that it carries far: its norms over few values and its many kinks make it sensitive, so it is compared in f64, with
a learning rate that f32 has exactly.
"""
import json
import math
import sys

import torch
from torch import nn
import torch.nn.functional as F

MASK = (1 << 64) - 1


def splitmix(state):
    state = (state + 0x9E3779B97F4A7C15) & MASK
    z = state
    z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & MASK
    z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & MASK
    return state, z ^ (z >> 31)


def numbers(count, seed):
    """Uniform in [-1, 1), multiples of 2^-23."""
    out = []
    for _ in range(count):
        seed, z = splitmix(seed)
        out.append((z >> 40) / float(1 << 23) - 1.0)
    return out


def data(shape, seed):
    return torch.tensor(numbers(math.prod(shape), seed), dtype=torch.float64).reshape(shape)


def classes(shape, seed, most):
    return ((data(shape, seed) + 1) * 0.5 * most).floor().long()


def set_weights(module, seed):
    """Parameter k in the order of the module: numbers of seed 1000 seed + k over the root of its inputs; vectors get a tenth of
    them, plus 1 where they scale a norm."""
    for k, (name, p) in enumerate(module.named_parameters()):
        values = data(tuple(p.shape), 1000 * seed + k)
        if p.dim() >= 2:
            values = values * math.sqrt(3.0 / math.prod(p.shape[1:]))
        else:
            values = values * 0.1
            if "norm" in name or "bn" in name or name.split(".")[-2:] == ["1", "weight"] or ".downsample.1." in name:
                if name.endswith("weight"):
                    values = values + 1
        p.data = values.to(p.dtype)


def rounded(values):
    """As many digits as f32 comparisons need."""
    return [float("%.9g" % v) for v in values]


# --- models

class Block(nn.Module):
    def __init__(self, inputs, outputs, stride):
        super().__init__()
        self.conv1 = nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(outputs)
        self.conv2 = nn.Conv2d(outputs, outputs, 3, 1, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(outputs)
        self.downsample = None
        if stride != 1 or inputs != outputs:
            self.downsample = nn.Sequential(nn.Conv2d(inputs, outputs, 1, stride, bias=False), nn.BatchNorm2d(outputs))

    def forward(self, x):
        y = F.relu(self.bn1(self.conv1(x)))
        y = self.bn2(self.conv2(y))
        return F.relu(y + (x if self.downsample is None else self.downsample(x)))


class ResNet18(nn.Module):
    """The shape of He et al. (2016) with another base width."""

    def __init__(self, width, outputs):
        super().__init__()
        self.conv1 = nn.Conv2d(3, width, 7, 2, 3, bias=False)
        self.bn1 = nn.BatchNorm2d(width)
        inputs = width
        for i in range(4):
            layer = []
            for j in range(2):
                layer.append(Block(inputs, width << i, 2 if i > 0 and j == 0 else 1))
                inputs = width << i
            setattr(self, "layer%d" % (i + 1), nn.Sequential(*layer))
        self.fc = nn.Linear(inputs, outputs)

    def forward(self, x):
        x = F.max_pool2d(F.relu(self.bn1(self.conv1(x))), 3, 2, 1)
        x = self.layer4(self.layer3(self.layer2(self.layer1(x))))
        return self.fc(F.adaptive_avg_pool2d(x, 1).flatten(1))


class LstmTagger(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(11, 8)
        self.lstm = nn.LSTM(8, 12, num_layers=2, batch_first=True, bidirectional=True)
        self.out = nn.Linear(24, 5)

    def forward(self, x):
        return self.out(self.lstm(self.embedding(x))[0])


class EncoderTagger(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(11, 16)
        layer = nn.TransformerEncoderLayer(16, 4, 32, dropout=0.0, batch_first=True)
        self.encoder = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.out = nn.Linear(16, 5)

    def forward(self, x):
        return self.out(self.encoder(self.embedding(x)))


class Gpt(nn.Module):
    def __init__(self):
        super().__init__()
        self.token_embedding = nn.Embedding(11, 16)
        self.position_embedding = nn.Embedding(8, 16)
        self.blocks = nn.ModuleList(
            nn.TransformerEncoderLayer(16, 4, 64, dropout=0.0, activation=lambda x: F.gelu(x, approximate="tanh"),
                                       batch_first=True, norm_first=True) for _ in range(2))
        self.norm = nn.LayerNorm(16)
        self.head = nn.Linear(16, 11, bias=False)

    def forward(self, tokens):
        n = tokens.shape[1]
        x = self.token_embedding(tokens) + self.position_embedding.weight[:n]
        mask = nn.Transformer.generate_square_subsequent_mask(n, dtype=x.dtype)
        for block in self.blocks:
            x = block(x, src_mask=mask, is_causal=True)
        return self.head(self.norm(x))


STEPS = 50


def curve(make, seed, optimizer, inputs, targets, dtype):
    model = make().to(dtype)
    set_weights(model, seed)
    model.train()
    opt = optimizer(model.parameters())
    losses = []
    for i in range(STEPS):
        x, y = inputs(i), targets(i)
        logits = model(x.to(dtype) if x.is_floating_point() else x)
        loss = F.cross_entropy(logits.reshape(-1, logits.shape[-1]), y.reshape(-1))
        opt.zero_grad()
        loss.backward()
        opt.step()
        losses.append(loss.item())
    return losses


def both(*arguments):
    return {"f64": rounded(curve(*arguments, torch.float64)), "f32": rounded(curve(*arguments, torch.float32))}


def models():
    words = [classes((4, 9), 50 + i, 11) for i in range(4)]
    images = [data((16, 3, 32, 32), 70 + i) for i in range(4)]
    return {
        "resnet18": both(lambda: ResNet18(4, 5), 1, lambda p: torch.optim.SGD(p, lr=2.0 ** -11, momentum=0.9, weight_decay=1e-3),
                         lambda i: images[i % 4], lambda i: classes((16,), 80 + i % 4, 5)),
        "lstm": both(LstmTagger, 2, lambda p: torch.optim.Adam(p, lr=0.01), lambda i: words[i % 4],
                     lambda i: words[i % 4].flip(1) % 5),
        "encoder": both(EncoderTagger, 3, lambda p: torch.optim.AdamW(p, lr=0.003), lambda i: words[i % 4],
                        lambda i: words[i % 4].flip(1) % 5),
        "gpt": both(Gpt, 4, lambda p: torch.optim.AdamW(p, lr=0.003, weight_decay=0.1), lambda i: words[i % 4][:, :8],
                    lambda i: words[i % 4][:, 1:]),
    }


# --- optimizers: Σ p⁴/4 - p, whose gradient is p³ - 1, for a matrix and a vector

def path(make):
    matrix = nn.Parameter(data((3, 2), 5) * 2)
    vector = nn.Parameter(data((4,), 6) * 2)
    opt = make([matrix, vector])
    rows = []
    for _ in range(20):
        for p in (matrix, vector):
            p.grad = p.detach() ** 3 - 1
        opt.step()
        rows += matrix.detach().flatten().tolist() + vector.detach().tolist()
    return rounded(rows)


def optimizers():
    o = torch.optim
    found = {
        "sgd": path(lambda p: o.SGD(p, lr=0.05, momentum=0.8, weight_decay=0.1, nesterov=True)),
        "adam": path(lambda p: o.Adam(p, lr=0.05, betas=(0.8, 0.95), weight_decay=0.3)),
        "adamw": path(lambda p: o.AdamW(p, lr=0.05, betas=(0.8, 0.95), weight_decay=0.3)),
        "adagrad": path(lambda p: o.Adagrad(p, lr=0.2, lr_decay=0.1, weight_decay=0.05, initial_accumulator_value=0.5)),
        "rmsprop": path(lambda p: o.RMSprop(p, lr=0.02, alpha=0.9, weight_decay=0.1, momentum=0.7)),
        "rmsprop_centered": path(lambda p: o.RMSprop(p, lr=0.01, alpha=0.8, eps=1e-2, momentum=0.5, centered=True)),
        "groups": path(lambda p: o.AdamW([{"params": p[:1]}, {"params": p[1:], "lr": 0.005, "weight_decay": 0.0}], lr=0.05)),
    }
    return found


def schedules():
    def rates(make, steps):
        opt = torch.optim.SGD([nn.Parameter(torch.zeros(1))], lr=1.0)
        schedule = make(opt)
        out = []
        for _ in range(steps):
            out.append(opt.param_groups[0]["lr"])
            opt.step()
            schedule.step()
        return rounded(out)

    s = torch.optim.lr_scheduler
    opt = torch.optim.SGD([nn.Parameter(torch.zeros(1))], lr=1.0)
    plateau = s.ReduceLROnPlateau(opt, factor=0.5, patience=2, threshold=0.01, cooldown=1, min_lr=0.05)
    measured, seen = [], []
    for i in range(60):
        measured.append(round(1 / (1 + i // 4) + 0.3 * ((i * 7) % 5 == 0), 6))
        plateau.step(measured[-1])
        seen.append(opt.param_groups[0]["lr"])
    return {
        "one_cycle": rates(lambda o: s.OneCycleLR(o, max_lr=0.5, total_steps=40), 40),
        "step": rates(lambda o: s.StepLR(o, 7, 0.3), 30),
        "exponential": rates(lambda o: s.ExponentialLR(o, 0.9), 30),
        "linear": rates(lambda o: s.LinearLR(o, 1.0, 0.25, 20), 30),
        "plateau_measured": measured,
        "plateau": rounded(seen),
    }


# --- layers: outputs, and the gradient of their sum of cubes with respect to the input

def layer(module, seed, *inputs, **options):
    module = module.double()
    set_weights(module, seed)
    x = inputs[0].requires_grad_()
    out = module(*inputs, **options)
    parts = []
    for part in out if isinstance(out, tuple) else (out,):
        parts += part if isinstance(part, tuple) else [part]
    sum((part ** 3).sum() for part in parts if part is not None).backward()
    return {"out": rounded(torch.cat([p.detach().flatten() for p in parts if p is not None]).tolist()),
            "grad": rounded(x.grad.flatten().tolist())}


class Flat(nn.Module):
    """An output without the weights that MultiheadAttention gives beside it."""

    def __init__(self, module):
        super().__init__()
        self.module = module

    def forward(self, *inputs, **options):
        return self.module(*inputs, need_weights=False, **options)[0]


def layers():
    x, memory = data((2, 5, 4), 7), data((2, 3, 4), 8)
    image, volume, line = data((2, 4, 6, 5), 9), data((1, 4, 3, 4, 3), 10), data((2, 4, 9), 11)
    hidden = torch.tensor([[True, False, True], [False, True, True], [True, True, True], [False, False, True], [True, False, False]])
    found = {
        "rnn": layer(nn.RNN(4, 3, 2, batch_first=True), 11, x.clone()),
        "rnn_relu": layer(nn.RNN(4, 3, 1, nonlinearity="relu", batch_first=True, bidirectional=True), 12, x.clone()),
        "gru": layer(nn.GRU(4, 3, 2, batch_first=True, bidirectional=True), 13, x.clone()),
        "lstm": layer(nn.LSTM(4, 3, 2, batch_first=True, bidirectional=True), 14, x.clone()),
        "lstm_from": layer(nn.LSTM(4, 3, 1, batch_first=True), 15, x.clone(), (data((1, 2, 3), 16), data((1, 2, 3), 17))),
        "attention": layer(Flat(nn.MultiheadAttention(4, 2, batch_first=True)), 18, x.clone(), memory, memory),
        "attention_mask": layer(Flat(nn.MultiheadAttention(4, 2, batch_first=True)), 19, x.clone(), memory, memory, attn_mask=~hidden),
        "encoder_post": layer(nn.TransformerEncoderLayer(4, 2, 6, 0.0, batch_first=True), 20, x.clone()),
        "encoder_pre": layer(nn.TransformerEncoderLayer(4, 2, 6, 0.0, F.gelu, batch_first=True, norm_first=True), 21, x.clone()),
        "decoder_post": layer(nn.TransformerDecoderLayer(4, 2, 6, 0.0, batch_first=True), 22, x.clone(), memory,
                              tgt_mask=nn.Transformer.generate_square_subsequent_mask(5, dtype=torch.float64)),
        "decoder_pre": layer(nn.TransformerDecoderLayer(4, 2, 6, 0.0, batch_first=True, norm_first=True), 23, x.clone(), memory,
                             tgt_mask=nn.Transformer.generate_square_subsequent_mask(5, dtype=torch.float64)),
        "conv1d": layer(nn.Conv1d(4, 6, 3, 2, 1, 2, groups=2), 24, line.clone()),
        "conv2d": layer(nn.Conv2d(4, 6, (3, 2), (2, 1), (1, 0)), 25, image.clone()),
        "conv3d": layer(nn.Conv3d(4, 2, 2), 26, volume.clone()),
        "conv_transpose1d": layer(nn.ConvTranspose1d(4, 6, 3, 2, 1, 1, groups=2), 27, line.clone()),
        "conv_transpose2d": layer(nn.ConvTranspose2d(4, 3, 3, 2, 1, 1), 28, image.clone()),
        "group_norm": layer(nn.GroupNorm(2, 4), 29, image.clone()),
        "instance_norm": layer(nn.InstanceNorm2d(4, affine=True), 30, image.clone()),
    }
    norm = nn.BatchNorm2d(4).double()
    found["batch_norm"] = layer(norm, 31, image.clone())
    norm(image * 2 + 1)
    norm.eval()
    found["batch_norm_running"] = rounded(norm.running_mean.tolist() + norm.running_var.tolist() +
                                          norm(image).detach().flatten().tolist())
    return found


if __name__ == "__main__":
    torch.manual_seed(0)
    torch.use_deterministic_algorithms(True)
    out = {"torch": torch.__version__, "models": models(), "optimizers": optimizers(), "schedules": schedules(), "layers": layers()}
    with open(sys.argv[1], "w") as f:
        json.dump(out, f, separators=(",", ":"))
        f.write("\n")
