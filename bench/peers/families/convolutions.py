"""Blocks of convolutional networks."""
import torch
import torch.nn.functional as F

from families import program


def conv3x3(x, w):
    return F.conv2d(x, w, padding=1)


def normalized(x, scale, shift):
    return F.batch_norm(x, None, None, scale, shift, training=True)


def pair(name, forward):
    program(name)(forward)
    program(name + "_train", gradients="all")(lambda *inputs: forward(*inputs).square().mean())


def residual(x, w1, s1, b1, w2, s2, b2):
    h = F.relu(normalized(conv3x3(x, w1), s1, b1))
    return F.relu(normalized(conv3x3(h, w2), s2, b2) + x)


def unet(x, w1, w2, w3):
    skip = F.relu(conv3x3(x, w1))
    below = F.relu(conv3x3(F.max_pool2d(skip, 2), w2))
    return F.relu(conv3x3(torch.cat([skip, F.interpolate(below, scale_factor=2)], 1), w3))


def separable(x, w1, s, b, w2):
    h = F.conv2d(x, w1, padding=1, groups=x.shape[1])
    return F.relu6(F.conv2d(F.relu6(normalized(h, s, b)), w2))


pair("conv/residual_block", residual)
pair("conv/unet_block", unet)
pair("conv/depthwise_separable", separable)
pair("conv/transposed", lambda x, w, b: F.relu(F.conv_transpose2d(x, w, b, stride=2, padding=1)))
pair("conv/three_d", lambda x, w, b: F.relu(F.conv3d(x, w, b, padding=1)))


@program("conv/squeeze_excite")
def squeeze_excite(x, w1, w2, w3):
    gate = torch.sigmoid(F.linear(F.relu(F.linear(x.mean((2, 3)), w1)), w2))
    return F.relu(F.conv2d(x * gate[:, :, None, None], w3))


@program("conv/dilated")
def dilated(x, w1, w2):
    return F.relu(F.conv2d(F.relu(F.conv2d(x, w1, padding=2, dilation=2)), w2, padding=4, dilation=4)) + x


@program("conv/grouped_train", gradients="all")
def grouped(x, w, b):
    return F.gelu(F.conv2d(x, w, b, padding=1, groups=8)).square().mean()


@program("conv/one_d")
def one_d(x, w1, w2):
    return F.gelu(F.conv1d(F.gelu(F.conv1d(x, w1, padding=3)), w2))


@program("conv/gated_causal_1d")
def gated_causal(x, w1, w2):
    a, b = F.conv1d(F.pad(x, (8, 0)), w1, dilation=8).chunk(2, 1)
    return F.conv1d(torch.tanh(a) * torch.sigmoid(b), w2) + x


@program("conv/channels_last")
def channels_last(x, w):
    return F.relu(conv3x3(x.permute(0, 3, 1, 2), w)).permute(0, 2, 3, 1)


@program("conv/bf16_block")
def bf16_block(x, w1, w2):
    return F.relu(F.conv2d(F.silu(conv3x3(x, w1)), w2) + x)


@program("conv/bf16_3x3_train", gradients="all")
def bf16_3x3(x, w, b):
    return F.conv2d(x, w, b, padding=1).float().square().mean()


@program("conv/bf16_5x5_stride_2")
def bf16_5x5(x, w, b):
    return F.relu(F.conv2d(x, w, b, stride=2, padding=2))


@program("conv/bf16_three_d")
def bf16_three_d(x, w):
    return F.conv3d(x, w, padding=1)


@program("conv/stride_3")
def stride_3(x, w, b):
    return F.silu(F.conv2d(x, w, b, stride=3))


@program("conv/stem_7x7")
def stem(x, w):
    return F.max_pool2d(F.relu(F.conv2d(x, w, stride=2, padding=3)), 3, 2, 1)


@program("conv/odd_channels")
def odd_channels(x, w, b):
    return F.leaky_relu(F.conv2d(x, w, b))


@program("conv/patchify")
def patchify(x, w):
    n, cells = x.shape[0], x.shape[2] // 16
    return F.linear(x.reshape(n, 3, cells, 16, cells, 16).permute(0, 2, 4, 1, 3, 5).reshape(n, cells * cells, 768), w)


program("conv/kernel_5_on_14")(lambda x, w: F.relu(F.conv2d(x, w, padding=2)))
pair("conv/kernel_3_on_7", lambda x, w: F.relu(conv3x3(x, w)))


@program("conv/separated_7x7")
def separated(x, w1, w2):
    return F.relu(F.conv2d(F.relu(F.conv2d(x, w1, padding=(0, 3))), w2, padding=(3, 0)))


@program("conv/channels_last_train", gradients="all")
def channels_last_train(x, w, b):
    return F.relu(conv3x3(x.permute(0, 3, 1, 2), w).permute(0, 2, 3, 1) + b).square().mean()
