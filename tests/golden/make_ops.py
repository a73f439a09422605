#!/usr/bin/env python3
"""Makes ops.json: what PyTorch computes for the functions whose meaning is easily got wrong; tests/e2e/golden/ops_test.cpp has
the same calls.

    python3 tests/golden/make_ops.py tests/golden/ops.json

Operands are no part of the file: both sides make them from numbers that splitmix64 gives, as for training.json. Everything is f64.
A case holds its results, and the gradient of the sum of their squares for the first operand where it has one.
"""
import json
import sys

import torch
import torch.nn.functional as F

from make_training import classes, data

cases = {}


def flat(t):
    return [float(f"{v:.12g}") if v == v and abs(v) != float("inf") else str(v) for v in t.detach().double().flatten().tolist()]


def case(name, function, *operands, gradient=True):
    if gradient:
        operands[0].requires_grad_()
    out = function(*operands)
    outs = list(out) if isinstance(out, (tuple, list)) else [out]
    row = {"out": [flat(t) for t in outs]}
    if gradient:
        sum((t * t).sum() for t in outs if t.is_floating_point()).backward()
        row["grad"] = flat(operands[0].grad)
    cases[name] = row


x3, x4 = data((2, 4, 7), 1), data((1, 4, 5, 6), 2)
case("conv1d", lambda x, w, b: F.conv1d(x, w, b, stride=2, padding=2, dilation=2, groups=2), x3.clone(), data((6, 2, 3), 3), data((6,), 4))
case("conv1d same", lambda x, w: F.conv1d(x, w, padding="same", dilation=3), x3.clone(), data((3, 4, 2), 5))
case("conv2d", lambda x, w: F.conv2d(x, w, stride=(2, 1), padding=(1, 0), dilation=(1, 2)), x4.clone(), data((3, 4, 3, 2), 6))
case("conv_transpose1d", lambda x, w, b: F.conv_transpose1d(x, w, b, stride=3, padding=2, output_padding=1, groups=2, dilation=2),
     x3.clone(), data((4, 3, 3), 7), data((6,), 8))
case("conv_transpose2d", lambda x, w: F.conv_transpose2d(x, w, stride=(2, 1), padding=(1, 0), output_padding=(1, 0)),
     x4.clone(), data((4, 2, 3, 2), 9))
case("max_pool1d ceil", lambda x: F.max_pool1d(x, 3, stride=2, padding=1, ceil_mode=True), x3.clone())
case("max_pool2d ceil dilated", lambda x: F.max_pool2d(x, 2, stride=2, dilation=2, ceil_mode=True), x4.clone())
case("avg_pool2d ceil", lambda x: F.avg_pool2d(x, 3, stride=2, padding=1, ceil_mode=True), x4.clone())
case("avg_pool2d ceil exclude", lambda x: F.avg_pool2d(x, 3, stride=2, padding=1, ceil_mode=True, count_include_pad=False), x4.clone())
case("avg_pool2d divisor", lambda x: F.avg_pool2d(x, 2, divisor_override=3), x4.clone())
case("adaptive_avg_pool2d", lambda x: F.adaptive_avg_pool2d(x, (3, 4)), x4.clone())
case("adaptive_max_pool1d", lambda x: F.adaptive_max_pool1d(x, 3), x3.clone())
mean, var = data((4,), 10), data((4,), 11) + 2


def batch_norm(x, w, b):
    m, v = mean.clone(), var.clone()
    return F.batch_norm(x, m, v, w, b, training=True, momentum=0.3, eps=0.1), m, v


case("batch_norm", batch_norm, x3.clone(), data((4,), 12), data((4,), 13))
case("batch_norm running", lambda x: F.batch_norm(x, mean, var, eps=0.1), x3.clone())
case("group_norm", lambda x, w, b: F.group_norm(x, 2, w, b, 0.1), x3.clone(), data((4,), 12), data((4,), 13))
case("instance_norm", lambda x: F.instance_norm(x, eps=0.1), x3.clone())

logits, target, weight = data((6, 5), 20), classes((6,), 21, 5), data((5,), 22) + 2
for reduction in ("mean", "sum", "none"):
    case(f"cross_entropy {reduction}",
         lambda x: F.cross_entropy(x, target, weight=weight, ignore_index=2, label_smoothing=0.2, reduction=reduction), logits.clone())
