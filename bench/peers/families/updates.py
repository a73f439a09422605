"""Optimizers' updates of many tensors, by the functions that take all of them at once."""
import torch

from families import program


def columns(t, count):
    n = len(t) // count
    return [list(t[i * n:(i + 1) * n]) for i in range(count)]


@program("update/sgd_momentum")
def sgd_momentum(*t):
    p, g, v = columns(t, 3)
    v = torch._foreach_add(torch._foreach_add(torch._foreach_mul(v, 0.9), g), p, alpha=1e-4)
    return (*torch._foreach_add(p, v, alpha=-0.01), *v)


def adam_by(t, factor):
    p, g, m, v = columns(t, 4)
    if factor is not None:
        g = torch._foreach_mul(g, factor)
    m = torch._foreach_add(torch._foreach_mul(m, 0.9), g, alpha=0.1)
    v = torch._foreach_addcmul(torch._foreach_mul(torch._foreach_abs(v), 0.999), g, g, value=0.001)
    below = torch._foreach_add(torch._foreach_sqrt(torch._foreach_div(v, 0.002)), 1e-8)
    p = torch._foreach_addcdiv(torch._foreach_mul(p, 1 - 1e-5), torch._foreach_div(m, 0.19), below, value=-1e-3)
    return (*p, *m, *v)


def norm_of(tensors):
    return torch.linalg.vector_norm(torch.stack(torch._foreach_norm(tensors)))


program("update/adam")(lambda *t: adam_by(t, None))
program("update/adam_clipped")(lambda *t: adam_by(t, (1 / (norm_of(columns(t, 4)[1]) + 1e-6)).clamp(max=1.0)))


@program("update/clip_by_norm")
def clip_by_norm(*t):
    norm = norm_of(list(t))
    return (norm, *torch._foreach_mul(list(t), (1 / (norm + 1e-6)).clamp(max=1.0)))


@program("update/clip_each")
def clip_each(*t):
    factors = [(0.5 / (n + 1e-6)).clamp(max=1.0) for n in torch._foreach_norm(list(t))]
    return tuple(torch._foreach_mul(list(t), factors))


@program("update/average")
def average(*t):
    return tuple(torch._foreach_lerp(*columns(t, 2), 0.001))


@program("update/lion")
def lion(*t):
    p, g, m = columns(t, 3)
    way = torch._foreach_sign(torch._foreach_add(torch._foreach_mul(m, 0.9), g, alpha=0.1))
    return (*torch._foreach_add(p, way, alpha=-1e-4), *torch._foreach_add(torch._foreach_mul(m, 0.99), g, alpha=0.01))


@program("update/unscale_bf16")
def unscale(*t):
    p, g = columns(t, 2)
    finite = torch.stack([torch.isfinite(each).all() for each in g]).all()
    return (finite, *(torch.where(finite, a - b.float() * (0.1 / 1024), a) for a, b in zip(p, g)))


@program("update/norm_ratios")
def norm_ratios(*t):
    p, g = columns(t, 2)
    norms = zip(torch._foreach_norm(p), torch._foreach_norm(g))
    ratios = [a / (b + 1e-4 * a + 1e-9) * -1e-3 for a, b in norms]
    return tuple(torch._foreach_add(p, torch._foreach_mul(g, ratios)))
