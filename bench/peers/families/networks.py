"""Small networks of linear layers, with a step of training."""
import math

import torch
import torch.nn.functional as F

from families import program


def mlp(x, target, *weights):
    for i in range(0, len(weights), 2):
        x = F.linear(x, weights[i], weights[i + 1])
        if i + 2 < len(weights):
            x = F.relu(x)
    return F.cross_entropy(x.float(), target)


def step(inputs, loss, gradients):
    return (loss, *torch._foreach_add(list(inputs[2:]), list(gradients), alpha=-0.1))


for name in ("mlp_step", "mlp_step_bf16", "deep_narrow_step", "tiny_step"):
    program("network/" + name, gradients="weights", update=step)(mlp)


@program("network/swiglu_bf16_train", gradients="all")
def swiglu(x, a, b, c):
    return F.linear(F.silu(F.linear(x, a)) * F.linear(x, b), c).square().mean()


@program("network/autoencoder_train", gradients=(1, 2, 3, 4))
def autoencoder(x, a, b, c, d):
    z = F.linear(F.gelu(F.linear(x, a)), b)
    return F.mse_loss(F.linear(F.gelu(F.linear(z, c)), d), x) + z.abs().mean() * 0.01


@program("network/ensemble_train", gradients=(1, 2, 3))
def ensemble(x, w, b, v, y):
    return F.mse_loss(torch.tanh(torch.baddbmm(b, x, w)) @ v, y)


@program("network/mixer_block")
def mixer(x, norm1, a, b, norm2, c, d):
    mixed = F.linear(F.gelu(F.linear(F.layer_norm(x, norm1.shape, norm1).transpose(1, 2), a)), b)
    x = x + mixed.transpose(1, 2)
    return x + F.linear(F.gelu(F.linear(F.layer_norm(x, norm2.shape, norm2), c)), d)


@program("network/radiance_field")
def radiance(x, a, b, c):
    features = [x]
    for i in range(10):
        features += [torch.sin(x * (math.pi * 2 ** i)), torch.cos(x * (math.pi * 2 ** i))]
    y = F.linear(F.relu(F.linear(F.relu(F.linear(torch.cat(features, 1), a)), b)), c)
    return torch.sigmoid(y[:, :3]), F.relu(y[:, 3:])


@program("network/sine_layers_train", gradients=(1, 2, 3))
def sines(x, a, b, c, y):
    return F.mse_loss(F.linear(torch.sin(F.linear(torch.sin(F.linear(x, a) * 10), b)), c), y)


@program("network/point_sets")
def point_sets(x, a, b, c, mask):
    h = F.relu(F.linear(F.relu(F.linear(x, a)), b))
    return F.linear(h.masked_fill(mask[..., None] != 1, 0).amax(1), c).log_softmax(-1)


def recommend(x, index, table, w, v, _):
    dense, fields = F.relu(F.linear(x, w)), index.shape[1]
    at = index + torch.arange(fields, device=x.device) * (table.shape[0] // fields)
    every = torch.cat([dense[:, None], F.embedding(at, table)], 1)
    pairs = torch.tril_indices(fields + 1, fields + 1, -1, device=x.device)
    chosen = (every @ every.transpose(1, 2))[:, pairs[0], pairs[1]]
    return F.linear(torch.cat([dense, chosen], 1), v)[:, 0]


program("network/recommender")(lambda *t: torch.sigmoid(recommend(*t)))
program("network/recommender_train", gradients=(2, 3, 4))(
    lambda *t: F.binary_cross_entropy_with_logits(recommend(*t), t[5].float()))
