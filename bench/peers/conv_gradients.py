#!/usr/bin/env python3
"""The gradients of convolutions of `egret bench 'conv2d_d*'` in PyTorch.

    python3 bench/peers/conv_gradients.py NAME... > peers.jsonl

For each name one line: {"name", "mode", "ms_median", "ms_min"}, of cuDNN in its benchmark mode, recorded as a CUDA graph. All tensors lie in memory
as the name says; `mode` is "graph", and "graph_last" or "graph_first" with the memory in the other order, which counts if it is faster. Inputs
alternate until they go beyond the second cache. On a CPU: eager, as a check of this file.
"""
import json
import re
import statistics
import sys
import time

import torch

DTYPES = {"bf16": torch.bfloat16, "f16": torch.float16, "f32": torch.float32}
NAME = re.compile(r"conv2d_(d[xw])_(\w+?)_(\d+)x(\d+)x(\d+)x(\d+)to(\d+)k(\d+)(?:s(\d+))?$")


def case(name):
    by, dtype, batch, a, b, c, outputs, kernel, stride = NAME.match(name).groups()
    a, b, c = int(a), int(b), int(c)
    last = a == b
    size, channels = (a, c) if last else (b, a)
    kernel, stride = int(kernel), int(stride or 1)
    return {"weight": by == "dw", "dtype": DTYPES[dtype], "data": (int(batch), channels, size, size),
            "kernel": (int(outputs), channels, kernel, kernel), "stride": stride, "padding": kernel // 2, "last": last}


def one_set(p, device, last):
    order = torch.channels_last if last else torch.contiguous_format
    n, _, size, _ = p["data"]
    k, _, kernel, _ = p["kernel"]
    result = (size + 2 * p["padding"] - kernel) // p["stride"] + 1
    make = lambda shape: torch.randn(shape, device=device, dtype=torch.float32).to(p["dtype"]).contiguous(memory_format=order)
    return make((n, k, result, result)), make(p["data"]), make(p["kernel"])


def gradient(p, seed, data, weight):
    mask = [not p["weight"], p["weight"], False]
    both = torch.ops.aten.convolution_backward(seed, data, weight, None, [p["stride"]] * 2, [p["padding"]] * 2, [1, 1], False, [0, 0], 1, mask)
    return both[1 if p["weight"] else 0]


def measure_cuda(p, last):
    sets = [one_set(p, "cuda", last)]
    size = sum(t.numel() * t.element_size() for t in sets[0])
    while len(sets) * size < 200e6 and len(sets) < 32:
        sets.append(one_set(p, "cuda", last))
    for s in sets:
        gradient(p, *s)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    runs = max(20, len(sets))
    with torch.cuda.graph(graph):
        kept = [gradient(p, *sets[i % len(sets)]) for i in range(runs)]
    times = []
    for _ in range(3):
        graph.replay()
    for _ in range(15):
        begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        begin.record()
        graph.replay()
        end.record()
        torch.cuda.synchronize()
        times.append(begin.elapsed_time(end) / runs)
    del kept
    return times


def measure_cpu(p, last):
    s, times = one_set(p, "cpu", last), []
    for _ in range(3):
        begin = time.perf_counter()
        gradient(p, *s)
        times.append((time.perf_counter() - begin) * 1e3)
    return times


def main():
    torch.backends.cudnn.benchmark = True
    torch.backends.cudnn.allow_tf32 = torch.backends.cuda.matmul.allow_tf32 = False
    cuda = torch.cuda.is_available()
    for name in sys.argv[1:]:
        p = case(name)
        for last in (p["last"], not p["last"]):
            times = (measure_cuda if cuda else measure_cpu)(p, last)
            mode = "graph" if last == p["last"] else "graph_last" if last else "graph_first"
            print(json.dumps({"name": name, "mode": mode if cuda else mode.replace("graph", "eager"),
                              "ms_median": round(statistics.median(times), 5), "ms_min": round(min(times), 5)}), flush=True)


if __name__ == "__main__":
    main()