case("cross_entropy probabilities", lambda x, p: F.cross_entropy(x, p, weight=weight, label_smoothing=0.1), logits.clone(), (data((6, 5), 23) + 1) / 2)
case("nll_loss", lambda x: F.nll_loss(x, target, weight=weight, ignore_index=1), logits.clone())
probability = (data((6, 5), 24) + 1.5) / 3
case("bce weight", lambda x: F.binary_cross_entropy(x, probability, weight=weight), (data((6, 5), 25) + 1.5) / 3)
case("bce logits", lambda x: F.binary_cross_entropy_with_logits(x, probability, weight=weight, pos_weight=weight * 2), logits.clone())
case("kl_div", lambda x: F.kl_div(x, probability, reduction="batchmean"), logits.clone())
case("kl_div log", lambda x: F.kl_div(x, logits * 2, reduction="mean", log_target=True), logits.clone())
case("smooth_l1", lambda x: F.smooth_l1_loss(x, probability, beta=0.5), logits.clone())
case("huber", lambda x: F.huber_loss(x, probability, delta=0.5), logits.clone())
case("gaussian_nll", lambda x: F.gaussian_nll_loss(x, logits * 2, probability), logits.clone())
sign = torch.tensor([1.0, -1.0, 1.0, -1.0, -1.0, 1.0], dtype=torch.float64)
case("cosine_embedding", lambda x: F.cosine_embedding_loss(x, probability, sign, margin=0.1), logits.clone())
case("triplet", lambda x: F.triplet_margin_loss(x, probability, logits * 0.5), logits.clone())
case("cosine_similarity", lambda x: F.cosine_similarity(x, probability, dim=0), logits.clone())

for name, x, size in (("1d", x3, 11), ("1d down", x3, 3), ("2d", x4, (8, 3))):
    modes = ("nearest", "nearest-exact", "linear" if name[0] == "1" else "bilinear") + (("bicubic",) if name[0] == "2" else ())
    for mode in modes:
        for align in ((False,) if mode.startswith("nearest") else (False, True)):
            case(f"interpolate {name} {mode} {align}",
                 lambda x: F.interpolate(x, size=size, mode=mode, **({} if mode.startswith("nearest") else {"align_corners": align})), x.clone())
case("interpolate factor", lambda x: F.interpolate(x, scale_factor=1.7, mode="bilinear", align_corners=False), x4.clone())
case("interpolate factor nearest", lambda x: F.interpolate(x, scale_factor=(1.7, 0.6)), x4.clone())
case("pixel_shuffle", lambda x: F.pixel_shuffle(x, 2), x4.clone())

case("einsum", lambda a, b: torch.einsum("...ij,kj->...ki", a, b), x3.clone(), data((3, 7), 30))
case("einsum diagonal", lambda a: torch.einsum("iij->j", a), data((3, 3, 4), 31))
nan, inf = float("nan"), float("inf")
ties = torch.tensor([[2.0, nan, 1.0, 2.0, -inf, 0.0, -0.0, inf], [1, 1, 0, 0, 1, 0, 1, 0]], dtype=torch.float64)
for down in (False, True):
    case(f"sort {down}", lambda a: torch.sort(a, dim=1, descending=down, stable=True), ties, gradient=False)
case("topk", lambda a: torch.topk(a, 3, dim=2).values, x3.clone())
case("median", lambda a: torch.median(a, dim=1).values, ties, gradient=False)
case("kthvalue", lambda a: torch.kthvalue(a, 3, dim=2), x3.clone())
case("cummax", lambda a: torch.cummax(a, dim=1), ties, gradient=False)
case("cummin", lambda a: torch.cummin(a, dim=1), ties, gradient=False)
case("quantile", lambda a: torch.quantile(a, 0.3, dim=2), x3.clone())
case("logcumsumexp", lambda a: torch.logcumsumexp(a, dim=2), x3.clone())
index = classes((2, 3, 7), 40, 4)
for how in ("amax", "amin", "mean", "sum"):
    for include in (True, False):
        case(f"scatter {how} {include}", lambda a: a.scatter_reduce(1, index, data((2, 3, 7), 41), reduce=how, include_self=include), x3.clone(),
             gradient=how == "sum" and include)
