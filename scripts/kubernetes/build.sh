#!/bin/sh
# Called by scripts/kubernetes.sh: builds and downloads the parts of a node. Does nothing if they exist.
set -eu
root=$(CDPATH='' cd -- "$(dirname -- "$0")/../.." && pwd)
# shellcheck source=scripts/common.sh
. "$root/scripts/common.sh"
# shellcheck source=scripts/kubernetes/settings.sh
. "$root/scripts/kubernetes/settings.sh"

mkdir -p "$CACHE"
export CGO_ENABLED=0 GOTOOLCHAIN=auto

# Builds the program in scripts/kubernetes/$1 as $2, from the modules pinned by its go.mod and go.sum.
go_build() {
  command -v go >/dev/null || install_packages "Go builds Kubernetes, and is missing" golang-go
  (
    cd "$root/scripts/kubernetes/$1"
    go build -trimpath -buildvcs=false -mod=readonly -ldflags "-s -w ${3-}" -o "$2.new" .
  ) || fail "Go could not build scripts/kubernetes/$1. It requires Go 1.21 or newer, this is $(go env GOVERSION)."
  mv -- "$2.new" "$2"
}

if ! [ -x "$HYPERKUBE" ]; then
  say "Building Kubernetes $KUBERNETES, which takes ten minutes or more, once ..."
  minor=${KUBERNETES#1.}
  version=k8s.io/component-base/version
  go_build hyperkube "$HYPERKUBE" \
    "-X $version.gitVersion=v$KUBERNETES -X $version.gitMajor=1 -X $version.gitMinor=${minor%%.*}"
fi

work=$(mktemp -d "$CACHE/work.XXXXXX")
trap 'rm -rf -- "$work"' EXIT

if ! [ -s "$PAUSE" ]; then
  go_build pause "$work/pause"
  image=berth/pause:latest
  tar -C "$work" --owner=0 --group=0 -c pause |
    docker import --change 'ENTRYPOINT ["/pause"]' --change 'USER 65535:65535' - "$image" >/dev/null
  docker save --output "$work/pause.tar" "$image"
  docker image rm "$image" >/dev/null
  mv -- "$work/pause.tar" "$PAUSE"
fi

if ! [ -x "$PLUGINS/ptp" ]; then
  say "Downloading network plugins ..."
  cd "$work"
  # apt-get downloads as its own user.
  chmod 755 .
  apt-get download -qq containernetworking-plugins >/dev/null 2>&1 ||
    { apt-get update -qq && apt-get download -qq containernetworking-plugins >/dev/null; } ||
    fail "apt-get could not download containernetworking-plugins."
  dpkg-deb --extract containernetworking-plugins_*.deb .
  rm -rf -- "$PLUGINS"
  mv -- usr/lib/cni "$PLUGINS"
fi
echo "Kubernetes $KUBERNETES is built."
