#!/bin/sh
# Makes sure that a Python environment with pinned packages exists under .cache/, and prints its directory. Creates it
# once, and again when the pins change.
#
# Usage: scripts/python-env.sh NAME REQUIREMENTS_FILE
set -eu
[ $# = 2 ] || { echo "usage: $0 NAME REQUIREMENTS_FILE" >&2; exit 2; }

root=$(CDPATH='' cd -- "$(dirname -- "$0")/.." && pwd)
env=$root/.cache/$1
requirements=$2

command -v python3 >/dev/null || {
  echo "python3 is missing. On Debian: apt-get install python3 python3-venv" >&2
  exit 1
}

mkdir -p "$root/.cache"
# Concurrent callers must not build the same environment.
exec 9>"$env.lock"
flock 9
if ! cmp -s "$requirements" "$env/requirements.txt"; then
  rm -rf -- "$env"
  # 9>&-: a child that outlives this script must not keep the lock.
  python3 -m venv "$env" >&2 9>&- || {
    rm -rf -- "$env"
    echo "python3 cannot create environments. On Debian: apt-get install python3-venv" >&2
    exit 1
  }
  "$env/bin/python" -m pip install --quiet --disable-pip-version-check -r "$requirements" >&2 9>&-
  # Written last, so that an interrupted install does not count as complete.
  cp -- "$requirements" "$env/requirements.txt"
fi
printf '%s\n' "$env"
