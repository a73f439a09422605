"""Interpolation and sampling of images at positions that are data."""
import torch
import torch.nn.functional as F

from families import program


def small(t):
    return t.shape[-1] < 20


def bilinear(a):
    return F.interpolate(a, (14, 14) if small(a) else (128, 128), mode="bilinear")


program("sampling/bilinear_up")(bilinear)
program("sampling/bilinear_up_train", gradients="all")(lambda a: bilinear(a).square().mean())
program("sampling/bilinear_odd")(
    lambda a: F.interpolate(a, (11, 5) if small(a) else (91, 37), mode="bilinear", align_corners=True))
program("sampling/bicubic_up")(lambda a: F.interpolate(a, (14, 14) if small(a) else (128, 128), mode="bicubic"))
program("sampling/nearest_odd")(lambda a: F.interpolate(a, (11, 17) if small(a) else (91, 155)) * 2)
program("sampling/trilinear")(lambda a: F.interpolate(a, scale_factor=(2, 2, 2), mode="trilinear"))
program("sampling/pixel_shuffle")(lambda a, w: torch.tanh(F.pixel_shuffle(F.conv2d(a, w, padding=1), 2)))
program("sampling/reflect_conv")(lambda a, w: F.relu(F.instance_norm(F.conv2d(F.pad(a, (1, 1, 1, 1), mode="reflect"), w))))
program("sampling/grid_sample")(lambda a, g: F.grid_sample(a, g, align_corners=False))
program("sampling/grid_sample_train", gradients="all")(lambda a, g: F.grid_sample(a, g, align_corners=False).square().mean())


@program("sampling/pyramid")
def pyramid(image):
    levels = []
    for _ in range(3):
        coarse = F.avg_pool2d(image, 2)
        levels.append(image - F.interpolate(coarse, scale_factor=2, mode="bilinear"))
        image = coarse
    return (*levels, image)


@program("sampling/affine_warp")
def affine_warp(a, theta):
    to = 7 if small(a) else 80
    grid = F.affine_grid(theta, (*a.shape[:2], to, to), align_corners=False)
    return F.grid_sample(a, grid, padding_mode="border", align_corners=False)


@program("sampling/flow_warp")
def flow_warp(a, flow):
    n, c, side, _ = a.shape
    line = torch.arange(side, device=a.device, dtype=torch.float32)
    y, x = line[:, None] + flow[:, 0], line + flow[:, 1]
    y0, x0 = torch.floor(y), torch.floor(x)
    flat, total = a.reshape(n, c, side * side), 0
    for dy in (0, 1):
        for dx in (0, 1):
            py, px = (y0 + dy).clamp(0, side - 1), (x0 + dx).clamp(0, side - 1)
            k = (1 - (y - (y0 + dy)).abs()) * (1 - (x - (x0 + dx)).abs())
            index = (py * side + px).long().reshape(n, 1, side * side)
            total = total + torch.gather(flat, 2, index.expand(n, c, side * side)) * k.reshape(n, 1, -1)
    return total.reshape(a.shape)


@program("sampling/lookup_table_3d")
def lookup(colours, table):
    cell = torch.round(colours * 16).long()
    return table.reshape(17**3, 3)[(cell[:, 0] * 17 + cell[:, 1]) * 17 + cell[:, 2]]
