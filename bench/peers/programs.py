#!/usr/bin/env python3
"""The programs of bench/programs in PyTorch: times, and values compared with egret's.

    programs --list > list.jsonl
    programs --save results > egret.jsonl
    python3 bench/peers/programs.py list.jsonl --compare results > peers.jsonl
    python3 bench/peers/ratios.py egret.jsonl peers.jsonl

For each program one line a mode: eager, compile (torch.compile), and on CUDA graph and compile_graph (both recorded as CUDA graphs): {"name",
"mode", "ms_median", "ms_min"} or {..., "error"}. With --compare the eager results, of f32 where inputs are bf16, are compared first with those
that `programs --save` wrote of the same --scale: {"name", "mode": "compare", "ok", "worst"}, where `worst` is the largest difference in
tolerances. Inputs are those of bench/programs/inputs.cpp. Timing is that of sweep.py. Gradients are taken outside of what torch.compile sees, as it takes them itself.
"""
import argparse
import fnmatch
import json
import pathlib
import statistics
import sys
import time

import numpy
import torch

from families import PROGRAMS
from sweep import DTYPES, clock_times, event_times, graphed

# By dtype; of an element's magnitude plus the root mean square of all.
TOLERANCES = {"f64": 1e-9, "f32": 2e-4, "bf16": 3e-2, "f16": 4e-3}


def hashed(at):
    with numpy.errstate(over="ignore"):
        z = (at + numpy.uint64(1)) * numpy.uint64(0x9E3779B97F4A7C15)
        z = (z ^ (z >> numpy.uint64(30))) * numpy.uint64(0xBF58476D1CE4E5B9)
        z = (z ^ (z >> numpy.uint64(27))) * numpy.uint64(0x94D049BB133111EB)
        return z ^ (z >> numpy.uint64(31))


def make_input(spec, index, number, device):
    """Input `number` of set `index`, as make() of bench/programs/inputs.cpp."""
    count = int(numpy.prod(spec["shape"], dtype=numpy.int64))
    bits = hashed(numpy.arange(count, dtype=numpy.uint64) + numpy.uint64((1000 * index + number) << 40))
    if "below" in spec:
        values = ((bits >> numpy.uint64(33)) % numpy.uint64(spec["below"])).astype(numpy.int64)
    else:
        u = (bits >> numpy.uint64(40)).astype(numpy.float64) / (1 << 23) - 1
        values = (u * spec["scale"] + spec["shift"]).astype(numpy.float32)
    return torch.from_numpy(values.reshape(spec["shape"])).to(DTYPES[spec["dtype"]]).to(device)


def make_set(line, program, index, device, precise=False):
    """Inputs as the line says; with `precise` those of 16 bits hold the same values in f32."""
    inputs = [make_input(spec, index, i, device) for i, spec in enumerate(line["inputs"])]
    if precise:
        inputs = [t.float() if t.dtype in (torch.bfloat16, torch.float16) else t for t in inputs]
    for i in program.differentiated(len(inputs)):
        inputs[i].requires_grad_(True)
    return inputs


def runner(program, count, compiled):
    """A function of the inputs that gives all results."""
    function, update = program.function, program.update
    if compiled:
        torch._dynamo.reset()
        function = torch.compile(function, dynamic=False)
        update = update and torch.compile(update, dynamic=False)
    by = program.differentiated(count)
    if not by:
        def run(*inputs):
            with torch.no_grad():
                results = function(*inputs)
            return results if isinstance(results, (tuple, list)) else (results,)
        return run

    def train(*inputs):
        loss = function(*inputs)
        gradients = torch.autograd.grad(loss, [inputs[i] for i in by])
        with torch.no_grad():
            return update(inputs, loss.detach(), gradients) if update else (loss.detach(), *gradients)
    return train


