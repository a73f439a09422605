#!/usr/bin/env bash
# run.sh [FOLDER]: looks for the words that docs/glossary.md replaces, as retired_words.txt lists them. Prints FILE:LINE, the word
# found, the word to write and the line; exits with 1 when there is one. Needs grep, and git where FOLDER is a working tree.
set -euo pipefail
list=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)/retired_words.txt
cd "${1:-$(dirname "${BASH_SOURCE[0]}")/../..}"
where=(include src tools docs examples tests README.md CHANGELOG.md)
tab=$'\t'

# An exported tree, also one inside of another repository, has no .git of its own.
files() {
  if [ -e .git ]; then git ls-files -z -- "${where[@]}"; else find "${where[@]}" -type f -print0; fi |
    grep -zvE "$(sed -n "s/^exempt$tab//p" "$list" | paste -sd'|')"
}

found=0 rules=0
while IFS=$tab read -r regex instead not_in; do
  case $regex in '' | '#'* | exempt) continue ;; esac
  [ -n "$instead" ] || { echo "$list: no word to write instead of $regex" >&2; exit 2; }
  rules=$((rules + 1))
  status=0
  hits=$(files | { [ -z "$not_in" ] && cat || grep -zvE "$not_in"; } | xargs -0 grep -nHsIE -e "$regex") || status=$?
  # 123: xargs found a batch of files without a hit, or with an error that grep named.
  [ $status = 0 ] || [ $status = 1 ] || [ $status = 123 ] || exit 2
  [ -n "$hits" ] || continue
  found=1
  while IFS= read -r hit; do
    place=$(cut -d: -f1,2 <<<"$hit") line=$(cut -d: -f3- <<<"$hit")
    word=$(grep -oE -e "$regex" <<<"$line" | head -n1)
    printf '%s: "%s": write %s:%s\n' "$place" "$word" "$instead" " ${line#"${line%%[![:space:]]*}"}"
  done <<<"$hits"
done <"$list"
[ $rules -gt 0 ] || { echo "$list: no rules" >&2; exit 2; }
exit $found
