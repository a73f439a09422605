#!/usr/bin/env bash
# usage: run.sh BUILD SOURCE   Installs egret, moves the prefix, and builds and runs a separate project against it.
set -euo pipefail
build=$1
source=$2
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

cmake --install "$build" --prefix "$work/first" >/dev/null
mv "$work/first" "$work/moved here"
! grep -rlE "$build|${source%/tests/consume}|$work/first" "$work/moved here" --include='*.cmake' ||
  { echo "the package names a folder of the build or of the first prefix"; exit 1; }
! grep -nE 'fmt|LLVM|nlohmann|ZLIB|SQLite' "$work/moved here"/lib*/cmake/egret/egret-targets*.cmake ||
  { echo "the package names a third party"; exit 1; }

cmake -S "$source" -B "$work/build" -G Ninja -DCMAKE_PREFIX_PATH="$work/moved here" >/dev/null
cmake --build "$work/build" >/dev/null || cmake --build "$work/build"
EGRET_CACHE=off "$work/build/consume" "$work"
"$work/build/late"
EGRET_CACHE=off "$work/moved here/bin/egret" info >/dev/null # which asks the code generator
echo "installed, moved, found, built and run"
