#!/bin/sh
# Called by scripts/kubernetes.sh: stops the cluster and removes its state. What was built stays.
set -eu
root=$(CDPATH='' cd -- "$(dirname -- "$0")/../.." && pwd)
# shellcheck source=scripts/common.sh
. "$root/scripts/common.sh"
# shellcheck source=scripts/kubernetes/settings.sh
. "$root/scripts/kubernetes/settings.sh"

WAIT_SECONDS=30

# The processes in the cluster's control groups, even if a start was interrupted before it recorded the node's pid.
members() {
  for hierarchy in $(hierarchies); do
    [ ! -d "$hierarchy$CGROUP" ] || find "$hierarchy$CGROUP" -name cgroup.procs -exec cat {} + 2>/dev/null || true
  done | sort -u
}

# With the node's first process, all processes, mounts and interfaces of its namespaces end.
if pid=$(node_pid); then kill -9 "$pid" 2>/dev/null || true; fi
deadline=$(($(date +%s) + WAIT_SECONDS))
while :; do
  pids=$(members)
  [ -n "$pids" ] || break
  [ "$(date +%s)" -lt "$deadline" ] || fail "These processes of the cluster did not end:" "$pids"
  # shellcheck disable=SC2086
  kill -9 $pids 2>/dev/null || true
  sleep 0.1
done
for hierarchy in $(hierarchies); do
  [ ! -d "$hierarchy$CGROUP" ] || find "$hierarchy$CGROUP" -depth -type d -exec rmdir {} +
done
if [ -e "/sys/class/net/$INTERFACE" ]; then ip link delete "$INTERFACE"; fi
rm -rf --one-file-system -- "$STATE"
