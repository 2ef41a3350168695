#!/bin/sh
# Runs Connect's conformance suite against the port: gRPC, gRPC-Web and Connect with every combination of HTTP version,
# codec, compression and TLS that it supports.
#
# Usage: scripts/conformance.sh [--yes] [-- OPTION...]
#   --yes      install what is missing without asking; the same as CI=true
#   OPTION...  options of connectconformance, such as --run 'Timeouts/**' --trace
set -eu

cd -- "$(dirname -- "$0")/.."
. scripts/common.sh

while [ $# -gt 0 ]; do
  case $1 in
    --) shift; break ;;
    --yes) agreed=true ;;
    -h | --help) usage; exit 0 ;;
    *) fail "$0: unknown option $1 (try --help)" ;;
  esac
  shift
done

version=v1.0.7
module=connectrpc.com/conformance
cache=$PWD/.cache/conformance-$version
PATH=$PWD/node_modules/.bin:$PATH
# Go 1.21 or newer downloads the release that the suite needs.
export GOTOOLCHAIN=auto

command -v buf >/dev/null || fail "buf is missing. Type: npm ci"
command -v go >/dev/null || install_packages "Go builds the conformance suite, and is missing" golang-go

if ! [ -x "$cache/connectconformance" ]; then
  say "Building connectconformance $version ..."
  GOBIN=$cache go install "$module/cmd/connectconformance@$version" || fail \
    "Go could not build $module@$version. It takes Go 1.21 or newer, this is $(go env GOVERSION)."
fi
if ! [ -f "$cache/descriptors.binpb" ]; then
  sources=$(go list -m -f '{{.Dir}}' "$module@$version")
  buf build "$sources/proto" --output "$cache/descriptors.new.binpb"
  mv -- "$cache/descriptors.new.binpb" "$cache/descriptors.binpb"
fi

CONFORMANCE_DESCRIPTORS=$cache/descriptors.binpb exec "$cache/connectconformance" \
  --mode server --conf interop/conformance/features.yaml "$@" -- node interop/conformance/server.ts
