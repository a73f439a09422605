"""Steps of known algorithms: clustering, graphs, dynamic programming, iterations."""
import torch
import torch.nn.functional as F

from families import program


def counts(index, bins):
    return torch.zeros(bins, dtype=torch.int64, device=index.device).index_add(0, index, torch.ones_like(index))


@program("algorithm/k_means")
def k_means(x, c):
    nearest = (c.square().sum(1) - x @ c.t() * 2).argmin(1)
    count = counts(nearest, c.shape[0])
    return torch.zeros_like(c).index_add(0, nearest, x) / count.clamp(min=1)[:, None], nearest, count


@program("algorithm/k_nearest")
def k_nearest(x, points, label):
    best = torch.topk(torch.cdist(x, points), 5, largest=False)
    return best.values, F.one_hot(label[best.indices], 10).sum(1).float()


@program("algorithm/gaussian_mixture")
def gaussian_mixture(x, mean, deviation, weight):
    z = (x[:, None] - mean) / deviation
    logs = weight.log_softmax(-1) - deviation.log().sum(1) - z.square().sum(-1) / 2
    share = logs.softmax(-1)
    total = share.sum(0)
    return share.t() @ x / total[:, None], total, logs.logsumexp(-1).mean()


@program("algorithm/vector_quantize_train", gradients="all")
def vector_quantize(x, table):
    chosen = F.embedding((table.square().sum(1) - x @ table.t() * 2).argmin(1), table)
    passed = x + (chosen - x).detach()
    return F.mse_loss(chosen, x.detach()) + F.mse_loss(chosen.detach(), x) * 0.25 + torch.tanh(passed).mean()


@program("algorithm/page_rank_dense")
def page_rank(a, start):
    linked = (a > 0.9).float()
    ways, rank = linked / linked.sum(0).clamp(min=1), start / start.sum()
    for _ in range(5):
        rank = ways @ rank * 0.85 + 0.15 / a.shape[0]
    return rank


@program("algorithm/page_rank_edges")
def page_rank_edges(source, target):
    nodes = 15 if source.numel() == 60 else 20000
    out = counts(source, nodes).clamp(min=1).float()
    rank = torch.full((nodes,), 1 / nodes, device=source.device)
    for _ in range(3):
        rank = torch.zeros_like(rank).index_add(0, target, (rank / out)[source]) * 0.85 + 0.15 / nodes
    return rank


program("algorithm/shortest_paths")(lambda a: (a[:, :, None] + a[None]).amin(1))


@program("algorithm/connected_labels")
def connected(a):
    inside, (h, w) = a > -0.3, a.shape
    label = torch.where(inside, torch.arange(1, h * w + 1, device=a.device).reshape(h, w), 0)
    for _ in range(4):
        q = F.pad(label, (1, 1, 1, 1))
        most = label
        for other in (q[:-2, 1:-1], q[2:, 1:-1], q[1:-1, :-2], q[1:-1, 2:]):
            most = torch.maximum(most, other)
        label = torch.where(inside, most, 0)
    return label


@program("algorithm/edit_distance")
def edit_distance(a, b):
    m = b.shape[1]
    line = torch.arange(m + 1, device=a.device)
    row = line[None].expand(a.shape[0], m + 1)
    for i in range(a.shape[1]):
        best = torch.minimum(row[:, 1:] + 1, row[:, :-1] + (b != a[:, i:i + 1]).long())
        row = (torch.cat([row[:, :1] + 1, best], 1) - line).cummin(1).values + line
    return row[:, m]


@program("algorithm/viterbi")
def viterbi(x, move):
    score, ways = x[:, 0], []
    for i in range(1, x.shape[1]):
        best = (score[:, :, None] + move).max(1)
        ways.append(best.indices)
        score = best.values + x[:, i]
    return score.amax(1), torch.stack(ways, 1)


@program("algorithm/forward_chain_train", gradients="all")
def forward_chain(x, move):
    score = x[:, 0]
    for i in range(1, x.shape[1]):
        score = (score[:, :, None] + move).logsumexp(1) + x[:, i]
    return score.logsumexp(-1).mean()


@program("algorithm/beam_step")
def beam_step(x, score):
    best = torch.topk((x.log_softmax(-1) + score[..., None]).flatten(1), 4)
    return best.values, best.indices // x.shape[-1]


@program("algorithm/sinkhorn")
def sinkhorn(a):
    logs = a / 0.1
    for _ in range(5):
        logs = logs - logs.logsumexp(1, keepdim=True)
        logs = logs - logs.logsumexp(0, keepdim=True)
    return logs.exp()


@program("algorithm/conjugate_gradients")
def conjugate_gradients(m, b):
    a = m @ m.t() + torch.eye(m.shape[0], device=m.device)
    x, r, q, rr = torch.zeros_like(b), b, b, torch.dot(b, b)
    for _ in range(6):
        aq = a @ q
        step = rr / torch.dot(q, aq)
        x, r = x + q * step, r - aq * step
        after = torch.dot(r, r)
        q, rr = r + q * (after / rr), after
    return x


@program("algorithm/mandelbrot")
def mandelbrot(b, a):
    x = y = steps = a.new_zeros(b.shape[0], a.shape[0])
    for _ in range(16):
        x, y = (x * x - y * y + a).clamp(-10, 10), (x * y * 2 + b).clamp(-10, 10)
        steps = steps + (x * x + y * y < 4).float()
    return steps


@program("algorithm/newton_roots")
def newton(m):
    e = m
    for _ in range(5):
        e = e - (e - torch.sin(e) * 0.6 - m) / (1 - torch.cos(e) * 0.6)
    return e


@program("algorithm/spheres")
def spheres(x, centre, radius):
    way = x / (torch.linalg.vector_norm(x, dim=-1, keepdim=True) + 1e-6)
    along = way @ centre.t()
    inside = along.square() - centre.square().sum(1) + radius.square()
    far = torch.where((inside > 0) & (along > 0), along - torch.sqrt(inside.clamp(min=0)), 1e4)
    hit = far.min(1)
    normal = way * hit.values[:, None] - centre[hit.indices]
    return torch.where(hit.values < 1e4, F.relu(normal[:, 2]), 0.0)


@program("algorithm/random_projection_hash")
def random_projection(x, w):
    bits = (x @ w > 0).long()
    return (bits << torch.arange(16, device=x.device)).sum(1), bits.float().mean(0)


@program("algorithm/game_tree_values")
def game_tree(v):
    for i in range(6):
        children = v.reshape(v.shape[0], -1, 4)
        v = children.amax(2) if i % 2 == 0 else children.amin(2)
    return v[:, 0]
