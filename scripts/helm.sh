#!/bin/sh
# Makes sure that Helm is in ~/.cache/berth/kubernetes, for tests of deploy/helm:
# builds it as a Go module.
#
# Usage: scripts/helm.sh [--yes]
#   --yes  install what is missing (root on Debian or Ubuntu) without asking;
#          the same as CI=true in the environment
#
# Prints the path of the program.
set -eu
root=$(CDPATH='' cd -- "$(dirname -- "$0")/.." && pwd)
# shellcheck source=scripts/common.sh
. "$root/scripts/common.sh"
take_only_yes "$@"

version=v3.19.5
cache=${XDG_CACHE_HOME:-$HOME/.cache}/berth/kubernetes/helm-$version

if ! [ -x "$cache/helm" ]; then
  command -v go >/dev/null || install_packages "Go builds Helm, and is missing" golang-go
  say "Building Helm $version, which takes minutes ..."
  CGO_ENABLED=0 GOTOOLCHAIN=auto GOBIN=$cache go install -trimpath -ldflags='-s -w' "helm.sh/helm/v3/cmd/helm@$version" ||
    fail "Go could not build helm.sh/helm/v3@$version. It requires Go 1.21 or newer, this is $(go env GOVERSION)."
fi
echo "$cache/helm"
