#!/usr/bin/env bash
# Times searched plans against greedy ones, both in turn in one run, each search starting with an empty database; for an idle machine.
# usage: bench/search_against_greedy.sh [NAME...]     (EGRET: the command; BUDGET: seconds of a search; PREFIX: what the command is run by, as `chrt -f 1`
# where other programs run; PAUSE: seconds between workloads; all take about 12 minutes)
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
egret=${EGRET:-build/bin/egret} budget=${BUDGET:-20}
names=("$@")
[ ${#names[@]} -gt 0 ] || names=(matmul_f32_256 matmul_f32_512 matmul_f32_1024 matmul_f32_2048 matmul_bf16_512 matmul_bf16_1024 matmul_bf16_2048
  linear_relu_f32_256x784x512 gemv_bf16_4096x4096_x8 gelu_f32_4096x1024 softmax_f32_4096x4096 layernorm_f32_4096x1024
  tanh_affine_f32_16m mnist_mlp_train_f32_b64 attention_causal_f32_b1h8s1024d64 gpt_tiny_train_f32 llama_110m_decode_f32)
folder=$(mktemp -d); trap 'rm -rf "$folder"' EXIT
echo "load before: $(cut -d' ' -f1-3 /proc/loadavg)"
for name in "${names[@]}"; do
  rm -rf "$folder/cache"
  EGRET_CACHE=$folder/cache timeout 150 ${PREFIX:-} "$egret" bench "$name" --effort search --budget "$budget" --against greedy --seconds "${SECONDS_EACH:-5}" --reps 15 \
    --json >>"$folder/all.json" 2>"$folder/err" || echo "$name: did not end, or is wrong: $(tail -1 "$folder/err")"
  sleep "${PAUSE:-0}"
done
python3 - "$folder/all.json" <<'PY'
import json, sys
rows = [json.loads(line) for line in open(sys.argv[1])]
print(f"{'workload':36} {'greedy ms':>10} {'searched ms':>11} {'ratio':>6}  half of the rounds  rounds  candidates  search s  verified")
for r in rows:
    print(f"{r['name']:36} {r['against_ms']:10.4f} {r['against_ms'] * r['ratio']:11.4f} {r['ratio']:6.3f}  "
          f"{r['ratio_low']:.3f} to {r['ratio_high']:.3f}    {r['rounds']:6}  {r['candidates']:10}  {r['search_seconds']:8.1f}  {r['verified']}")
faster = sum(r["ratio"] < 0.98 for r in rows)
slower = [r["name"] for r in rows if r["ratio"] > 1 / 0.98]
print(f"{faster} of {len(rows)} are faster by more than 2 %; slower by more than 2 %: {', '.join(slower) or 'none'}")
PY
echo "load after: $(cut -d' ' -f1-3 /proc/loadavg)"
