#!/usr/bin/env python3
"""The draws of `egret bench --sweep KIND --draws` in PyTorch.

    egret bench --sweep rows --count 20 --seed 1 --draws > draws.jsonl
    python3 bench/peers/sweep.py draws.jsonl --device cpu > peers.jsonl

For each draw one line a mode: eager, compile (torch.compile), and on CUDA graph (eager, recorded as a CUDA graph) and compile_graph
(mode max-autotune-no-cudagraphs would search; this is mode reduce-overhead's graphs, recorded by hand): {"kind", "params", "mode",
"ms_median", "ms_min"} or {..., "error"}. Timing follows tools/egret/bench_timing.cpp: on a CPU each run is waited for, short ones
several at a time, after 0.1 s of warming up; on CUDA rounds of 20 runs or more are queued and timed by the device's events, and inputs
alternate until they go beyond the cache.
"""
import argparse
import json
import math
import statistics
import sys
import time

import torch
import torch.nn.functional as F

DTYPES = {"bool": torch.bool, "u8": torch.uint8, "i8": torch.int8, "i32": torch.int32, "i64": torch.int64, "f16": torch.float16,
          "bf16": torch.bfloat16, "f32": torch.float32, "f64": torch.float64}


def positions(shape, below, spread, generator):
    count = math.prod(shape)
    if spread == "one":
        return torch.full(shape, below // 2)
    if spread == "ascending":
        return (torch.arange(count, dtype=torch.float64) / max(1, count) * below).long().reshape(shape)
    drawn = torch.randint(0, below, shape, generator=generator)
    if spread == "few":
        few = torch.randint(0, min(below, 4), shape, generator=generator)
        drawn = torch.where(torch.randint(0, 8, shape, generator=generator) == 0, drawn, few)
    return drawn


def make_input(spec, device, seed):
    """A tensor as the parameters say; one with a view is strided memory, as a PyTorch program would hold it."""
    generator = torch.Generator().manual_seed(seed)
    dtype = DTYPES[spec["dtype"]]
    shape = spec.get("base", spec["shape"])
    if "below" in spec:
        base = positions(shape, spec["below"], spec.get("spread", "uniform"), generator).to(dtype)
    elif dtype.is_floating_point:
        base = torch.randn(shape, generator=generator).to(dtype)
    else:
        low = 0 if dtype == torch.uint8 else -100
        base = torch.randint(low, low + 201, shape, generator=generator).to(dtype)
    base = base.to(device)
    if "base" not in spec:
        return base
    order = spec["permute"]
    for i, axis in enumerate(order):
        begin, step = spec["begin"][axis], spec["step"][axis]
        at = [slice(None)] * base.dim()
        at[axis] = slice(begin, begin + (spec["shape"][i] - 1) * step + 1, step)
        base = base[tuple(at)]
    return base.permute(order)


ELEMENTWISE = {
    "add": lambda a, b: a + b, "sub": lambda a, b: a - b, "mul": lambda a, b: a * b, "max": torch.maximum, "min": torch.minimum,
    "pick": lambda a, b, c: torch.where(a > b, a, c), "tanh": torch.tanh, "sigmoid": torch.sigmoid, "relu": torch.relu,
    "abs": torch.abs, "cos": torch.cos, "square": torch.square, "damp": lambda a: a / (a.abs() + 1),
    "root": lambda a: torch.sqrt(a.abs() + 0.5), "affine": lambda a: a * 2 + 1}


def elementwise(p):
    def run(*values):
        values = list(values)
        for name, *operands in p["chain"]:
            taken = [values[i] for i in operands]
            if name in ("max", "min"):
                kind = torch.promote_types(taken[0].dtype, taken[1].dtype)
                taken = [t.to(kind) for t in taken]
            values.append(ELEMENTWISE[name](*taken))
        return values[-1]
    return run


def transpose(p):
    if p["affine"]:
        return lambda a: (a * 2 + 1).permute(p["permute"]).contiguous()
    return lambda a: a.permute(p["permute"]).clone(memory_format=torch.contiguous_format)


def reduction(p):
    op, axes = p["op"], p["axes"]
    return {
        "sum": lambda a: a.sum(axes), "mean": lambda a: a.mean(axes), "max": lambda a: a.amax(axes),
        "var": lambda a: a.var(axes, correction=0), "norm": lambda a: torch.linalg.vector_norm(a, dim=axes),
        "argmax": lambda a: a.argmax(axes[0]), "logsumexp": lambda a: a.logsumexp(axes[0]),
        "softmax": lambda a: a.softmax(axes[0]), "log_softmax": lambda a: a.log_softmax(axes[0]),
        "layer_norm": lambda a, w, b: F.layer_norm(a, w.shape, w, b), "rms_norm": lambda a, w: F.rms_norm(a, w.shape, w, 1e-6)}[op]


def scan(p):
    axis = p["axis"]
    return {"cumsum": lambda a: a.cumsum(axis), "cummax": lambda a: a.cummax(axis), "logcumsumexp": lambda a: a.logcumsumexp(axis)}[p["op"]]


def convolution(p):
    run = [F.conv1d, F.conv2d, F.conv3d][len(p["kernel"]) - 1]
    return lambda a, w, b=None: run(a, w, b, p["stride"], p["padding"], p["dilation"], p["groups"])


def window(p):
    op = p["op"]
    if op == "depthwise":
        return convolution(p)
    if op == "max_pool":
        pool = [F.max_pool1d, F.max_pool2d, F.max_pool3d][len(p["kernel"]) - 1]
        return lambda a: pool(a, p["kernel"], p["stride"], p["padding"], p["dilation"])
    if op == "avg_pool":
        pool = [F.avg_pool1d, F.avg_pool2d, F.avg_pool3d][len(p["kernel"]) - 1]
        return lambda a: pool(a, p["kernel"], p["stride"], p["padding"])
    if op == "interpolate":
        mode = "linear" if len(p["sizes"]) == 1 else "bilinear"
        return lambda a: F.interpolate(a, p["sizes"], mode=mode)
    axes = range(-p["axes"], 0)

    def stencil(a):
        def part(begins):
            for axis, begin in begins.items():
                a_ = part.value.narrow(axis, begin, a.shape[axis] - 2)
                part.value = a_
            return part.value

        def at(begins):
            part.value = a
            return part(begins)
        total = at({axis: 1 for axis in axes}) * (-2.0 * p["axes"])
        for axis in axes:
            for begin in (0, 2):
                total = total + at({other: begin if other == axis else 1 for other in axes})
        return total
    return stencil


def gather(p):
    axis = p["axis"]
    if p["op"] == "gather":
        return lambda a, i: torch.gather(a, axis, i.long())

    def take(a, i):
        rows = a.index_select(axis, i.reshape(-1))
        return rows.reshape(a.shape[:axis] + i.shape + a.shape[axis + 1:])
    return take


def scatter(p):
    op, axis = p["op"], p.get("axis")
    return {
        "bincount": lambda i: torch.bincount(i, minlength=p["bins"]),
        "index_add": lambda a, i, u: a.index_add(axis, i, u), "index_put": lambda a, i, u: a.index_copy(axis, i.long(), u),
        "scatter_add": lambda a, i, u: a.scatter_add(axis, i.long(), u),
        "scatter_max": lambda a, i, u: a.scatter_reduce(axis, i.long(), u, "amax")}[op]


def order(p):
    axis, descending = p["axis"], p["descending"]
    return {
        "sort": lambda a: torch.sort(a, dim=axis, descending=descending, stable=True),
        "argsort": lambda a: torch.argsort(a, dim=axis, descending=descending, stable=True),
        "topk": lambda a: torch.topk(a, p["k"], dim=axis, largest=descending)}[p["op"]]


def small(p):
    op = p["op"]
    width = {"sgd": 2, "momentum": 3, "adam": 4}[op]

    def run(*values):
        columns = [list(values[i::width]) for i in range(width)]  # the fastest way: one call for all tensors
        if op == "sgd":
            return torch._foreach_add(columns[0], columns[1], alpha=-0.01)
        if op == "momentum":
            moments = torch._foreach_add(torch._foreach_mul(columns[2], 0.9), columns[1])
            return torch._foreach_add(columns[0], moments, alpha=-0.01), moments
        first = torch._foreach_add(torch._foreach_mul(columns[2], 0.9), columns[1], alpha=0.1)
        second = torch._foreach_addcmul(torch._foreach_mul(columns[3], 0.99), columns[1], columns[1], value=0.01)
        below = torch._foreach_add(torch._foreach_sqrt(torch._foreach_abs(second)), 1e-4)
        return torch._foreach_addcdiv(columns[0], first, below, value=-0.001), first, second
    return run


def recurrent(p):
    width, cell = p["width"], p["cell"]

    def run(x, w, u, b, c):
        scale = 1 / math.sqrt(width)
        weights = [t * scale for t in (w, u, b, c)]
        start = x.new_zeros(1, x.shape[0], width)
        if cell == "lstm":
            return torch.lstm(x, (start, start), weights, True, 1, 0.0, False, False, True)[0]
        plain = torch.gru if cell == "gru" else torch.rnn_tanh
        return plain(x, start, weights, True, 1, 0.0, False, False, True)[0]
    return run


def contraction(p):
    def run(a, b, c=None):
        left = a.t() if p["left_turned"] else a
        y = left @ (b.t() if p["right_turned"] else b) * (1 / math.sqrt(left.shape[1]))
        if c is not None:
            y = y + c
        return F.gelu(y) if p["epilogue"] == "bias_gelu" else y
    return run


def batched(p):
    return lambda a, b: a @ b * (1 / math.sqrt(a.shape[2]))


def quantized(p):
    bits, group = p["bits"], p["group"]

    def run(x, packed, scale):
        shifts = torch.arange(0, 8, bits, device=x.device, dtype=torch.uint8)
        values = (packed[..., None] >> shifts & (2**bits - 1)).reshape(packed.shape[0], -1, group)
        weight = ((values.to(x.dtype) - 2**(bits - 1)) * scale[..., None]).reshape(packed.shape[0], -1)
        return x @ weight.t() * (2.0**-bits / math.sqrt(x.shape[1]))
    return run


def attention(p):
    window, softcap = p.get("window"), p.get("softcap")

    def run(q, k, v):
        shared = q.shape[1] != k.shape[1]
        queries, keys = q.shape[2], k.shape[2]
        if softcap is None and window is None and (not p["causal"] or queries == keys):
            return F.scaled_dot_product_attention(q, k, v, is_causal=p["causal"], enable_gqa=shared)
        i = torch.arange(queries, device=q.device)[:, None] + (keys - queries)
        j = torch.arange(keys, device=q.device)[None, :]
        seen = None
        if p["causal"]:
            seen = j <= i
        if window is not None:
            seen = (i - j < window) if seen is None else seen & (i - j < window)
        if softcap is None:
            return F.scaled_dot_product_attention(q, k, v, attn_mask=seen, enable_gqa=shared)
        if shared:
            k, v = (t.repeat_interleave(q.shape[1] // k.shape[1], 1) for t in (k, v))
        scores = softcap * torch.tanh(q @ k.transpose(-1, -2) / math.sqrt(q.shape[3]) / softcap)
        if seen is not None:
            scores = scores.masked_fill(~seen, -math.inf)
        return scores.softmax(-1) @ v
    return run


KINDS = {
    "elementwise": elementwise, "transpose": transpose, "rows": reduction, "columns": reduction, "scan": scan, "window": window,
    "gather": gather, "scatter": scatter, "sort": order, "topk": order, "small": small, "recurrent": recurrent,
    "contraction": contraction, "batched": batched, "convolution": convolution, "attention": attention, "decode": attention,
    "quantized": quantized}


def clock_times(run, seconds, reps):
    begin = time.perf_counter()
    run()
    together = max(1, int(1e-3 / max(1e-9, time.perf_counter() - begin)))

    def round_():
        begin = time.perf_counter()
        for _ in range(together):
            run()
        return time.perf_counter() - begin
    spent = 0
    while spent < 0.1:
        spent += round_()
    times, spent = [], 0
    while not ((spent >= seconds and len(times) >= reps) or (spent > 10 * seconds and len(times) >= 3)):
        taken = round_()
        spent += taken
        times.append(taken / together)
    return times


def event_times(run, seconds, reps):
    reps = max(20, reps)
    filler = torch.empty(1 << 26, device="cuda")
    begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    for _ in range(2):
        torch.cuda.synchronize()
        start = time.perf_counter()
        for _ in range(reps):
            run()
        queueing = time.perf_counter() - start
    torch.cuda.synchronize()
    fill = min(0.25, 1.25 * queueing + 1e-3)
    times, start = [], time.perf_counter()
    while True:
        torch.cuda._sleep(int(fill * 1.5e9))  # keeps the device busy while the host queues the runs
        begin.record()
        for _ in range(reps):
            run()
        end.record()
        end.synchronize()
        times.append(begin.elapsed_time(end) * 1e-3 / reps)
        spent = time.perf_counter() - start
        if (spent >= seconds and len(times) >= 5) or (spent > 10 * seconds and len(times) >= 3):
            del filler
            return times


def graphed(function, sets):
    """One CUDA graph for each set of inputs."""
    recorded = []
    for inputs in sets:
        stream = torch.cuda.Stream()
        with torch.cuda.stream(stream):
            for _ in range(3):
                function(*inputs)
        torch.cuda.current_stream().wait_stream(stream)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            kept = function(*inputs)
        recorded.append((graph, kept))
    turn = iter(range(1 << 62))
    return lambda: recorded[next(turn) % len(recorded)][0].replay()


def timed(draw, mode, args):
    function = KINDS[draw["kind"]](draw["params"])
    specs = draw["params"]["inputs"]
    cuda = args.device.startswith("cuda")
    count = 1
    sets = [[make_input(spec, args.device, 100 * s + i) for i, spec in enumerate(specs)] for s in range(count)]
    if cuda:
        size = sum(t.numel() * t.element_size() for t in sets[0])
        beyond = 3 * torch.cuda.get_device_properties(args.device).L2_cache_size
        count = int(min(32, max(1, beyond / max(1, size)))) + (size < beyond)
        sets += [[make_input(spec, args.device, 100 * s + i) for i, spec in enumerate(specs)] for s in range(1, count)]
    if mode.startswith("compile"):
        torch._dynamo.reset()
        function = torch.compile(function, dynamic=False)
    turn = iter(range(1 << 62))
    begin = time.perf_counter()
    with torch.no_grad():
        function(*sets[0])
        if cuda:
            torch.cuda.synchronize()
        compile_seconds = time.perf_counter() - begin
        run = graphed(function, sets) if mode.endswith("graph") else lambda: function(*sets[next(turn) % len(sets)])
        times = sorted((event_times if cuda else clock_times)(run, args.seconds, args.reps))
    return {"ms_median": 1e3 * statistics.median_high(times), "ms_min": 1e3 * times[0],
            "compile_seconds": max(0.0, compile_seconds - times[len(times) // 2])}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file", help="draws, or the results of egret bench --sweep --json; - for stdin")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--modes", help="of eager, compile, graph, compile_graph; the last two on CUDA only")
    parser.add_argument("--seconds", type=float, default=1)
    parser.add_argument("--reps", type=int, default=20)
    parser.add_argument("--threads", type=int, default=0)
    args = parser.parse_args()
    if args.threads:
        torch.set_num_threads(args.threads)
    cuda = args.device.startswith("cuda")
    modes = args.modes.split(",") if args.modes else ["eager", "compile"] + (["graph", "compile_graph"] if cuda else [])
    torch.backends.cudnn.benchmark = True
    failed = False
    for text in (sys.stdin if args.file == "-" else open(args.file)):
        draw = json.loads(text)
        if "params" not in draw:  # a summary
            continue
        for mode in modes:
            line = {"kind": draw["kind"], "seed": draw["seed"], "index": draw["index"], "params": draw["params"], "mode": mode,
                    "torch": torch.__version__}
            try:
                line.update(timed(draw, mode, args))
            except Exception as error:  # one that PyTorch cannot do is a line, not the end
                line["error"] = f"{type(error).__name__}: {error}".split("\n")[0]
                failed = True
            print(json.dumps(line), flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
