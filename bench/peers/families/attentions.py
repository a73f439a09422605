"""Variants of attention, by scaled_dot_product_attention where it can."""
import math

import torch
import torch.nn.functional as F

from families import program

sdpa = F.scaled_dot_product_attention


def both(name, by=3, forward_too=True):
    def register(forward):
        if forward_too:
            program(name)(forward)
        program(name + "_train", gradients=range(by))(lambda *t: forward(*t).square().mean())
        return forward
    return register


def line(q):
    return torch.arange(q.shape[2], device=q.device)


def causal(q, k, v):
    return sdpa(q, k, v, is_causal=True)


both("attention/causal")(causal)
both("attention/causal_bf16")(causal)
both("attention/cross")(sdpa)
program("attention/head_80")(causal)
program("attention/head_96_bf16_train", gradients="all")(lambda *t: causal(*t).square().mean())
both("attention/grouped_bf16")(lambda q, k, v: sdpa(q, k, v, is_causal=True, enable_gqa=True))


@both("attention/alibi")
def alibi(q, k, v):
    heads, n = q.shape[1:3]
    slopes = torch.exp2((torch.arange(heads, device=q.device) + 1) * (-8.0 / heads))
    at = line(q)
    distance = at[None] - at[:, None]
    bias = (slopes[:, None, None] * distance).masked_fill(distance > 0, -math.inf)
    return sdpa(q, k, v, attn_mask=bias[None])


@both("attention/sliding_window")
def sliding(q, k, v):
    back = line(q)[:, None] - line(q)[None]
    return sdpa(q, k, v, attn_mask=(back >= 0) & (back < q.shape[2] // 4))


@both("attention/softcap")
def softcap(q, k, v):
    s = torch.tanh(q @ k.transpose(-1, -2) / math.sqrt(q.shape[-1]) / 30) * 30
    return s.masked_fill(line(q)[None] > line(q)[:, None], -math.inf).softmax(-1) @ v


@both("attention/documents")
def documents(q, k, v, begins):
    number = begins.cumsum(1)
    same = (number[:, :, None] == number[:, None]) & (line(q)[None] <= line(q)[:, None])
    return sdpa(q, k, v, attn_mask=same[:, None])


def relative(q, k, v, table):
    index = line(q)[None] - line(q)[:, None] + (q.shape[2] - 1)
    return sdpa(q, k, v, attn_mask=table[:, index][None])


both("attention/relative_bias", 4, False)(relative)
program("attention/windows_of_49")(relative)


@both("attention/linear")
def linear(q, k, v):
    q, k = F.elu(q) + 1, F.elu(k) + 1
    return q @ (k.transpose(-1, -2) @ v) / (q @ k.sum(2)[..., None] + 1e-6)


@program("attention/causal_linear")
def causal_linear(q, k, v):
    q, k = F.elu(q) + 1, F.elu(k) + 1
    state = (k[..., None] * v[..., None, :]).cumsum(2)
    return (q[..., None] * state).sum(-2) / ((q * k.cumsum(2)).sum(-1, keepdim=True) + 1e-6)


@program("attention/latent")
def latent(q, c, wk, wv):
    return causal(q, c[:, None] @ wk, c[:, None] @ wv)


def decode(q, k, v, k1, v1, lengths):
    k, v = torch.cat([k, k1], 2), torch.cat([v, v1], 2)
    place = torch.arange(k.shape[2], device=q.device)
    counts = (place < lengths[:, None]) | (place == k.shape[2] - 1)
    return sdpa(q, k, v, attn_mask=counts[:, None, None], enable_gqa=True)


program("attention/decode")(decode)
program("attention/decode_grouped_bf16")(decode)


def rope(a):
    half = a.shape[-1] // 2
    rate = 10000.0 ** (torch.arange(half, device=a.device) / -half)
    angle = line(a)[:, None] * rate
    c, s = angle.cos(), angle.sin()
    x, y = a.float().chunk(2, -1)
    return torch.cat([x * c - y * s, y * c + x * s], -1).to(a.dtype)


def block(x, norm1, qkv, out, norm2, up, down):
    b, n, d = x.shape
    q, k, v = (t.reshape(b, n, 4, d // 4).transpose(1, 2) for t in F.linear(F.rms_norm(x, (d,), norm1, 1e-6), qkv).chunk(3, 2))
    a = causal(rope(q), rope(k), v)
    x = x + F.linear(a.transpose(1, 2).reshape(b, n, d), out)
    return x + F.linear(F.gelu(F.linear(F.rms_norm(x, (d,), norm2, 1e-6), up)), down)


both("attention/block", 7)(block)
both("attention/block_bf16", 7)(block)
