#!/bin/sh
# Fails when gen/ is not what proto/ generates. Takes the options of generate.sh
# except --output.
set -eu
cd -- "$(dirname -- "$0")/.."

fresh=$(mktemp -d)
trap 'rm -rf -- "$fresh"' EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

scripts/generate.sh "$@" --output "$fresh"
if ! stale=$(diff -rq --exclude=__pycache__ gen "$fresh/gen"); then
  echo "gen/ is not what proto/ generates:" >&2
  printf '%s\n' "$stale" | sed "s|$fresh/gen|generated|g; s|^|  |" >&2
  echo "Mend it with: scripts/generate.sh" >&2
  exit 1
fi
echo "gen/ is what proto/ generates."
