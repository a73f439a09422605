"""Losses and their gradients."""
import math

import torch
import torch.nn.functional as F

from families import program


@program("loss/cross_entropy_smoothed", gradients=(0,))
def smoothed(x, target):
    return F.cross_entropy(x, torch.where(target % 5 == 0, -100, target), label_smoothing=0.1)


program("loss/cross_entropy_by_hand", gradients=(0,))(lambda x, target: F.cross_entropy(x.float(), target))
program("loss/head_and_cross_entropy", gradients=(0, 1))(lambda x, w, target: F.cross_entropy(F.linear(x, w), target))


def accuracy(inputs, loss, gradients):
    return loss, *gradients, (inputs[0].argmax(1) == inputs[1]).float().mean()


@program("loss/z_loss_accuracy", gradients=(0,), update=accuracy)
def z_loss(x, target):
    return F.cross_entropy(x, target) + x.logsumexp(1).square().mean() * 1e-4


program("loss/segmentation", gradients=(0,))(F.cross_entropy)


@program("loss/dice", gradients=(0,))
def dice(x, target):
    chances, truth = x.softmax(1), F.one_hot(target, x.shape[1]).permute(0, 3, 1, 2).float()
    both, total = (chances * truth).sum((0, 2, 3)), chances.sum((0, 2, 3)) + truth.sum((0, 2, 3))
    return 1 - ((both * 2 + 1) / (total + 1)).mean()


@program("loss/focal", gradients=(0,))
def focal(x, target):
    y, c = target.float(), torch.sigmoid(x)
    right = c * y + (1 - c) * (1 - y)
    return ((y * 0.25 + (1 - y) * 0.75) * (1 - right) ** 2 * F.binary_cross_entropy_with_logits(x, y, reduction="none")).mean()


program("loss/weighted_bce", gradients=(0,))(lambda x, y, w: F.binary_cross_entropy_with_logits(x, y.float(), pos_weight=w))
program("loss/distillation", gradients=(0,))(
    lambda x, y: F.kl_div((x / 2).log_softmax(-1), (y / 2).softmax(-1), reduction="batchmean") * 4)


@program("loss/contrastive", gradients="all")
def contrastive(a, b):
    s = F.normalize(a) @ F.normalize(b).t() / 0.07
    target = torch.arange(a.shape[0], device=a.device)
    return (F.cross_entropy(s, target) + F.cross_entropy(s.t(), target)) / 2


@program("loss/sigmoid_pairs", gradients="all")
def sigmoid_pairs(a, b):
    s = F.normalize(a) @ F.normalize(b).t() * 10 - 5
    return -F.logsigmoid(s * (torch.eye(a.shape[0], device=a.device) * 2 - 1)).sum() / a.shape[0]


program("loss/triplet", gradients="all")(F.triplet_margin_loss)


@program("loss/hardest_triplet")
def hardest(a, label):
    distance = torch.cdist(a, a)
    same = label[None] == label[:, None]
    far, near = torch.where(same, distance, -1.0).amax(1), torch.where(same, 1e6, distance).amin(1)
    return F.relu(far - near + 0.3).mean()


@program("loss/barlow_twins", gradients="all")
def barlow(a, b):
    a, b = ((t - t.mean(0)) / (t.std(0) + 1e-5) for t in (a, b))
    c = a.t() @ b / a.shape[0]
    one = torch.eye(c.shape[0], device=c.device)
    return ((c - one).square() * (one * 0.995 + 0.005)).sum()


program("loss/multi_margin", gradients=(0,))(F.multi_margin_loss)


@program("loss/huber_weighted", gradients=(0,))
def huber(a, b, w):
    return (F.huber_loss(a, b, reduction="none") * w).mean()


@program("loss/variational", gradients=(0, 1, 2))
def variational(mean, log_var, x, y):
    kl = (1 + log_var - mean.square() - log_var.exp()).sum(1).mean() * -0.5
    return F.binary_cross_entropy_with_logits(x, y, reduction="sum") / mean.shape[0] + kl


@program("loss/mixture_density", gradients=(0, 1, 2))
def mixture_density(logits, mean, log_scale, y):
    z = (y - mean) * torch.exp(-log_scale)
    return -(logits.log_softmax(-1) - log_scale - z.square() / 2 - 0.5 * math.log(2 * math.pi)).logsumexp(-1).mean()


@program("loss/quantile_losses", gradients=(0,))
def quantile_losses(x, y):
    q, e = torch.linspace(0.1, 0.9, 9, device=x.device), y - x
    return torch.maximum(q * e, (q - 1) * e).sum(1).mean()


@program("loss/advantages")
def advantages(reward, value, done):
    after = later = reward.new_zeros(reward.shape[0])
    result = []
    for i in reversed(range(reward.shape[1])):
        alive = 1 - done[:, i].float()
        after = reward[:, i] + later * alive * 0.99 - value[:, i] + after * alive * (0.99 * 0.95)
        later = value[:, i]
        result.append(after)
    a = torch.stack(result[::-1], 1)
    return (a - a.mean()) / (a.std() + 1e-8)


@program("loss/policy_clipped", gradients=(0,))
def policy(x, old, advantage, action):
    logs = x.log_softmax(-1)
    ratio = torch.exp(logs.gather(1, action[:, None])[:, 0] - old)
    gain = torch.minimum(ratio * advantage, ratio.clamp(0.8, 1.2) * advantage).mean()
    return -gain + (logs.exp() * logs).sum(1).mean() * 0.01


@program("loss/survival", gradients=(0,))
def survival(risk, event, time):
    order = torch.argsort(time, descending=True, stable=True)
    risk, event = risk[order], event[order].float()
    return -((risk - torch.logcumsumexp(risk, 0)) * event).sum() / event.sum().clamp(min=1)
