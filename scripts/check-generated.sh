#!/bin/sh
# Fails when gen/ is not what proto/ generates. Takes the options of generate.sh
# except --output; with --ts it checks gen/ts alone.
set -eu
cd -- "$(dirname -- "$0")/.."

checked=gen
for option do
  [ "$option" != --ts ] || checked=gen/ts
done

fresh=$(mktemp -d)
trap 'rm -rf -- "$fresh"' EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

scripts/generate.sh "$@" --output "$fresh"
if ! stale=$(diff -rq --exclude=__pycache__ "$checked" "$fresh/$checked"); then
  echo "$checked/ is not what proto/ generates:" >&2
  printf '%s\n' "$stale" | sed "s|$fresh/gen|generated|g; s|^|  |" >&2
  echo "Fix it with: scripts/generate.sh" >&2
  exit 1
fi
echo "$checked/ is what proto/ generates."
