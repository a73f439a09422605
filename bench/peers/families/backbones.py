"""Whole networks of vision, language and speech, forward and with all gradients."""
import torch
import torch.nn.functional as F

from families import program


class Reader:
    def __init__(self, tensors):
        self.rest = iter(tensors)

    def next(self):
        return next(self.rest)

    def dense(self, x):
        return F.linear(x, self.next(), self.next())

    def norm(self, x, eps=1e-5):
        return F.layer_norm(x, x.shape[-1:], self.next(), self.next(), eps)

    def batch_norm(self, x):
        return F.batch_norm(x, None, None, self.next(), self.next(), training=True)


def network(name):
    """NAME and NAME_train, of f32 and bf16."""
    def register(function):
        def forward(x, *weights):
            return function(Reader(weights), x)

        def loss(x, target, *weights):
            return F.cross_entropy(function(Reader(weights), x).float(), target)
        for dtype in ("", "_bf16"):
            program(f"backbone/{name}{dtype}")(forward)
            program(f"backbone/{name}{dtype}_train", gradients="weights")(loss)
        return function
    return register


def channels_last(x):
    return x.contiguous(memory_format=torch.channels_last)


@network("resnet50")
def resnet(r, x):
    small = x.shape[-1] < 100
    x = F.conv2d(channels_last(x), r.next(), stride=2, padding=3)
    x = F.max_pool2d(F.relu(r.batch_norm(x)), 3, 2, 1)
    for stage, depth in enumerate((1, 2) if small else (3, 4, 6, 3)):
        for block in range(depth):
            stride = 2 if stage > 0 and block == 0 else 1
            y = F.relu(r.batch_norm(F.conv2d(x, r.next())))
            y = F.relu(r.batch_norm(F.conv2d(y, r.next(), stride=stride, padding=1)))
            y = r.batch_norm(F.conv2d(y, r.next()))
            if block == 0:
                x = r.batch_norm(F.conv2d(x, r.next(), stride=stride))
            x = F.relu(x + y)
    return r.dense(x.mean((2, 3)))


@network("convnext_tiny")
def convnext(r, x):
    small = x.shape[-1] < 100

    def norm(y):
        return r.norm(y.permute(0, 2, 3, 1), 1e-6)
    x = norm(F.conv2d(channels_last(x), r.next(), r.next(), stride=4)).permute(0, 3, 1, 2)
    for stage, depth in enumerate((1, 1) if small else (3, 3, 9, 3)):
        if stage > 0:
            x = norm(x).permute(0, 3, 1, 2)
            x = F.conv2d(x, r.next(), r.next(), stride=2)
        for _ in range(depth):
            y = norm(F.conv2d(x, r.next(), r.next(), padding=3, groups=x.shape[1]))
            y = r.dense(F.gelu(r.dense(y))) * r.next()
            x = x + y.permute(0, 3, 1, 2)
    return r.dense(r.norm(x.mean((2, 3)), 1e-6))


def attention(r, x, heads):
    b, n, d = x.shape
    q, k, v = r.dense(x).reshape(b, n, 3, heads, d // heads).permute(2, 0, 3, 1, 4)
    return r.dense(F.scaled_dot_product_attention(q, k, v).transpose(1, 2).reshape(b, n, d))


def encoder(r, x, layers, heads):
    for _ in range(layers):
        x = x + attention(r, r.norm(x), heads)
        x = x + r.dense(F.gelu(r.dense(r.norm(x))))
    return x


@network("vit_b16")
def vit(r, x):
    small = x.shape[-1] < 100
    x = F.conv2d(x, r.next(), r.next(), stride=8 if small else 16).flatten(2).transpose(1, 2)
    x = torch.cat([r.next().expand(x.shape[0], -1, -1), x], 1) + r.next()
    x = encoder(r, x, *((2, 3) if small else (12, 12)))
    return r.dense(r.norm(x[:, 0]))


@network("bert_base")
def bert(r, x):
    small = x.shape[-1] < 100
    x = F.embedding(x, r.next())
    x = r.norm(x + r.next())
    for _ in range(2 if small else 12):
        x = r.norm(x + attention(r, x, 3 if small else 12))
        x = r.norm(x + r.dense(F.gelu(r.dense(x))))
    return r.dense(torch.tanh(r.dense(x[:, 0])))


@network("whisper_base")
def whisper(r, x):
    small = x.shape[-1] < 100
    for stride in (1, 2):
        x = F.gelu(F.conv1d(x, r.next(), r.next(), stride=stride, padding=1))
    x = encoder(r, x.transpose(1, 2) + r.next(), *((2, 3) if small else (6, 8)))
    return r.dense(r.norm(x).mean(1))


@network("denoiser")
def denoiser(r, x):
    groups = 2 if x.shape[-1] < 10 else 32

    def norm(y):
        return F.group_norm(y, groups, r.next(), r.next())
    h = F.conv2d(F.silu(norm(x)), r.next(), padding=1) + r.next()
    h = x + F.conv2d(F.silu(norm(h)), r.next(), padding=1)
    y = attention(r, norm(h).flatten(2).transpose(1, 2), 4)
    h = h + y.transpose(1, 2).reshape(h.shape)
    return r.dense(h.mean((2, 3)))
