#!/bin/sh
# Fails if the bubblewrap engine's filter of system calls is not what Docker's profile compiles to. Needs Debian 12's
# libseccomp, whose Python module it installs as scripts/generate.sh does.
#
# Usage: scripts/check-filter.sh [--yes] [--write]
#   --yes    install what is missing without asking; the same as CI=true
#   --write  write the filter instead
set -eu
cd -- "$(dirname -- "$0")/.."
. scripts/common.sh

write=false
while [ $# -gt 0 ]; do
  case $1 in
    --yes) agreed=true ;;
    --write) write=true ;;
    -h | --help) usage; exit 0 ;;
    *) fail "$0: unknown option $1 (try --help)" ;;
  esac
  shift
done

target=src/engine/bubblewrap/filter-programs.ts
/usr/bin/python3 -c 'import seccomp' 2>/dev/null ||
  install_packages "libseccomp compiles the filter of system calls, and its Python module is missing" python3-seccomp

fresh=$(mktemp)
trap 'rm -f -- "$fresh"' EXIT
trap 'exit 130' INT
trap 'exit 143' TERM
scripts/generate-filter.py >"$fresh"
if [ "$write" = true ]; then
  cat -- "$fresh" >"$target"
elif ! cmp -s "$fresh" "$target"; then
  fail "$target is not what third_party/moby/seccomp-default.json compiles to." \
    "Fix it, on Debian 12, with: scripts/check-filter.sh --write"
fi
echo "$target is what Docker's profile compiles to."
