#!/usr/bin/env bash
# Checks and times egret on a machine with an NVIDIA GPU, from binaries made elsewhere:
#   ./x dist && ./x dist cuda_tests        (on the machine that builds)
#   run.sh build/dist/egret [build/dist/cuda_tests]
# First what is right, then what is fast, then one table. OUT: folder of the results (default
# gpu-results); NAMES: workloads (default: those judged on CUDA); SECONDS_EACH: most for one of them (400).
# Each workload verifies itself in the run that times it. Exit code 1 when anything was wrong.
set -uo pipefail
egret=$(realpath "${1:?usage: run.sh EGRET [CUDA_TESTS]}")
tests=${2:+$(realpath "$2")}
out=${OUT:-gpu-results}
mkdir -p "$out"
wrong=0

"$egret" info | tee "$out/info.txt"
if ! grep -q '^CUDA *driver' "$out/info.txt"; then
  echo "run.sh: there is no usable GPU here (see the line CUDA above)" >&2
  exit 1
fi
command -v nvidia-smi >/dev/null && nvidia-smi --query-gpu=name,driver_version,clocks.max.sm,memory.total --format=csv |
  tee "$out/gpu.txt"

if [ -n "$tests" ]; then
  "$tests" >"$out/tests.txt" 2>&1 || wrong=1
  tail -n 15 "$out/tests.txt"
fi
if "$egret" train addition --device cuda --steps 1500 --out "$out/addition.safetensors" --json >"$out/addition.json" 2>"$out/addition.txt"; then
  grep -o '"exact_match":[^,]*\|"tokens_per_second":[^,]*' "$out/addition.json"
else
  wrong=1
  tail -n 5 "$out/addition.txt"
fi

: >"$out/bench.jsonl"
: >"$out/errors.txt"
for name in ${NAMES:-$("$egret" bench --list | awk '$2 != "cpu" { print $1 }')}; do
  echo "-- $name" >&2
  timeout "${SECONDS_EACH:-400}" "$egret" bench "$name" --device cuda --json >>"$out/bench.jsonl" 2>"$out/error.txt"
  status=$?
  [ $status = 0 ] && continue
  wrong=1
  { echo "$name: exit code $status"; cat "$out/error.txt"; } | tee -a "$out/errors.txt" >&2
done

awk '
function field(key,   value) {
  if (!match($0, "\"" key "\":(\"[^\"]*\"|[^,}]*)")) return ""
  value = substr($0, RSTART + length(key) + 3, RLENGTH - length(key) - 3)
  gsub("\"", "", value)
  return value
}
BEGIN { printf "%-38s %10s %10s %10s %9s %9s %9s %8s %7s %9s %s\n", "workload", "median ms", "best ms", "TFLOP/s",
        "TB/s", "of limit", "of cuBLAS", "kernels", "compile", "peak GB", "verified" }
{
  ms = field("ms_median")
  tokens = field("tokens_per_second")
  printf "%-38s %10.4f %10.4f %10.2f %9.3f %9.3f %9s %8d %7.1f %9.2f %s (%s)%s\n", field("name"), ms, field("ms_min"),
    field("flops") / ms / 1e9, field("bytes") / ms / 1e9, field("of_ceiling"),
    field("of_cublas") == "" ? "-" : sprintf("%.3f", field("of_cublas")), field("kernels"), field("compile_seconds"),
    field("peak_bytes") / 1e9, field("verified"), field("max_error"),
    tokens == "" ? "" : sprintf("  %.1f tokens/s", tokens)
}' "$out/bench.jsonl" | tee "$out/table.txt"
cat "$out/errors.txt"
exit $wrong
