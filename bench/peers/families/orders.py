"""Sorting, selection and what rests on order."""
import torch
import torch.nn.functional as F

from families import program


def small(t):
    return t.numel() < 10000


program("order/sort_rows")(lambda a: torch.sort(a, dim=-1).values)
program("order/argsort_rows")(lambda a: torch.argsort(a, dim=-1, descending=True, stable=True))
program("order/sort_columns")(lambda a: torch.sort(a, dim=0).values)
program("order/sort_by_key")(lambda key, a: torch.take_along_dim(a, torch.argsort(key, dim=1, stable=True), 1))
program("order/ranks")(lambda a: torch.argsort(torch.argsort(a, dim=1, stable=True), dim=1, stable=True))
program("order/topk")(lambda a: torch.topk(a, 5 if small(a) else 50).values)
program("order/topk_train", gradients="all")(lambda a: torch.topk(a, 8).values.square().sum())
program("order/kthvalue")(lambda a: torch.kthvalue(a, 7 if small(a) else 250, dim=1).values)
program("order/searchsorted")(lambda line, a: torch.searchsorted(torch.sort(line).values, a))
program("order/nearest_argmin")(lambda a: (a.argmax(1), a.argmin(2), a.amax((0, 2))))


@program("order/unique_counts")
def unique_counts(a):
    line = torch.sort(a).values
    group = torch.cat([line.new_zeros(1), (line[1:] != line[:-1]).long().cumsum(0)])
    bins = 20 if small(a) else 5000
    return group, torch.zeros(bins, dtype=torch.int64, device=a.device).index_add(0, group, torch.ones_like(group)), group.max() + 1


@program("order/top_p")
def top_p(a):
    chances = torch.sort(a, dim=-1, descending=True).values.softmax(-1)
    before = chances.cumsum(-1) - chances
    kept = torch.where(before < 0.9, chances, 0.0)
    return kept / kept.sum(-1, keepdim=True), (before < 0.9).sum(-1)


@program("order/topk_mask")
def topk_mask(a):
    least = torch.topk(a.abs(), 4 if small(a) else 32).values[:, -1:]
    return torch.where(a.abs() >= least, a, 0.0)


@program("order/median")
def median(a):
    middle = a.median(1, keepdim=True).values
    return (a - middle) / ((a - middle).abs().median(1, keepdim=True).values + 1e-3)


program("order/median_of_windows")(lambda a: a.unfold(1, 7, 1).median(-1).values)
program("order/mode")(lambda a: a.mode(1).values)


@program("order/quantile_clip")
def quantile_clip(a):
    return torch.clamp(a, torch.quantile(a, 0.1, 0, keepdim=True), torch.quantile(a, 0.9, 0, keepdim=True))


@program("order/median_filter")
def median_filter(a):
    h, w = a.shape[1:]
    padded = F.pad(a, (1, 1, 1, 1), mode="replicate")
    return torch.stack([padded[:, i // 3:i // 3 + h, i % 3:i % 3 + w] for i in range(9)], -1).median(-1).values


@program("order/nms_mask")
def nms_mask(boxes, score):
    low = boxes[:, :2]
    high = low + boxes[:, 2:].abs()
    area = (high - low).prod(1)
    shared = F.relu(torch.minimum(high[:, None], high[None]) - torch.maximum(low[:, None], low[None])).prod(2)
    overlap = shared / (area[:, None] + area[None] - shared)
    dropped = ((score[None] > score[:, None]) & (overlap > 0.5)).any(1)
    return torch.where(dropped, 0.0, score), dropped.sum()
