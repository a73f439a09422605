#!/bin/sh
# trace_test.sh PROGRAMS FOLDER: the trace that `programs --trace` writes has a launch.
set -eu
rm -rf "$2"
"$1" --device cpu --scale small --only network/tiny_step --reps 3 --seconds 0.001 --trace "$2"
grep -q '"traceEvents"' "$2/network/tiny_step.json"
grep -q '"schedule"' "$2/network/tiny_step.json"
