#!/bin/sh
# Makes sure that a Docker daemon answers.
#
# Usage: scripts/docker.sh [--yes]
#   --yes  install Docker (root on Debian or Ubuntu) and start it without
#          asking; the same as CI=true in the environment
#
# Without systemd, dockerd is started directly; its log and pid are in
# /run/berth.
set -eu
root=$(CDPATH='' cd -- "$(dirname -- "$0")/.." && pwd)
# shellcheck source=scripts/common.sh
. "$root/scripts/common.sh"
take_only_yes "$@"

STATE=/run/berth
WAIT_SECONDS=90

answers() {
  version=$(timeout 10 docker version --format '{{.Server.Version}}' 2>/dev/null)
}

daemon_runs() {
  pid=$(cat /var/run/docker.pid 2>/dev/null) && [ "$(cat "/proc/$pid/comm" 2>/dev/null)" = dockerd ]
}

start_directly() {
  mkdir -p "$STATE"
  # Left over from before a reboot: the pid may belong to another program now.
  rm -f /var/run/docker.pid
  # Without an init system it may not be mounted.
  mountpoint -q /sys/fs/cgroup || mount -t cgroup2 cgroup2 /sys/fs/cgroup
  setsid dockerd >"$STATE/dockerd.log" 2>&1 </dev/null &
  echo $! >"$STATE/dockerd.pid"
  say "Started dockerd. Its log: $STATE/dockerd.log"
}

explain() {
  if [ -f "$STATE/dockerd.log" ]; then tail -n 15 "$STATE/dockerd.log" >&2; fi
  fail "$@"
}

if command -v docker >/dev/null && answers; then
  echo "Docker $version answers."
  exit 0
fi

if [ -n "${DOCKER_HOST:-}" ]; then
  fail "No Docker daemon answers at DOCKER_HOST=$DOCKER_HOST. Start it there, or unset DOCKER_HOST."
fi

# dockerd is only on root's PATH.
PATH=$PATH:/usr/sbin:/sbin
if ! command -v docker >/dev/null || ! command -v dockerd >/dev/null; then
  install_packages "Docker is not installed" docker.io
fi

if [ "$(id -u)" != 0 ]; then
  error=$(docker version 2>&1 >/dev/null || true)
  case $error in
    *"permission denied"*)
      fail "Docker runs, but you may not use it. Type this and log in again:" \
        "  sudo usermod --append --groups docker $(id -un)" ;;
    *) fail "Docker is not running. Type:" "  sudo systemctl start docker" ;;
  esac
fi

if ! daemon_runs; then
  agree "Docker is not running. Start it?" || fail "Docker is not running. Type:" "  $0 --yes"
  if [ -d /run/systemd/system ]; then
    systemctl start docker || fail "systemd could not start Docker. See: journalctl --unit docker"
  else
    start_directly
  fi
fi

waited=0
until answers; do
  [ "$waited" -lt "$WAIT_SECONDS" ] || explain "Docker did not answer within $WAIT_SECONDS s."
  [ -d /run/systemd/system ] || [ "$waited" -lt 5 ] || daemon_runs || explain "dockerd ended."
  [ $((waited % 10)) != 5 ] || say "Waiting for Docker ($waited s) ..."
  sleep 1
  waited=$((waited + 1))
done
echo "Docker $version answers."
