#!/bin/sh
# Makes sure that Debian's nginx is in ~/.cache/berth/nginx, for tests. It is extracted from its package instead of
# installed, because an installed one would start.
#
# Usage: scripts/nginx.sh [--yes]
#   --yes  asks nothing; the same as CI=true in the environment
set -eu
root=$(CDPATH='' cd -- "$(dirname -- "$0")/.." && pwd)
# shellcheck source=scripts/common.sh
. "$root/scripts/common.sh"
take_only_yes "$@"

cache=${XDG_CACHE_HOME:-$HOME/.cache}/berth/nginx

if ! "$cache/usr/sbin/nginx" -v >/dev/null 2>&1; then
  command -v apt-get >/dev/null && command -v dpkg-deb >/dev/null ||
    fail "Tests of deploy/nginx.conf require Debian's apt-get and dpkg-deb."
  say "Downloading nginx ..."
  work=$(mktemp -d)
  trap 'rm -rf -- "$work"' EXIT
  cd "$work"
  # apt-get downloads as its own user.
  chmod 755 .
  apt-get download -qq nginx >/dev/null 2>&1 || { apt-get update -qq && apt-get download -qq nginx >/dev/null; } ||
    fail "apt-get could not download nginx."
  mkdir -p "$cache"
  dpkg-deb --extract nginx_*.deb "$cache"
fi
echo "nginx is ready: $cache/usr/sbin/nginx."
