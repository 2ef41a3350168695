# Sourced by scripts/kubernetes.sh and scripts/kubernetes/*.sh, which set $root.

# The last minor version whose kubelet takes control groups of version 1 without a switch. go.mod pins it, and etcd.
KUBERNETES=1.34.4
# What was built and downloaded. It may be kept for good.
CACHE=${XDG_CACHE_HOME:-$HOME/.cache}/berth/kubernetes
# The state of the running cluster, which `down` removes. Not in /run or /var: the node has its own of both.
STATE=/tmp/berth-kubernetes

sources=$(cat "$root"/scripts/kubernetes/hyperkube/* "$root"/scripts/kubernetes/pause/* | sha256sum | cut -c1-12)
HYPERKUBE=$CACHE/hyperkube-$KUBERNETES-$sources
PAUSE=$CACHE/pause-$sources.tar
PLUGINS=$CACHE/network-plugins
CONTAINERD=$STATE/containerd.sock

# This machine and the node, at the two ends of one pair of interfaces; the node's is eth0.
INTERFACE=berth-k8s
HOST_IP=10.222.0.1
NODE_IP=10.222.0.2
POD_CIDR=10.222.1.0/24
SERVICE_CIDR=10.222.2.0/24
API_SERVICE_IP=10.222.2.1

# The parent of everything that runs, in each hierarchy of control groups.
CGROUP=/berth-kubernetes

admin() {
  KUBECONFIG=$STATE/admin.kubeconfig "$HYPERKUBE" kubectl "$@"
}

# load IMAGE...: takes images of the Docker daemon into the node.
load() {
  # Not a pipe, whose end hides how docker ended.
  images=$(mktemp "$STATE/images.XXXXXX")
  docker save --output "$images" "$@" && import <"$images" || { rm -f -- "$images"; return 1; }
  rm -f -- "$images"
}

import() {
  ctr --address "$CONTAINERD" --namespace k8s.io images import - >/dev/null
}

# Prints the id of the node's first process, if it runs: not that of another process with the same id.
node_pid() {
  read -r pid start 2>/dev/null <"$STATE/node.pid" || return 1
  [ "$start" = "$(start_of "$pid")" ] && echo "$pid"
}

# When a process started, in ticks since the machine did.
start_of() {
  awk '{print $22}' "/proc/$1/stat" 2>/dev/null
}

hierarchies() {
  awk '$3 ~ /^cgroup2?$/ {print $2}' /proc/mounts
}

# wait_for SECONDS WHAT COMMAND...: until the command succeeds, while the node runs.
wait_for() {
  deadline=$(($(date +%s) + $1))
  what=$2
  shift 2
  until "$@" >/dev/null 2>&1; do
    [ "$(date +%s)" -lt "$deadline" ] || fail "$what did not come in time. The logs are in $STATE/logs."
    node_pid >/dev/null || fail "The node ended while $what was awaited. The logs are in $STATE/logs."
    sleep 0.2
  done
}