def compared(line, results, folder):
    """Whether what egret saved is the same, and the largest difference in tolerances."""
    base = pathlib.Path(folder) / line["name"]
    saved = json.loads(pathlib.Path(f"{base}.json").read_text())
    if len(saved) != len(results):
        return {"ok": False, "what": f"{len(saved)} results, not {len(results)}"}
    worst = 0.0
    for i, (spec, expected) in enumerate(zip(saved, results)):
        if spec["shape"] != list(expected.shape):
            return {"ok": False, "what": f"result {i} has shape {spec['shape']}, not {list(expected.shape)}"}
        raw = bytearray(pathlib.Path(f"{base}.{i}.raw").read_bytes())
        got = torch.frombuffer(raw, dtype=DTYPES[spec["dtype"]]).reshape(spec["shape"]).double() if raw else expected.double()
        want = expected.detach().cpu().double()
        if not expected.dtype.is_floating_point:
            apart = int((got != want).sum())
            if apart:
                return {"ok": False, "what": f"result {i}: {apart} of {want.numel()} integers differ"}
            continue
        tolerance = max(TOLERANCES.get(spec["dtype"], 0.0), TOLERANCES[next(k for k, v in DTYPES.items() if v == expected.dtype)])
        allowed = tolerance * (want.abs() + want.square().mean().sqrt() + 1e-30)
        apart = torch.where((got == want) | (got.isnan() & want.isnan()), 0.0, (got - want).abs() / allowed)
        most = float(apart.nan_to_num(nan=1e30, posinf=1e30).max()) if apart.numel() else 0.0
        worst = max(worst, most)
        if most > 1:
            at = int(apart.nan_to_num(nan=1e30, posinf=1e30).argmax())
            return {"ok": False, "worst": most, "what": f"result {i} element {at}: {got.flatten()[at]:.9g}, not {want.flatten()[at]:.9g}"}
    return {"ok": True, "worst": worst}


def timed(line, program, mode, args):
    cuda = args.device.startswith("cuda")
    sets = [make_set(line, program, 0, args.device)]
    if cuda:
        size = sum(t.numel() * t.element_size() for t in sets[0])
        beyond = 3 * torch.cuda.get_device_properties(args.device).L2_cache_size
        count = int(min(32, max(1, beyond / max(1, size)))) + (size < beyond)
        sets += [make_set(line, program, i, args.device) for i in range(1, count)]
    function = runner(program, len(sets[0]), mode.startswith("compile"))
    turn = iter(range(1 << 62))
    begin = time.perf_counter()
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
    parser.add_argument("file", help="what `programs --list` printed; - for stdin")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--modes", help="of eager, compile, graph, compile_graph; the last two on CUDA only; none: only compare")
    parser.add_argument("--compare", metavar="DIR", help="what `programs --save` wrote")
    parser.add_argument("--only", default="*")
    parser.add_argument("--shard", default="0/1", metavar="K/N", help="every N-th program, from the K-th (from 0)")
    parser.add_argument("--seconds", type=float, default=0.5)
    parser.add_argument("--reps", type=int, default=5)
    parser.add_argument("--threads", type=int, default=0)
    args = parser.parse_args()
    if args.threads:
        torch.set_num_threads(args.threads)
    cuda = args.device.startswith("cuda")
    modes = args.modes.split(",") if args.modes else ["eager", "compile"] + (["graph", "compile_graph"] if cuda else [])
    modes = [mode for mode in modes if mode != "none"]
    torch.backends.cudnn.benchmark = True
    torch.backends.cudnn.allow_tf32 = torch.backends.cuda.matmul.allow_tf32 = False  # f32 is f32
    failed = False

    def report(line, mode, measure):
        nonlocal failed
        result = {"name": line["name"], "mode": mode, "torch": torch.__version__}
        try:
            result.update(measure())
        except Exception as error:  # one that PyTorch cannot do is a line, not the end
            result["error"] = f"{type(error).__name__}: {error}".split("\n")[0]
        failed = failed or "error" in result or not result.get("ok", True)
        print(json.dumps(result), flush=True)

    shard, shards = map(int, args.shard.split("/"))
    for number, text in enumerate(sys.stdin if args.file == "-" else open(args.file)):
        line = json.loads(text)
        if number % shards != shard or not fnmatch.fnmatch(line["name"], args.only):
            continue
        program = PROGRAMS[line["name"]]

        def compare():
            inputs = make_set(line, program, 0, args.device, precise=True)
            return compared(line, runner(program, len(inputs), False)(*inputs), args.compare)
        if args.compare:
            report(line, "compare", compare)
        for mode in modes:
            report(line, mode, lambda: timed(line, program, mode, args))
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
