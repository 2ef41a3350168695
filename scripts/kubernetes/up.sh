#!/bin/sh
# Called by scripts/kubernetes.sh: brings up a cluster of one node, as root, in its own namespaces. Returns when it
# accepts pods.
set -eu
root=$(CDPATH='' cd -- "$(dirname -- "$0")/../.." && pwd)
# shellcheck source=scripts/common.sh
. "$root/scripts/common.sh"
# shellcheck source=scripts/kubernetes/settings.sh
. "$root/scripts/kubernetes/settings.sh"

IMAGES="berth/base:latest berth/test:latest berth/busybox:latest"

mkdir -m 700 "$STATE"
cd "$STATE"
mkdir cni containerd etcd hold kubelet logs manifests overlay pids pki proc var volumes

# One authority for clients and servers, and tokens for everyone but the API server.
new_key() {
  openssl genpkey -quiet -algorithm EC -pkeyopt ec_paramgen_curve:P-256 -out "$1"
}
# certificate NAME SUBJECT EXTENSIONS
certificate() {
  new_key "pki/$1.key"
  echo "$3" >"pki/$1.extensions"
  openssl req -new -key "pki/$1.key" -subj "$2" | openssl x509 -req -CA pki/ca.crt -CAkey pki/ca.key -CAcreateserial \
    -days 3650 -extfile "pki/$1.extensions" -out "pki/$1.crt" 2>/dev/null
}
new_key pki/ca.key
openssl req -x509 -new -key pki/ca.key -days 3650 -subj /CN=berth-kubernetes -out pki/ca.crt
certificate apiserver /CN=kube-apiserver \
  "subjectAltName=IP:$NODE_IP,IP:127.0.0.1,IP:$API_SERVICE_IP,DNS:localhost,DNS:kubernetes.default.svc"
certificate kubelet-client /CN=kube-apiserver-kubelet-client extendedKeyUsage=clientAuth

# kubeconfig NAME TOKEN NAMESPACE
kubeconfig() {
  cat >"$1.kubeconfig" <<YAML
apiVersion: v1
kind: Config
clusters:
  - name: berth
    cluster: { server: "https://$NODE_IP:6443", certificate-authority-data: $(base64 -w0 pki/ca.crt) }
users:
  - name: $1
    user: { token: $2 }
contexts:
  - name: berth
    context: { cluster: berth, user: $1, namespace: $3 }
current-context: berth
YAML
}
# user KUBECONFIG NAME GROUP
user() {
  token=$(openssl rand -hex 16)
  echo "$token,$2,$2,\"$3\"" >>pki/tokens.csv
  kubeconfig "$1" "$token" default
}
user admin admin system:masters
user controller-manager system:kube-controller-manager ''
user scheduler system:kube-scheduler ''
user kubelet system:node:node system:nodes

# In a container a service may lack CAP_SYS_RESOURCE, and so may not lower oom_score_adj.
cat >containerd.toml <<TOML
version = 2
root = "$STATE/containerd"
state = "/run/containerd"
oom_score = 0
disabled_plugins = [
  "io.containerd.internal.v1.opt", "io.containerd.snapshotter.v1.aufs", "io.containerd.snapshotter.v1.btrfs",
  "io.containerd.snapshotter.v1.devmapper", "io.containerd.snapshotter.v1.zfs", "io.containerd.tracing.processor.v1.otlp",
]
[grpc]
  address = "$CONTAINERD"
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "docker.io/berth/pause:latest"
  disable_apparmor = true
  restrict_oom_score_adj = true
  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = "$PLUGINS"
    conf_dir = "$STATE/cni"
  [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
    runtime_type = "io.containerd.runc.v2"
TOML
# Each pod has a veth pair to the node. Nothing here enforces NetworkPolicies.
cat >cni/10-pods.conflist <<JSON
{"cniVersion": "0.4.0", "name": "pods", "plugins": [
  {"type": "ptp", "ipMasq": false,
   "ipam": {"type": "host-local", "ranges": [[{"subnet": "$POD_CIDR"}]],
            "routes": [{"dst": "0.0.0.0/0"}], "dataDir": "/run/pod-addresses"}},
  {"type": "portmap", "capabilities": {"portMappings": true}}]}
JSON
: >resolv.conf
cat >kubelet.yaml <<YAML
apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
authentication:
  anonymous: { enabled: false }
  webhook: { enabled: true }
  x509: { clientCAFile: $STATE/pki/ca.crt }
authorization: { mode: Webhook }
containerRuntimeEndpoint: unix://$CONTAINERD
cgroupDriver: cgroupfs
cgroupRoot: $CGROUP
podLogsDir: $STATE/logs/pods
resolvConf: $STATE/resolv.conf
staticPodPath: $STATE/manifests
failSwapOn: false
seccompDefault: true
maxPods: 200
podPidsLimit: 1024
evictionHard: { memory.available: 100Mi, nodefs.available: 1%, imagefs.available: 1% }
imageGCHighThresholdPercent: 100
imageMinimumGCAge: 876000h
nodeStatusUpdateFrequency: 4s
makeIPTablesUtilChains: false
YAML

say "Starting the node ..."
setsid unshare --mount --net --pid --ipc --uts --fork --kill-child -- \
  "$root/scripts/kubernetes/node.sh" </dev/null >logs/node.log 2>&1 9>&- &
outer=$!
pid=
while [ -z "$pid" ]; do
  kill -0 "$outer" 2>/dev/null || fail "The node did not start:" "$(cat logs/node.log)"
  pid=$(cat "/proc/$outer/task/$outer/children" 2>/dev/null) || true
  pid=${pid%% *}
done
echo "$pid $(start_of "$pid")" >node.pid

ip link add "$INTERFACE" type veth peer name eth0 netns "$pid"
ip addr add "$HOST_IP/30" dev "$INTERFACE"
ip link set "$INTERFACE" up
ip route add "$POD_CIDR" via "$NODE_IP"

wait_for 60 containerd ctr --address "$CONTAINERD" version
import <"$PAUSE"
# shellcheck disable=SC2086
load $IMAGES &
images=$!
wait_for 120 "the API server" admin get --raw /readyz
# What the API server may request from the kubelet.
admin create clusterrolebinding apiserver-kubelet --clusterrole=system:kubelet-api-admin \
  --user=kube-apiserver-kubelet-client >/dev/null
wait_for 30 "the namespace default" admin get namespace default
admin apply -f "$root/scripts/kubernetes/cluster.yaml" -f "$root/deploy/kubernetes" >/dev/null
kubeconfig berth "$(admin create token berth --namespace berth --duration 8760h)" berth
wait_for 120 "the node" admin wait --for=condition=Ready node/node --timeout=5s
untainted() {
  [ -z "$(admin get node node --output 'jsonpath={.spec.taints}')" ]
}
wait_for 60 "the node's first pod" untainted
wait_for 60 "the service account" admin get serviceaccount default --namespace berth
wait "$images" || fail "containerd could not import the images $IMAGES."
