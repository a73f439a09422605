#!/usr/bin/env bash
# run.sh EGRET GRAPHS: the viewer in a real browser, over records that the command EGRET and the program GRAPHS (tests/viewer_graphs)
# write. Exits with 77 where node, npm or Chromium are missing. The page that the command carries must be the one that viewer/ builds.
set -euo pipefail
egret=$(realpath "$1") graphs=$(realpath "$2")
cd "$(dirname "${BASH_SOURCE[0]}")/.."
browser=$(command -v chromium || command -v chromium-browser || command -v google-chrome || true)
for program in node npm; do
  command -v $program >/dev/null || { echo "viewer: no $program here: not tested"; exit 77; }
done
[ -n "$browser" ] || { echo "viewer: no Chromium here: not tested"; exit 77; }
[ -d node_modules ] || npm ci --silent --no-audit --no-fund || { echo "viewer: npm ci failed; is there a network?"; exit 77; }
npx --no-install tsc --noEmit
node build.mjs --check
exec node test/browser.mjs "$egret" "$graphs" "$browser"