for mode in ("reflect", "replicate", "circular"):
    case(f"pad {mode}", lambda a: F.pad(a, (2, 3, 1, 2), mode=mode), x4.clone())
case("unfold", lambda a: a.unfold(2, 3, 2), x3.clone())
case("diagonal", lambda a: torch.diagonal(a, -1, 1, 2), x3.clone())
case("rot90", lambda a: torch.rot90(a, 1, (1, 2)), x3.clone())
case("roll", lambda a: torch.roll(a, (2, -1), (2, 1)), x3.clone())
edges = torch.tensor([0.0, -0.0, 1.0, -1.0, inf, -inf, nan], dtype=torch.float64)
case("atan2", lambda a: torch.atan2(a[:, None], a[None, :]), edges, gradient=False)
case("fmod", lambda a: torch.fmod(a[:, None] * 3, a[None, :] * 2), edges, gradient=False)
case("remainder", lambda a: torch.remainder(a[:, None] * 3, a[None, :] * 2), edges, gradient=False)
case("logaddexp", lambda a: torch.logaddexp(a[:, None], a[None, :]), edges, gradient=False)
case("xlogy", lambda a: torch.xlogy(a[:, None], a[None, :]), edges, gradient=False)
case("hypot", lambda a: torch.hypot(a[:, None], a[None, :]), edges, gradient=False)
case("nan_to_num", lambda a: torch.nan_to_num(a, 2.0), edges, gradient=False)
case("searchsorted", lambda a: torch.searchsorted(torch.sort(a, dim=2).values, data((2, 4, 5), 50), right=True), x3, gradient=False)
q, k, v = data((2, 4, 3, 6), 60), data((2, 2, 5, 6), 61), data((2, 2, 5, 6), 62)
case("attention shared heads", lambda q: F.scaled_dot_product_attention(q, k.repeat_interleave(2, 1), v.repeat_interleave(2, 1)), q.clone())
for name in ("selu", "mish", "hardswish", "hardsigmoid", "softsign", "tanhshrink", "hardshrink", "softshrink", "logsigmoid", "relu6"):
    case(name, lambda a: getattr(F, name)(a), x3 * 4)

# Losses of images, linear algebra, signals, segments and special functions.
pixels, labels = data((2, 5, 3, 2), 70), classes((2, 3, 2), 71, 5)
for reduction in ("mean", "sum", "none"):
    case(f"cross_entropy images {reduction}",
         lambda x: F.cross_entropy(x, labels, weight=weight, ignore_index=2, label_smoothing=0.2, reduction=reduction), pixels.clone())
case("cross_entropy images probabilities", lambda x: F.cross_entropy(x, (data((2, 5, 3, 2), 72) + 1) / 2, label_smoothing=0.1), pixels.clone())
case("nll_loss images", lambda x: F.nll_loss(x, labels, weight=weight), pixels.clone())
square = data((3, 4, 4), 73)
definite = square @ square.mT + torch.eye(4, dtype=torch.float64)
right = data((3, 4, 2), 74)
case("cholesky", torch.linalg.cholesky, definite.clone())
case("solve", lambda a: torch.linalg.solve(a, right), square.clone())
case("solve of vectors", lambda b: torch.linalg.solve(square, b), right[..., 0].clone())
case("solve_triangular", lambda a: torch.linalg.solve_triangular(a, right, upper=True), definite.clone())
case("inv", torch.linalg.inv, square.clone())
case("det", torch.linalg.det, square.clone())
case("slogdet", lambda a: tuple(torch.linalg.slogdet(a)), square.clone())
case("qr", lambda a: tuple(torch.linalg.qr(a)), square.clone())
case("qr tall", lambda a: tuple(torch.linalg.qr(a)), data((2, 5, 3), 75))
case("lstsq", lambda a: torch.linalg.lstsq(a, data((2, 5, 2), 76)).solution, data((2, 5, 3), 75))
case("lstsq wide", lambda a: torch.linalg.lstsq(a, data((2, 3, 2), 78), driver="gelsd").solution, data((2, 3, 5), 77), gradient=False)
symmetric = (square + square.mT) / 2


