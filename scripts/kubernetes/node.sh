#!/bin/sh
# Called by scripts/kubernetes/up.sh: the node. It is the first process of its own process, mount and network
# namespaces, so what it starts ends with it.
set -eu
root=$(CDPATH='' cd -- "$(dirname -- "$0")/../.." && pwd)
# shellcheck source=scripts/kubernetes/settings.sh
. "$root/scripts/kubernetes/settings.sh"

# The machine's own view of processes, to find their pids there.
mount --bind /proc "$STATE/proc"
mount --make-rshared /
# Otherwise the mount over /proc would appear here as well.
mount --make-private "$STATE/proc"
mount -t proc proc /proc
# Private directories for the fixed places to which Kubernetes, containerd and network plugins write.
mount -t tmpfs -o mode=755 tmpfs /run
mkdir -p /run/lock /run/netns
mount -t overlay -o "lowerdir=/var,upperdir=$STATE/var,workdir=$STATE/overlay" overlay /var
hostname node

for hierarchy in $(hierarchies); do
  for group in "$CGROUP" "$CGROUP/node"; do
    mkdir -p "$hierarchy$group"
    for file in cpuset.cpus cpuset.mems; do
      [ ! -e "$hierarchy$group/$file" ] || cat "$hierarchy$group/../$file" >"$hierarchy$group/$file"
    done
  done
  echo $$ >"$hierarchy$CGROUP/node/cgroup.procs"
done

until ip link show eth0 >/dev/null 2>&1; do sleep 0.05; done
ip link set lo up
ip addr add "$NODE_IP/30" dev eth0
ip link set eth0 up
ip route add default via "$HOST_IP"
echo 1 >/proc/sys/net/ipv4/ip_forward
# Instead of kube-proxy: the only Service that pods need is that of the API server.
iptables -t nat -A PREROUTING -p tcp -d "$API_SERVICE_IP" --dport 443 -j DNAT --to-destination "$NODE_IP:6443"

cd "$STATE"

# Runs a program, and restarts it a second after it ended unless the file hold/NAME exists. Its pid on this machine is
# in pids/NAME, so that tests can kill it.
service() {
  name=$1
  shift
  while :; do
    while [ -e "hold/$name" ]; do sleep 0.1; done
    # shellcheck disable=SC2016
    sh -c '
      read -r pid _ <proc/self/stat
      echo "$pid" >"pids/$0.new" && mv "pids/$0.new" "pids/$0"
      exec "$@"
    ' "$name" "$@" >>"logs/$name.log" 2>&1 || echo "--- ended with $?" >>"logs/$name.log"
    sleep 1
  done &
}

service containerd containerd --config containerd.toml
service etcd "$HYPERKUBE" etcd --data-dir=etcd --unsafe-no-fsync --log-level=warn \
  --listen-client-urls=http://127.0.0.1:2379 --advertise-client-urls=http://127.0.0.1:2379 \
  --listen-peer-urls=http://127.0.0.1:2380
service apiserver "$HYPERKUBE" apiserver --etcd-servers=http://127.0.0.1:2379 \
  --secure-port=6443 --advertise-address="$NODE_IP" --service-cluster-ip-range="$SERVICE_CIDR" \
  --cert-dir=pki --tls-cert-file=pki/apiserver.crt --tls-private-key-file=pki/apiserver.key \
  --client-ca-file=pki/ca.crt --token-auth-file=pki/tokens.csv \
  --authorization-mode=Node,RBAC --enable-admission-plugins=NodeRestriction --allow-privileged=true \
  --service-account-issuer=https://kubernetes.default.svc \
  --service-account-key-file=pki/apiserver.crt --service-account-signing-key-file=pki/apiserver.key \
  --kubelet-client-certificate=pki/kubelet-client.crt --kubelet-client-key=pki/kubelet-client.key \
  --kubelet-preferred-address-types=InternalIP --profiling=false
service controller-manager "$HYPERKUBE" controller-manager --kubeconfig=controller-manager.kubeconfig \
  --leader-elect=false --use-service-account-credentials --service-account-private-key-file=pki/apiserver.key \
  --root-ca-file=pki/ca.crt --profiling=false
service scheduler "$HYPERKUBE" scheduler --kubeconfig=scheduler.kubeconfig --leader-elect=false --profiling=false
service kubelet "$HYPERKUBE" kubelet --config=kubelet.yaml --kubeconfig=kubelet.kubeconfig \
  --root-dir="$STATE/kubelet" --hostname-override=node --node-ip="$NODE_IP"
service provisioner "$HYPERKUBE" provisioner "$STATE/admin.kubeconfig" "$STATE/volumes"
wait
