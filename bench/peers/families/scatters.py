"""Scatters, gathers, histograms and sums by segment."""
import torch
import torch.nn.functional as F

from families import program


def counts(index, bins, weights=None):
    """bincount() whose result's size does not depend on data."""
    weights = torch.ones_like(index, dtype=torch.int64) if weights is None else weights
    return weights.new_zeros(bins).index_add(0, index, weights)


def rows_of(index):
    return 30 if index.numel() == 100 else 10000


program("scatter/index_add")(lambda a, i, u: a.index_add(0, i, u))
program("scatter/index_add_columns")(lambda a, i, u: a.index_add(1, i, u))
program("scatter/scatter_add_rows")(lambda a, i, u: a.scatter_add(0, i, u))
program("scatter/scatter_add_columns")(lambda a, i, u: a.scatter_add(1, i, u))
program("scatter/bincount")(lambda i: torch.bincount(i, minlength=1000))
program("scatter/weighted_histogram")(lambda i, w: counts(i, 256, w))
program("scatter/gather_rows")(lambda a, i: torch.gather(a, 1, i) * 2)


@program("scatter/scatter_mean")
def scatter_mean(index, a):
    rows = rows_of(index)
    sums = a.new_zeros(rows, a.shape[1]).index_add(0, index, a)
    return sums / counts(index, rows).float().clamp(min=1)[:, None]


@program("scatter/segment_max")
def segment_max(index, a):
    start = a.new_full((rows_of(index), a.shape[1]), -10.0)
    return start.scatter_reduce(0, index[:, None].expand(a.shape), a, "amax")


@program("scatter/segment_softmax")
def segment_softmax(index, a):
    rows = rows_of(index)
    e = torch.exp(a - a.new_full((rows,), -10.0).scatter_reduce(0, index, a, "amax")[index])
    return e / a.new_zeros(rows).index_add(0, index, e)[index]


@program("scatter/prefix_segments")
def prefix_segments(a):
    zeros = (1 - a).cumsum(1)
    return a.cumsum(1), zeros - torch.where(a == 1, zeros, 0).cummax(1).values


@program("scatter/joint_histogram")
def joint_histogram(a, b):
    bins = [torch.floor((t + 1) * 32).clamp(0, 63).long() for t in (a, b)]
    return counts(bins[0] * 64 + bins[1], 4096).reshape(64, 64).float() / a.numel()


@program("scatter/row_histograms")
def row_histograms(a):
    bins = (a * 32).floor().clamp(0, 31).long()
    return torch.zeros(a.shape[0], 32, device=a.device).scatter_add(1, bins, torch.ones_like(a))


@program("scatter/image_equalize")
def image_equalize(a):
    table = counts(a.flatten().long(), 256).cumsum(0).float() * (255.0 / a.numel())
    return table[a.long()]


@program("scatter/confusion")
def confusion(truth, score):
    table = F.one_hot(truth, 100).float().t() @ F.one_hot(score.argmax(1), 100).float()
    return table, table.trace() / truth.numel()


@program("scatter/embedding_gradient", gradients=(0,))
def embedding_gradient(table, index, other):
    return (F.embedding(index, table) * other).square().mean()


@program("scatter/embedding_bag_train", gradients=(0,))
def embedding_bag(table, index):
    return torch.tanh(F.embedding_bag(index, table, mode="mean")).square().mean()


def message(x, w, source, target, scale):
    h = x @ w
    return F.relu(torch.zeros_like(h).index_add(0, target, h[source] * scale[:, None]) + h)


program("scatter/graph_convolution")(message)
program("scatter/graph_convolution_train", gradients=(0, 1, 4))(lambda *t: message(*t).square().mean())


@program("scatter/hashed_features")
def hashed_features(index, table):
    return sum(F.embedding((index * prime) % (1 << 12), table).sum(1) for prime in (73856093, 19349663, 83492791))


@program("scatter/edge_convolution")
def edge_convolution(x, w, source, target):
    sent = F.relu(F.linear(torch.cat([x[source], x[target]], 1), w))
    return sent.reshape(x.shape[0], -1, sent.shape[1]).amax(1)