def signs(v):
    """Of columns: 1 where the element of the largest absolute value is positive."""
    return torch.sign(torch.gather(v, -2, v.detach().abs().argmax(-2, keepdim=True))).detach()


def eigh(a):
    values, vectors = torch.linalg.eigh((a + a.mT) / 2)
    return values, vectors * signs(vectors)


def svd(a):
    u, s, vt = torch.linalg.svd(a, full_matrices=False)
    return u * signs(u), s, vt * signs(u).mT


case("eigh", eigh, symmetric.clone())
case("eigvalsh", lambda a: torch.linalg.eigvalsh((a + a.mT) / 2), symmetric.clone())
case("svd", svd, square.clone())
case("svd tall", svd, data((2, 5, 3), 75))
case("svd wide", svd, data((2, 3, 5), 77))
case("pinv", torch.linalg.pinv, data((2, 5, 3), 75))
case("pinv rtol", lambda a: torch.linalg.pinv(a, rtol=0.4), square.clone())
case("matrix_exp", torch.linalg.matrix_exp, square.clone() * 3)
case("matrix_power", lambda a: torch.linalg.matrix_power(a, -2), square.clone())
for order in ("fro", "nuc", 1, -1, 2, -2, inf, -inf):
    case(f"matrix_norm {order}", lambda a: torch.linalg.matrix_norm(a, order, keepdim=True), data((2, 5, 3), 75))
    case(f"cond {order}", lambda a: torch.linalg.cond(a, order), square.clone(), gradient=False)
case("logsumexp axes", lambda a: torch.logsumexp(a, (0, 2)), x3.clone())
for edge in (1, 2):
    case(f"gradient {edge}", lambda a: torch.gradient(a, spacing=0.5, dim=(2, 1), edge_order=edge), x3.clone())
    case(f"gradient at {edge}", lambda a: torch.gradient(a, spacing=(data((7,), 86).cumsum(0),), dim=2, edge_order=edge), x3.clone())
case("tensor_split", lambda a: torch.tensor_split(a, 3, dim=2), x3.clone())
case("tensor_split at", lambda a: torch.tensor_split(a, (5, 2, -1), dim=2), x3.clone())
for n in range(1, 5):
    case(f"polygamma {n}", lambda a: torch.polygamma(n, a), data((20,), 87) * 3 + 3.5)
    case(f"polygamma left {n}", lambda a: torch.polygamma(n, a), data((20,), 88) * 0.4 - 1.5, gradient=False)
case("zeta", lambda a: torch.special.zeta(a, data((20,), 89) + 1.2), data((20,), 90) * 3 + 5, gradient=False)
for name in ("gammainc", "gammaincc"):
    for size in (0.5, 5.0, 50.0, 500.0):
        case(f"{name} {size}", lambda a: getattr(torch.special, name)((data((20,), 91) + 1.2) * size, a), (data((20,), 92) + 1.2) * size)
case("combinations", lambda a: torch.combinations(a, 3), data((5,), 93))
case("combinations again", lambda a: torch.combinations(a, 2, with_replacement=True), data((5,), 93))
case("histogram", lambda a: torch.histogram(a, data((6,), 94).sort().values, weight=data((20,), 95) + 1, density=True).hist, data((20,), 96),
     gradient=False)
def focal(a, t, alpha, gamma):
    p = torch.sigmoid(a)
    at = p * t + (1 - p) * (1 - t)
    return F.binary_cross_entropy_with_logits(a, t, reduction="none") * (1 - at) ** gamma * (alpha * t + (1 - alpha) * (1 - t))


case("sigmoid_focal_loss", lambda a: focal(a, (data((20,), 98) > 0).double(), 0.25, 1.5), data((20,), 99) * 4)
case("vander", lambda a: torch.stack([a ** k for k in (3, 2, 1, 0)], 1), data((5,), 93))
sound, window = data((2, 40), 80), data((12,), 85) + 2
for center in (True, False):
    for normalized in (True, False):
        case(f"stft {center} {normalized}",
             lambda a: torch.view_as_real(torch.stft(a, 16, hop_length=5, win_length=12, window=window, center=center, normalized=normalized,
                                                     return_complex=True)).unbind(-1), sound.clone())
