#!/bin/sh
# A Kubernetes cluster of one node for tests: etcd, API server, controller manager, scheduler, kubelet and containerd,
# in their own namespaces on this machine, as root.
#
# Usage: scripts/kubernetes.sh COMMAND [--yes]
#   build     builds it with Go into ~/.cache/berth/kubernetes: ten minutes or more, once
#   built     succeeds if it is built
#   up        brings it up, with the namespace berth as in deploy/kubernetes
#   down      stops it and leaves only what was built
#   status    shows what runs
#   env       variables for a shell: eval "$(scripts/kubernetes.sh env)"
#   load      loads images from the Docker daemon, besides berth/base, berth/test and
#             berth/busybox: scripts/kubernetes.sh load IMAGE...
#   kubectl   runs kubectl as the administrator: scripts/kubernetes.sh kubectl get pods -A
#   --yes     install what is missing (root on Debian or Ubuntu) without asking;
#             the same as CI=true in the environment
#
# Tests may kill the processes in /tmp/berth-kubernetes/pids, which has a file with the pid of each of containerd, etcd,
# apiserver, controller-manager, scheduler, kubelet and provisioner. Each restarts a second later, or once the file
# /tmp/berth-kubernetes/hold/NAME is gone.
set -eu
root=$(CDPATH='' cd -- "$(dirname -- "$0")/.." && pwd)
# shellcheck source=scripts/common.sh
. "$root/scripts/common.sh"
# shellcheck source=scripts/kubernetes/settings.sh
. "$root/scripts/kubernetes/settings.sh"

command=${1-}
[ $# = 0 ] || shift
case $command in
  -h | --help) usage; exit 0 ;;
  # exec, so that whoever ends this process ends kubectl.
  kubectl) KUBECONFIG=$STATE/admin.kubeconfig exec "$HYPERKUBE" kubectl "$@" ;;
  load)
    node_pid >/dev/null || fail "The cluster is down. Type: $0 up"
    load "$@" || fail "The node could not load $*. See above."
    exit
    ;;
  build | built | up | down | status | env) take_only_yes "$@" ;;
  *) fail "$0: a command is missing (try --help)" ;;
esac

need_root() {
  [ "$(id -u)" = 0 ] || fail "A cluster on this machine requires root. Type:" "  sudo $0 $command"
}

build() {
  # Without the lock: a daemon that this starts would keep it.
  "$root/scripts/docker.sh" >&2 9>&-
  command -v openssl >/dev/null || install_packages "openssl is not installed, and makes certificates" openssl
  command -v iptables >/dev/null || install_packages "iptables is not installed" iptables
  "$root/scripts/kubernetes/build.sh" >&2
}

export CI="$agreed"
case $command in
  status)
    node_pid >/dev/null || fail "The cluster is down."
    for file in "$STATE"/pids/*; do echo "${file##*/} $(cat "$file")"; done
    admin get nodes,pods --all-namespaces
    exit
    ;;
  built) [ -x "$HYPERKUBE" ]; exit ;;
  env)
    node_pid >/dev/null || fail "The cluster is down. Type: $0 up"
    echo "export KUBECONFIG=$STATE/berth.kubeconfig BERTH_KUBERNETES_ADMIN=$STATE/admin.kubeconfig" \
      "BERTH_KUBERNETES_STATE=$STATE"
    exit
    ;;
esac

need_root
mkdir -p "$CACHE"
exec 9>"$CACHE/lock"
flock 9
case $command in
  build) build ;;
  up)
    if node_pid >/dev/null && [ -e "$STATE/ready" ]; then
      echo "The cluster is up."
      exit
    fi
    build
    "$root/scripts/base-image.sh" --test >&2
    "$root/scripts/busybox-image.sh" >&2
    "$root/scripts/kubernetes/down.sh"
    "$root/scripts/kubernetes/up.sh"
    : >"$STATE/ready"
    echo "The cluster is up. For its variables: eval \"\$($0 env)\""
    ;;
  down)
    "$root/scripts/kubernetes/down.sh"
    echo "The cluster is down."
    ;;
esac
