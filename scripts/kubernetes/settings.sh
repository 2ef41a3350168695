# Sourced by scripts/kubernetes.sh and scripts/kubernetes/*.sh, which set $root.

# The last minor version whose kubelet accepts version 1 of control groups without an option. go.mod pins it, and etcd.
KUBERNETES=1.34.4
# What was built and downloaded. `down` keeps it.
CACHE=${XDG_CACHE_HOME:-$HOME/.cache}/berth/kubernetes
# The state of the running cluster, which `down` removes. Not in /run or /var: the node has its own of both.
STATE=/tmp/berth-kubernetes

sources=$(cat "$root"/scripts/kubernetes/hyperkube/* "$root"/scripts/kubernetes/pause/* | sha256sum | cut -c1-12)
HYPERKUBE=$CACHE/hyperkube-$KUBERNETES-$sources
PAUSE=$CACHE/pause-$sources.tar
PLUGINS=$CACHE/network-plugins
CONTAINERD=$STATE/containerd.sock

# This machine and the node, at the two ends of a veth pair. The node's end is eth0.
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

# load IMAGE...: loads images from the Docker daemon into the node.
load() {
  # Not a pipe, which would hide docker's exit code.
  images=$(mktemp "$STATE/images.XXXXXX")
  docker save --output "$images" "$@" && import <"$images" || { rm -f -- "$images"; return 1; }
  rm -f -- "$images"
}

import() {
  ctr --address "$CONTAINERD" --namespace k8s.io images import - >/dev/null
}

# Prints the pid of the node's first process if it runs; never that of another process with the same pid.
node_pid() {
  read -r pid start 2>/dev/null <"$STATE/node.pid" || return 1
  [ "$start" = "$(start_of "$pid")" ] && echo "$pid"
}

# When a process started, in ticks since boot.
start_of() {
  awk '{print $22}' "/proc/$1/stat" 2>/dev/null
}

hierarchies() {
  awk '$3 ~ /^cgroup2?$/ {print $2}' /proc/mounts
}

# wait_for SECONDS WHAT COMMAND...: waits until the command succeeds, while the node runs.
wait_for() {
  deadline=$(($(date +%s) + $1))
  what=$2
  shift 2
  until "$@" >/dev/null 2>&1; do
    [ "$(date +%s)" -lt "$deadline" ] || fail "$what was not ready in time. The logs are in $STATE/logs."
    node_pid >/dev/null || fail "The node ended before $what was ready. The logs are in $STATE/logs."
    sleep 0.2
  done
}
