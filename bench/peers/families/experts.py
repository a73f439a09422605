"""Mixtures of experts, and weights and activations of few bits."""
import math

import torch
import torch.nn.functional as F

from families import program


def both(name):
    def register(forward):
        program(name)(forward)
        program(name + "_train", gradients="all")(lambda *t: forward(*t).square().mean())
        return forward
    return register


@both("experts/dense_top_2")
def dense(x, gate, up, down):
    logits = F.linear(x, gate)
    least = torch.topk(logits, 2).values[:, 1:]
    chances = logits.masked_fill(logits < least, -math.inf).softmax(-1)
    return ((F.silu(x @ up) @ down) * chances.t()[..., None]).sum(0)


@both("experts/dispatched")
def dispatched(x, gate, up, down):
    n, e = x.shape[0], gate.shape[0]
    chances = F.linear(x, gate).softmax(-1)
    mask = F.one_hot(chances.argmax(1), e).float()
    place = ((mask.cumsum(0) - 1) * mask).sum(1).long()
    slots = (place[:, None] == torch.arange(2 * n // e, device=x.device)).float()
    dispatch = mask[:, :, None] * slots[:, None]
    y = F.relu(torch.einsum("nec,nd->ecd", dispatch, x) @ up) @ down
    return torch.einsum("nec,ecd->nd", dispatch, y) * chances.amax(1, keepdim=True)


@program("experts/gathered")
def gathered(x, gate, up, down):
    best = torch.topk(F.linear(x, gate), 2)
    chances, total = best.values.softmax(-1), 0
    for i in range(2):
        expert = best.indices[:, i]
        total = total + (F.silu(x[:, None] @ up[expert]) @ down[expert])[:, 0] * chances[:, i:i + 1]
    return total


@program("experts/soft")
def soft(x, phi, up, down):
    logits = x @ phi
    slots = (logits.softmax(0).t() @ x).reshape(up.shape[0], -1, x.shape[1])
    return logits.softmax(1) @ (F.gelu(slots @ up) @ down).reshape(-1, x.shape[1])


@program("experts/balance_loss_train", gradients="all")
def balance(x, gate):
    chances = F.linear(x, gate).softmax(-1)
    used = F.one_hot(chances.argmax(1), gate.shape[0]).float().mean(0)
    return (used * chances.mean(0)).sum() * gate.shape[0]


program("quantized/int8_channels")(lambda x, w, s: F.linear(x, (w.float() - 128) * s))
program("quantized/int8_channels_bf16")(lambda x, w, s: F.linear(x, w.to(x.dtype) - 128) * s)


def int4(x, packed, scale):
    values = torch.stack([packed & 15, packed >> 4], -1).reshape(packed.shape[0], -1, 32).to(x.dtype) - 8
    return F.linear(x, (values * scale[..., None]).reshape(packed.shape[0], -1))


program("quantized/int4_groups")(int4)
program("quantized/int4_groups_bf16")(int4)


@program("quantized/table_of_16")
def table(x, packed, values, scale):
    codes = torch.stack([packed >> 4, packed & 15], -1).reshape(packed.shape[0], -1, 64)
    return F.linear(x, (values[codes.int()] * scale[..., None]).reshape(packed.shape[0], -1))


@program("quantized/ternary")
def ternary(x, w):
    scale = w.abs().mean() + 1e-5
    return F.linear(x, (w / scale).clamp(-1, 1).round()) * scale


def rounded(x):
    scale = x.abs().amax(1, keepdim=True) / 127 + 1e-8
    return torch.floor(x / scale + 0.5).to(torch.int8), scale


program("quantized/round_rows")(rounded)


@program("quantized/dynamic_int8")
def dynamic(x, w):
    q, scale = rounded(x)
    w = (w.to(torch.int16) - 127).to(torch.int8)
    return torch._int_mm(q, w.t()).float() * scale


@program("quantized/fake_train", gradients="all")
def fake(x, w):
    scale = w.detach().abs().amax(1, keepdim=True) / 7
    near = torch.floor(w / scale + 0.5).clamp(-7, 7) * scale
    return torch.tanh(F.linear(x, w + (near - w).detach())).square().mean()


@program("quantized/cache_int8")
def cache(q, k, v, scale):
    k, v = ((t.float() - 128) * scale for t in (k, v))
    return (q @ k.transpose(-1, -2) / math.sqrt(q.shape[-1])).softmax(-1) @ v
