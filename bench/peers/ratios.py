#!/usr/bin/env python3
"""How fast egret is beside PyTorch on the same draws, or the same programs.

    python3 bench/peers/ratios.py egret.jsonl peers.jsonl [--json] [--below R]

Joins the lines of `egret bench --sweep KIND --json` with those of sweep.py by their parameters, and those of `programs` with those of
programs.py by their names; the part of a name before "/" is its kind. A ratio is the time of PyTorch's fastest mode over egret's: above 1
egret is faster. For each kind and for all of them: how many draws, the geometric mean, the median, how many are below 0.5 and 0.9, and the
worst five; with --below all of all kinds below R, worst first.
"""
import argparse
import json
import math
import statistics
import sys


def lines_of(path):
    with open(path) as file:
        for text in file:
            line = json.loads(text)
            if "name" in line:
                yield line["name"], {**line, "kind": line["name"].split("/")[0], "ok": "ms_median" in line}
            elif "params" in line:
                yield (line["kind"], json.dumps(line["params"], sort_keys=True)), line


def summary(kind, rows):
    ratios = sorted(row["ratio"] for row in rows)
    return {"kind": kind, "draws": len(rows), "geometric_mean": math.exp(sum(map(math.log, ratios)) / len(ratios)),
            "median": statistics.median(ratios), "worst": ratios[0], "below_half": sum(r < 0.5 for r in ratios),
            "below_0.9": sum(r < 0.9 for r in ratios), "worst_draws": sorted(rows, key=lambda row: row["ratio"])[:5]}


def show(row):
    ratio = f"  {row['ratio']:.2f} ({row['ms']:.3f} ms, {row['mode']} {row['peer_ms']:.3f})"
    if "name" in row:
        print(f"{ratio} {row['name']}, kernels: {row['kernels']}")
        return
    print(f"{ratio} {row['kind']} --seed {row['seed']} --only {row['index']}\n    {json.dumps(row['params'])}")
    for schedule in row["schedules"]:
        print(f"    {schedule}")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("egret")
    parser.add_argument("peers")
    parser.add_argument("--json", action="store_true", help="one JSON object a kind")
    parser.add_argument("--below", type=float, metavar="R", help="then all that are below R")
    args = parser.parse_args()
    own = dict(lines_of(args.egret))
    best = {}
    for key, line in lines_of(args.peers):
        if "ms_median" in line and (key not in best or line["ms_median"] < best[key]["ms_median"]):
            best[key] = line
    rows = [{"kind": line["kind"], "ratio": best[key]["ms_median"] / line["ms_median"], "ms": line["ms_median"],
             "peer_ms": best[key]["ms_median"], "mode": best[key]["mode"],
             **{k: line[k] for k in ("name", "kernels", "seed", "index", "params") if k in line}, "schedules": line.get("schedules", [])}
            for key, line in own.items() if line.get("ok") and key in best]
    if not rows:
        sys.exit("ratios: nothing has a time on both sides")
    left = sum(not line.get("ok") for line in own.values()), sum(key not in best for key in own)
    kinds = list(dict.fromkeys(row["kind"] for row in rows))
    for kind in kinds + (["all"] if len(kinds) > 1 else []):
        s = summary(kind, [row for row in rows if kind in (row["kind"], "all")])
        if args.json:
            print(json.dumps(s))
            continue
        print(f"{kind}: {s['draws']} draws, geometric mean {s['geometric_mean']:.2f}, median {s['median']:.2f}, worst {s['worst']:.2f}, "
              f"{s['below_half']} below 0.5, {s['below_0.9']} below 0.9")
        for row in s["worst_draws"]:
            show(row)
    if args.below and not args.json:
        below = sorted((row for row in rows if row["ratio"] < args.below), key=lambda row: row["ratio"])
        print(f"{len(below)} of {len(rows)} below {args.below}:")
        for row in below:
            show(row)
    print(f"left out: {left[0]} that failed in egret, {left[1]} without a time of PyTorch", file=sys.stderr)


if __name__ == "__main__":
    main()
