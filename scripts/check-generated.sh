#!/bin/sh
# Fails if gen/ or docs/api is not what proto/ generates. Takes the options of generate.sh except --output; with --ts it
# does not check gen/python.
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
for dir in "$checked" docs/api; do
  if ! stale=$(diff -rq --exclude=__pycache__ "$dir" "$fresh/$dir"); then
    echo "$dir/ is not what proto/ generates:" >&2
    printf '%s\n' "$stale" | sed "s|$fresh/|generated |g; s|^|  |" >&2
    echo "Fix it with: scripts/generate.sh" >&2
    exit 1
  fi
done
echo "$checked/ and docs/api/ are what proto/ generates."
