"""Steps of simulations."""
import math

import torch
import torch.nn.functional as F

from families import program


@program("simulation/n_body")
def n_body(x, v, m):
    d = x[None] - x[:, None]
    r2 = d.square().sum(-1) + 1e-3
    v = v + (d * (m * r2 ** -1.5)[..., None]).sum(1) * 1e-3
    return x + v * 1e-3, v


@program("simulation/lennard_jones_train", gradients="all")
def lennard_jones(x):
    one = torch.eye(x.shape[0], device=x.device)
    s6 = (1 / ((x[None] - x[:, None]).square().sum(-1) + one + 0.5)) ** 3
    return ((s6.square() - s6) * (1 - one)).sum() * 2


@program("simulation/lorenz")
def lorenz(s):
    def rate(t):
        x, y, z = t.unbind(1)
        return torch.stack([(y - x) * 10, x * (28 - z) - y, x * y - z * (8.0 / 3)], 1)
    for _ in range(2):
        a = rate(s)
        b = rate(s + a * 0.005)
        c = rate(s + b * 0.005)
        s = s + (a + b * 2 + c * 2 + rate(s + c * 0.01)) * (0.01 / 6)
    return s


@program("simulation/deposit")
def deposit(x, value):
    side = 9 if value.numel() == 40 else 128
    at = x * (side - 1)
    cell = torch.floor(at)
    f, grid = at - cell, x.new_zeros(side * side)
    for dy in (0, 1):
        for dx in (0, 1):
            weight = (f[:, 0] if dy else 1 - f[:, 0]) * (f[:, 1] if dx else 1 - f[:, 1])
            grid = grid.index_add(0, ((cell[:, 0] + dy) * side + cell[:, 1] + dx).long(), weight * value)
    return grid.reshape(side, side)


@program("simulation/option_paths")
def option_paths(a):
    prices = torch.exp((a * 0.02 - 0.0002).cumsum(1)) * 100
    asian = F.relu(prices.mean(1) - 100)
    return asian.mean(), torch.where(prices.amax(1) < 120, F.relu(prices[:, -1] - 100), 0.0).mean(), asian.std()


def around(a):
    return torch.roll(a, 1, 0) + torch.roll(a, -1, 0) + torch.roll(a, 1, 1) + torch.roll(a, -1, 1)


@program("simulation/wave_2d")
def wave(now, before):
    for _ in range(4):
        now, before = now * 2 - before + (around(now) - now * 4) * 0.2, now
    return now, before


@program("simulation/burgers")
def burgers(u):
    for _ in range(4):
        left, right = torch.roll(u, 1, 1), torch.roll(u, -1, 1)
        u = u - u * torch.where(u > 0, u - left, right - u) * 0.1 + (left - u * 2 + right) * 0.05
    return u


@program("simulation/gray_scott")
def gray_scott(u, v):
    for _ in range(2):
        uvv = u * v * v
        u, v = (u + (around(u) - u * 4) * 0.16 - uvv + (1 - u) * 0.035, v + (around(v) - v * 4) * 0.08 + uvv - v * 0.1)
    return u, v


@program("simulation/lattice_boltzmann")
def lattice_boltzmann(f):
    cx, cy = (0, 1, 0, -1, 0, 1, -1, -1, 1), (0, 0, 1, 0, -1, 1, 1, -1, -1)
    moved = [torch.roll(f[i], (cy[i], cx[i]), (0, 1)) for i in range(9)]
    density = torch.stack(moved).sum(0)
    x = sum(m * c for m, c in zip(moved, cx)) / density
    y = sum(m * c for m, c in zip(moved, cy)) / density
    result = []
    for i in range(9):
        w = 4 / 9 if i == 0 else 1 / 9 if i < 5 else 1 / 36
        cu = (x * cx[i] + y * cy[i]) * 3
        result.append(moved[i] * 0.4 + density * (1 + cu + cu.square() / 2 - (x.square() + y.square()) * 1.5) * w * 0.6)
    return torch.stack(result)