hann = data((12,), 85) + 2
for center in (True, False):
    options = dict(hop_length=5, win_length=12, window=hann, center=center, return_complex=True, onesided=False)
    case(f"stft twosided {center}", lambda a: torch.view_as_real(torch.stft(a, 16, **options)).unbind(-1), sound.clone())
    case(f"stft complex {center}", lambda a: torch.view_as_real(torch.stft(torch.complex(a, data((2, 40), 97)), 16, **options)).unbind(-1),
         sound.clone())
case("istft twosided", lambda a: torch.istft(torch.complex(a, data((2, 16, 11), 82)), 16, hop_length=4, window=torch.ones(16, dtype=torch.float64),
                                             onesided=False), data((2, 16, 11), 81))
case("istft complex", lambda a: torch.view_as_real(torch.istft(torch.complex(a, data((2, 16, 11), 82)), 16, hop_length=4, onesided=False,
     window=torch.ones(16, dtype=torch.float64), return_complex=True)).unbind(-1), data((2, 16, 11), 81))
case("istft", lambda a: torch.istft(torch.complex(a, data((2, 9, 11), 82)), 16, hop_length=4, window=torch.ones(16, dtype=torch.float64), length=38),
     data((2, 9, 11), 81))
case("rfft n", lambda a: torch.view_as_real(torch.fft.rfft(a, n=50, norm="ortho")).unbind(-1), sound.clone())
case("irfft n", lambda a: torch.fft.irfft(torch.complex(a, data((2, 9), 84)), n=12, norm="forward"), data((2, 9), 83))
for name in ("hann", "hamming", "blackman", "bartlett", "kaiser"):
    for periodic in (True, False):
        case(f"{name}_window {periodic}", lambda _: getattr(torch, f"{name}_window")(9, periodic=periodic, dtype=torch.float64), sound,
             gradient=False)
case("quantiles", lambda a: torch.quantile(a, torch.tensor([0.3, 0.9, 0.0], dtype=torch.float64), dim=2, keepdim=True), x3.clone())
for how in ("linear", "lower", "higher", "nearest", "midpoint"):
    case(f"nanquantile {how}", lambda a: torch.nanquantile(a, torch.tensor([0.3, 0.6], dtype=torch.float64), dim=1, interpolation=how), ties,
         gradient=False)
case("nanmedian", lambda a: torch.nanmedian(a, dim=1).values, ties, gradient=False)
for how in ("amax", "amin", "mean", "prod"):
    for include in (True, False):
        case(f"index_reduce {how} {include}",
             lambda a: a.index_reduce(1, torch.tensor([3, 0, 3]), data((2, 3, 7), 41), reduce=how, include_self=include), x3.clone(),
             gradient=False)
case("repeat_interleave", lambda a: a.repeat_interleave(torch.tensor([2, 0, 1, 3]), dim=1), x3.clone())
case("antialias bilinear", lambda a: F.interpolate(a, (2, 9), mode="bilinear", antialias=True), x4.clone())
case("antialias bicubic", lambda a: F.interpolate(a, (3, 4), mode="bicubic", antialias=True), x4.clone())
special = torch.tensor([-inf, -30.0, -3.0, -0.7, 0.0, 0.4, 2.0, 9.0, 25.0, 30.0, inf, nan], dtype=torch.float64)
for name in ("ndtr", "log_ndtr", "erfcx", "entr", "i0", "i0e", "i1", "i1e"):
    # PyTorch's i0 and i1 are inf * 0 at infinity.
    case(name, lambda a: getattr(torch.special, name)(a), special[1:-2] if name in ("i0", "i1") else special, gradient=False)
case("ndtri", torch.special.ndtri, torch.tensor([0.0, 1e-300, 1e-20, 0.01, 0.3, 0.5, 0.7, 0.999, 1.0, 2.0, nan], dtype=torch.float64), gradient=False)
case("xlog1py", lambda a: torch.special.xlog1py(a[:, None], a[None, :]), edges, gradient=False)
case("multigammaln", lambda a: torch.special.multigammaln(a, 3), x3 * 2 + 5)

with open(sys.argv[1], "w") as file:
    json.dump(cases, file, separators=(",", ":"))
    file.write("\n")
