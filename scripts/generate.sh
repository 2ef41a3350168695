#!/bin/sh
# Generates from proto/: gen/ (TypeScript messages, Python messages and stubs) and docs/api (the API reference).
#
# Usage: scripts/generate.sh [--ts] [--yes] [--output DIR]
#   --ts          without Python: needs only what npm ci installed, and neither
#                 protoc nor Python
#   --yes         install a missing protoc with apt-get (root on Debian); the
#                 same as CI=true in the environment
#   --output DIR  write DIR/gen and DIR/docs/api instead of the repository's own
set -eu

install=${CI:-false}
python=true
output=.
while [ $# -gt 0 ]; do
  case $1 in
    --ts) python=false ;;
    --yes) install=true ;;
    --output) output=${2:?--output needs a directory}; shift ;;
    --output=*) output=${1#*=} ;;
    -h | --help) sed -n '2,/^set/{/^set/d;s/^# \{0,1\}//;p;}' "$0"; exit 0 ;;
    *) echo "$0: unknown option $1 (try --help)" >&2; exit 2 ;;
  esac
  shift
done
case $output in
  . | /*) ;;
  *) output=$PWD/$output ;;
esac

cd -- "$(dirname -- "$0")/.."
PATH=$PWD/node_modules/.bin:$PATH

fail() {
  printf '%s\n' "$@" >&2
  exit 1
}

have_protoc() {
  command -v protoc >/dev/null && command -v grpc_python_plugin >/dev/null
}

command -v buf >/dev/null || fail "buf is missing. Type: npm ci"

if [ "$python" = false ]; then
  buf generate --output "$output"
  exit 0
fi

if ! have_protoc; then
  packages="protobuf-compiler protobuf-compiler-grpc"
  [ "$install" = true ] || fail "protoc or grpc_python_plugin is missing. On Debian, as root, type:" \
    "  apt-get install --no-install-recommends $packages" \
    "For the rest, which needs neither: $0 --ts"
  [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null ||
    fail "protoc or grpc_python_plugin is missing, and installing it requires root on Debian." \
      "For the rest, which needs neither: $0 --ts"
  # shellcheck disable=SC2086 # a list of words
  { apt-get update -qq && apt-get install -y -qq --no-install-recommends $packages; } >&2
  have_protoc || fail "apt-get installed $packages, but protoc or grpc_python_plugin is still not on PATH."
fi

# Python code of protoc 3.21 runs with every protobuf runtime since 3.20 and does not check the runtime's version. Other
# versions of protoc write a different gen/.
version=$(protoc --version)
case $version in
  "libprotoc 3.21."*) ;;
  *) fail "protoc 3.21 is required, this is $version. Debian 12 and 13 package it as protobuf-compiler." ;;
esac

# buf.gen.python.yaml names the plugins in this environment.
scripts/python-env.sh generate scripts/generate-requirements.txt >/dev/null

buf generate --output "$output"
buf generate --template buf.gen.python.yaml --output "$output"

# protoc writes no __init__.py. "berth" stays a namespace package, so that the client's own package of that name can
# join it.
package=$output/gen/python/berth/v1
printf '"""Messages and gRPC stubs of the package berth.v1."""\n' >"$package/__init__.py"
: >"$package/py.typed"
