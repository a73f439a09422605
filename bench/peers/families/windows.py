"""Pooling, filters of images and stencils."""
import torch
import torch.nn.functional as F

from families import program

program("window/max_pool_train", gradients="all")(lambda a: F.max_pool2d(a, 3, 2, 1).square().mean())
program("window/avg_pool_train", gradients="all")(lambda a: torch.tanh(F.avg_pool2d(a, 2)).square().mean())
program("window/adaptive_avg_pool_train", gradients="all")(lambda a: F.adaptive_avg_pool2d(a, 7).square().mean())
program("window/adaptive_max_pool")(lambda a: F.adaptive_max_pool2d(a, (5, 6)))
program("window/max_pool_3d")(lambda a: F.max_pool3d(a, 2))
program("window/local_response_norm")(lambda a: F.local_response_norm(a, 5, k=1.0))


@program("window/global_pool_head")
def global_pool_head(a, w):
    return F.linear(torch.cat([a.mean((2, 3)), a.amax((2, 3))], 1), w).softmax(-1)


@program("window/local_variance")
def local_variance(a):
    def smooth(t):
        return F.avg_pool2d(t, 5, 1, 2, count_include_pad=False)
    m = smooth(a)
    return (a - m) / torch.sqrt(F.relu(smooth(a.square()) - m.square()) + 1e-3)


@program("window/open_close")
def open_close(a):
    def dilate(t):
        return F.max_pool2d(t, 5, 1, 2)

    def erode(t):
        return -dilate(-t)
    return erode(dilate(dilate(erode(a))))


@program("window/gaussian_blur")
def gaussian_blur(a):
    taps = torch.tensor([0.06136, 0.24477, 0.38774, 0.24477, 0.06136], device=a.device)
    padded = F.pad(a[:, None], (2, 2, 2, 2), mode="replicate")
    return F.conv2d(F.conv2d(padded, taps.reshape(1, 1, 5, 1)), taps.reshape(1, 1, 1, 5))[:, 0]


@program("window/sobel")
def sobel(a):
    kernel = torch.tensor([[1.0, 0.0, -1.0], [2.0, 0.0, -2.0], [1.0, 0.0, -1.0]], device=a.device)
    x, y = F.conv2d(a, torch.stack([kernel, kernel.t()])[:, None], padding=1).split(1, 1)
    return torch.sqrt(x.square() + y.square() + 1e-6)


@program("window/bilateral")
def bilateral(a):
    h, w = a.shape[1:]
    padded = F.pad(a, (2, 2, 2, 2), mode="replicate")
    total, weights = torch.zeros_like(a), torch.zeros_like(a)
    for dy in range(-2, 3):
        for dx in range(-2, 3):
            other = padded[:, 2 + dy:2 + dy + h, 2 + dx:2 + dx + w]
            k = torch.exp(-(other - a).square() * 2 - (dx * dx + dy * dy) * 0.1)
            total, weights = total + k * other, weights + k
    return total / weights


@program("window/moving_average")
def moving_average(a):
    width = 8 if a.shape[1] == 200 else 64
    sums = F.pad(a.cumsum(1), (1, 0))
    return (sums[:, width:] - sums[:, :-width]) / width


@program("window/unfold_statistics")
def unfold_statistics(a):
    frames = a.unfold(1, 32, 8)
    return frames.mean(-1), frames.amax(-1), frames.var(-1)


def life(cells):
    for _ in range(4):
        around = sum(torch.roll(cells, (dy, dx), (0, 1)) for dy in (-1, 0, 1) for dx in (-1, 0, 1) if dy or dx)
        cells = ((around == 3) | ((around == 2) & (cells == 1))).to(cells.dtype)
    return cells


program("window/game_of_life")(life)
program("window/game_of_life_u8")(life)


@program("window/jacobi")
def jacobi(start, b):
    x = start
    for _ in range(8):
        q = F.pad(x, (1, 1, 1, 1))
        x = (q[:-2, 1:-1] + q[2:, 1:-1] + q[1:-1, :-2] + q[1:-1, 2:] - b) * 0.25
    return x, (x - start).abs().max()


@program("window/heat_3d")
def heat(u):
    for _ in range(2):
        total = u * -6
        for axis in range(3):
            total = total + torch.roll(u, 1, axis) + torch.roll(u, -1, axis)
        u = u + total * 0.1
    return u


@program("window/total_variation_train", gradients="all")
def total_variation(a):
    dy, dx = a.diff(dim=2), a.diff(dim=3)
    return torch.sqrt(dy.square() + 1e-4).mean() + torch.sqrt(dx.square() + 1e-4).mean()
