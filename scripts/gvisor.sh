#!/bin/sh
# Makes sure that this machine's Docker daemon has gVisor's runtime, runsc: builds it as a Go module, outside the
# repository, and registers it.
#
# Usage: scripts/gvisor.sh [--yes | built]
#   built  only reports, by the exit code, whether this was done before
#   --yes  install what is missing (root on Debian or Ubuntu) and register runsc
#          without asking; the same as CI=true in the environment
set -eu
root=$(CDPATH='' cd -- "$(dirname -- "$0")/.." && pwd)
# shellcheck source=scripts/common.sh
. "$root/scripts/common.sh"
only=
if [ "${1-}" = built ]; then only=built; else take_only_yes "$@"; fi

version=v0.0.0-20260905035102-160fafc42237
cache=${XDG_CACHE_HOME:-$HOME/.cache}/berth/runsc-$version

registered() {
  timeout 20 docker info --format '{{range $name, $_ := .Runtimes}}{{$name}} {{end}}' | grep -qw runsc
}

if [ "$only" = built ]; then
  [ -x "$cache/runsc" ] || registered
  exit
fi
if registered; then
  echo "Docker has the runtime runsc."
  exit 0
fi
[ "$(id -u)" = 0 ] || fail "Docker has no runtime runsc, and only root can add it. Type:" "  sudo $0 --yes"

if ! [ -x "$cache/runsc" ]; then
  command -v go >/dev/null || install_packages "Go builds gVisor, and is missing" golang-go
  say "Building runsc $version, which takes minutes ..."
  # Debian 12's own Go is too old, and cannot download a newer one.
  go version | grep -qE 'go(1\.(2[1-9]|[3-9][0-9])|[2-9])' || fail "gVisor requires Go 1.21 or newer, this is $(go env GOVERSION)."
  # A static program, because gVisor runs itself where there is no loader. Go 1.21 or newer downloads the release that
  # it needs.
  CGO_ENABLED=0 GOTOOLCHAIN=auto GOBIN=$cache go install -ldflags='-s -w' "gvisor.dev/gvisor/runsc@$version" ||
    fail "Go could not build gvisor.dev/gvisor/runsc@$version. It requires Go 1.21 or newer, this is $(go env GOVERSION)."
fi

agree "Docker has no runtime runsc. Add it to /etc/docker/daemon.json and reload Docker?" || fail "Type:" "  $0 --yes"
"$cache/runsc" install -- --platform=systrap >&2
if [ -d /run/systemd/system ]; then systemctl reload docker; else kill -HUP "$(cat /var/run/docker.pid)"; fi
waited=0
until registered; do
  [ "$waited" -lt 20 ] || fail "Docker did not accept the runtime. See its log."
  sleep 1
  waited=$((waited + 1))
done
echo "Docker has the runtime runsc."
