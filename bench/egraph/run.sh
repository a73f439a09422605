#!/bin/bash
# run.sh EGRET [TIMES] [PROGRAM]: runs a program several times with one thread and with two, checks that both print the same, and
# shows each run's --stats line and processor time. Read the least: other work on the machine only adds.
set -eu
egret=$1 times=${2:-5} program=${3:-$(dirname "$0")/math.egg}
scratch=$(mktemp -d)
trap 'rm -r "$scratch"' EXIT
for threads in 1 2; do
  for ((i = 0; i < times; ++i)); do
    TIMEFORMAT='   processor time %U s user, %S s system'
    echo -n "-j $threads  "
    time "$egret" egraph run --stats -j "$threads" "$program" >"$scratch/$threads" 2>"$scratch/stats"
    grep ' rows, ' "$scratch/stats"
  done
done
cmp "$scratch/1" "$scratch/2"
