"""Recurrent networks: PyTorch's own where it has them, else loops over time."""
import torch
import torch.nn.functional as F

from families import program


def both(name):
    def register(forward):
        program(name)(forward)
        program(name + "_train", gradients="all")(lambda *inputs: forward(*inputs).square().mean())
        return forward
    return register


def start(x, u):
    return x.new_zeros(1, x.shape[0], u.shape[1])


@both("recurrent/lstm")
def lstm(x, w, u, b):
    return torch.lstm(x, (start(x, u), start(x, u)), [w, u, b, torch.zeros_like(b)], True, 1, 0.0, torch.is_grad_enabled(), False, True)[0]


program("recurrent/lstm_bf16")(lstm)


@both("recurrent/gru")
def gru(x, w, u, b, c):
    return torch.gru(x, start(x, u), [w, u, b, c], True, 1, 0.0, torch.is_grad_enabled(), False, True)[0]


@both("recurrent/vanilla")
def vanilla(x, w, u, b):
    return torch.rnn_tanh(x, start(x, u), [w, u, b, torch.zeros_like(b)], True, 1, 0.0, torch.is_grad_enabled(), False, True)[0]


@both("recurrent/minimal_gated")
def minimal_gated(x, wf, uf, wh, uh):
    h, outputs = x.new_zeros(x.shape[0], uf.shape[1]), []
    for now in x.unbind(1):
        f = torch.sigmoid(F.linear(now, wf) + F.linear(h, uf))
        h = (1 - f) * h + f * torch.tanh(F.linear(now, wh) + F.linear(f * h, uh))
        outputs.append(h)
    return torch.stack(outputs, 1)


@both("recurrent/selective_scan")
def selective_scan(x, dt, a, b, c):
    state, outputs = x.new_zeros(x.shape[0], *a.shape), []
    for i in range(x.shape[1]):
        step = F.softplus(dt[:, i])
        decay = torch.exp(step[..., None] * -torch.exp(a))
        state = decay * state + (step * x[:, i])[..., None] * b[:, i, None]
        outputs.append((state * c[:, i, None]).sum(-1))
    return torch.stack(outputs, 1)


@both("recurrent/linear_recurrence")
def linear_recurrence(x, gate):
    h, outputs = x.new_zeros(x.shape[0], x.shape[2]), []
    for i in range(x.shape[1]):
        h = torch.sigmoid(gate[:, i]) * h + x[:, i]
        outputs.append(h)
    return torch.stack(outputs, 1)
