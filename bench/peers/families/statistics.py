"""Norms with gradients, and statistics over any axes."""
import torch
import torch.nn.functional as F

from families import program


def against_last(name, count, forward):
    program("statistics/" + name + "_train", gradients=range(count))(lambda *t: (forward(*t[:-1]) * t[-1]).mean())


against_last("batch_norm", 3, lambda x, w, b: F.batch_norm(x, None, None, w, b, training=True))
against_last("group_norm", 3, lambda x, w, b: F.group_norm(x, 4, w, b))
against_last("instance_norm", 3, lambda x, w, b: F.instance_norm(x, None, None, w, b))
against_last("norm_of_channels", 3, lambda x, w, b: F.layer_norm(x.permute(0, 2, 3, 1), w.shape, w, b, 1e-6).permute(0, 3, 1, 2))
against_last("weight_norm", 3, lambda x, w, g: F.linear(x, w * (g / torch.linalg.vector_norm(w, dim=1))[:, None]))
for end in ("", "_bf16"):
    program("statistics/layer_norm_train" + end, gradients=(0, 1, 2))(lambda x, w, b, y: (F.layer_norm(x, w.shape, w, b) * y).mean())
    program("statistics/rms_norm_train" + end, gradients=(0, 1))(lambda x, w, y: (F.rms_norm(x, w.shape, w, 1e-6) * y).mean())
program("statistics/variance_mixed_axes")(lambda a: (a.var((0, 2)), a.mean((1, 3))))
program("statistics/logsumexp_middle")(lambda a: a.logsumexp(1))
program("statistics/logcumsumexp")(lambda a: a.logcumsumexp(1))
program("statistics/softmax_first_axis")(lambda a: a.softmax(0))
program("statistics/cumulative_product")(lambda a: (a.cumprod(1), a.cumsum(0)))
program("statistics/all_axes_sums")(lambda a: (a.sum(), a.sum(0), a.sum(1), a.sum(2), a.amax((0, 1)), a.amin((1, 2))))
program("statistics/cdist")(torch.cdist)
program("statistics/manhattan")(lambda a, b: torch.cdist(a, b, p=1.0))
program("statistics/correlation")(torch.corrcoef)


@program("statistics/add_norm_chain")
def add_norm(a, b, w):
    x = a + b
    y = F.rms_norm(x, w.shape, w, 1e-6)
    return x, y, y.softmax(-1)


@program("statistics/skew_kurtosis")
def skew(a):
    z = (a - a.mean(0)) / a.std(0)
    return (z ** 3).mean(0), (z ** 4).mean(0) - 3


@program("statistics/robust_scale")
def robust(a):
    z = ((a - a.mean(0)) / (a.std(0) + 1e-6)).clamp(-1.5, 1.5)
    return z, z.abs().max(), (z.abs() >= 1.5).sum(0)


@program("statistics/entropies")
def entropies(a):
    chances = a.softmax(-1)
    each, mean = -(chances * torch.log(chances + 1e-9)).sum(-1), chances.mean(0)
    return each, -(mean * torch.log(mean + 1e-9)).sum() - each.mean()


@program("statistics/cummax_drawdown")
def drawdown(a):
    wealth = a.cumsum(1).exp()
    return (1 - wealth / wealth.cummax(1).values).amax(1)


@program("statistics/exponential_average")
def average(a):
    m = a[:, 0]
    result = [m]
    for i in range(1, a.shape[1]):
        m = m * 0.9 + a[:, i] * 0.1
        result.append(m)
    return torch.stack(result, 1)


@program("statistics/gaussian_kernel_train", gradients="all")
def gaussian_kernel(a, b, w):
    d = a.square().sum(1, keepdim=True) + b.square().sum(1) - a @ b.t() * 2
    return (torch.exp(d * -0.1) @ w).square().mean()


@program("statistics/covariance")
def covariance(a):
    x = a - a.mean(0)
    return x.t() @ x / (a.shape[0] - 1)


@program("statistics/whitening")
def whitening(a):
    x = a - a.mean(0)
    one = torch.eye(x.shape[1], device=x.device)
    c = x.t() @ x / x.shape[0] + one * 1e-3
    size = c.trace()
    y, z = c / size, one
    for _ in range(8):
        w = (one * 3 - z @ y) * 0.5
        y, z = y @ w, w @ z
    return x @ (z / torch.sqrt(size))
