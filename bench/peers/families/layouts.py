"""Operands that do not lie as they are used: transposed, strided, sliced, flipped, interleaved."""
import torch
import torch.nn.functional as F

from families import program

program("layout/transposed_operands")(lambda a, b: a.t() @ b.t())
program("layout/add_transpose")(lambda a, b: (a + b.t()) * 2)
program("layout/strided_flipped_product")(lambda a, b: a[::2, 3:] @ b.flip(0))
program("layout/permuted_softmax")(lambda a: a.permute(0, 2, 3, 1).softmax(-1).contiguous())
program("layout/softmax_of_channels")(lambda a: a.softmax(1))
program("layout/interleave")(lambda a, b: torch.stack([a, -b], 2).reshape(a.shape[0], -1))
program("layout/rotate_quarter")(lambda a: (torch.rot90(a, 1, (1, 2)) * 0.5 + 0.5).contiguous())
program("layout/roll_flip")(lambda a: torch.roll(a.flip((0, 1)), (17, -5), (0, 1)) - a)
program("layout/cat_pieces_linear")(lambda *t: F.relu(F.linear(torch.cat(t[:5], 1), t[5])))
program("layout/batch_matrix_transpose")(lambda a: (a.transpose(1, 2) * 2).contiguous())
program("layout/reverse_cumsum")(lambda a: a.flip(1).cumsum(1).flip(1))
program("layout/lower_triangle_product")(lambda a, b: a.tril() @ b)
program("layout/strided_slices")(lambda a: torch.cat([a[:, ::2], a[:, 1::2], a[:, ::4]], 1))


@program("layout/every_third_row_norm")
def every_third(a):
    rows = a[1::3]
    return (rows - rows.mean(1, keepdim=True)) / (rows.std(1, keepdim=True) + 1e-5)


@program("layout/heads_split_merge")
def heads(a, scale):
    b, s, _ = a.shape
    return (a.reshape(b, s, scale.shape[0], -1).transpose(1, 2) * scale + 1).transpose(1, 2).reshape(b, s, -1)


@program("layout/neighbour_differences")
def differences(a):
    d = a[:, 1:] - a[:, :-1]
    return d, d.sum(0)


@program("layout/even_odd_rope")
def rope(a, angle):
    even, odd, c, s = a[..., ::2], a[..., 1::2], angle.cos(), angle.sin()
    return torch.stack([even * c - odd * s, even * s + odd * c], -1).flatten(-2)


@program("layout/window_partition")
def window_partition(a):
    b, side, _, c = a.shape
    cells = side // 7
    windows = torch.roll(a, (-3, -3), (1, 2)).reshape(b, cells, 7, cells, 7, c).permute(0, 1, 3, 2, 4, 5)
    return F.layer_norm(windows.reshape(-1, 49, c), (c,))


@program("layout/flip_roll_conv_train", gradients="all")
def flip_roll_conv(a, w):
    return F.conv2d(torch.roll(a.flip(3), (2, -3), (2, 3)), w, padding=1).square().mean()