@program("simulation/ising")
def ising(spins, chance):
    s = spins.float() * 2 - 1
    rows, columns = (torch.arange(n, device=s.device) for n in s.shape)
    for colour in (0, 1):
        flipped = (chance < torch.exp(s * around(s) * -0.8)) & ((rows[:, None] + columns) % 2 == colour)
        s = torch.where(flipped, -s, s)
    return s, s.mean()


@program("simulation/multigrid_cycle")
def multigrid(x, b):
    def laplace(a):
        q = F.pad(a, (1, 1, 1, 1))
        return q[:-2, 1:-1] + q[2:, 1:-1] + q[1:-1, :-2] + q[1:-1, 2:] - a * 4

    def smooth(a, right):
        for _ in range(2):
            a = a + (laplace(a) - right) * 0.2
        return a
    x = smooth(x, b)
    h, w = x.shape
    coarse = (b - laplace(x)).reshape(h // 2, 2, w // 2, 2).mean((1, 3)) * 4
    error = smooth(torch.zeros_like(coarse), coarse)
    return smooth(x + error.repeat_interleave(2, 0).repeat_interleave(2, 1), b)


def parts(z):
    return z.real.contiguous(), z.imag.contiguous()


program("simulation/fourier_transform")(lambda a, b: parts(torch.fft.fft(torch.complex(a, b))))
program("simulation/power_spectrum")(lambda x: torch.fft.rfft(x).abs().square())
program("simulation/fourier_of_images")(lambda x: parts(torch.fft.rfft2(x)))


@program("simulation/long_convolution")
def long_convolution(x, k):
    n = x.shape[1]
    return torch.fft.irfft(torch.fft.rfft(x, 2 * n) * torch.fft.rfft(k, 2 * n), 2 * n)[:, :n]


@program("simulation/spectral_layer_train", gradients="all")
def spectral_layer(x, a, b):
    z = torch.fft.rfft(x)
    y = torch.einsum("bim,iom->bom", z[..., :a.shape[2]], torch.complex(a, b))
    return torch.fft.irfft(F.pad(y, (0, z.shape[2] - a.shape[2])), x.shape[2]).square().mean()


@program("simulation/fourier_by_products")
def fourier(x, window):
    n = x.shape[1]
    line = torch.arange(n, device=x.device)
    angle = (line[:, None] * line % n).float() * (2 * math.pi / n)
    re, im = (x * window) @ angle.cos(), (x * window) @ -angle.sin()
    return torch.sqrt(re.square() + im.square()), torch.atan2(im, re + 10)


@program("simulation/spectrogram")
def spectrogram(x, mel):
    i = torch.arange(256, device=x.device, dtype=torch.float32)
    angle = i[:, None] * i[:129] * (2 * math.pi / 256)
    windowed = x.unfold(1, 256, 128) * (0.5 - torch.cos(i * (2 * math.pi / 256)) * 0.5)
    power = (windowed @ angle.cos()).square() + (windowed @ angle.sin()).square()
    return torch.log(F.linear(power, mel).abs() + 1e-3)


@program("simulation/cosine_blocks")
def cosine_blocks(x):
    k = torch.arange(8, device=x.device, dtype=torch.float32)
    basis = torch.cos(k[:, None] * (k + 0.5) * (math.pi / 8)) * torch.where(k == 0, math.sqrt(0.125), 0.5)[:, None]
    b, h, w = x.shape
    return basis @ x.reshape(b, h // 8, 8, w // 8, 8).transpose(2, 3) @ basis.t()


@program("simulation/kalman")
def kalman(x, c, z):
    f = torch.eye(4, device=x.device) + torch.diag(torch.full((2,), 0.1, device=x.device), 2)
    h, one = torch.eye(2, 4, device=x.device), torch.eye(4, device=x.device)
    x = x @ f.t()
    q = f @ (c @ c.transpose(1, 2) + one) @ f.t() + one * 0.01
    s = h @ q @ h.t() + one[:2, :2] * 0.1
    a, b, d = s[:, 0, 0], s[:, 0, 1], s[:, 1, 1]
    inverse = torch.stack([d, -b, -b, a], 1).reshape(-1, 2, 2) / (a * d - b * b)[:, None, None]
    gain = q @ h.t() @ inverse
    return x + (gain @ (z - x @ h.t())[..., None])[..., 0], q - gain @ h @ q
