#!/bin/sh
# Runs a command with DOCKER_HOST set to its own Podman service, which has its own storage and the image berth/test.
# Afterwards ends the service and everything that it ran.
#
# Usage: scripts/podman.sh [--yes] -- COMMAND...
#   --yes  install Podman (root on Debian or Ubuntu) without asking; the same
#          as CI=true in the environment
#
# Needs the Docker daemon that scripts/docker.sh starts, but only for the image.
set -eu
root=$(CDPATH='' cd -- "$(dirname -- "$0")/.." && pwd)
# shellcheck source=scripts/common.sh
. "$root/scripts/common.sh"
while [ $# -gt 0 ]; do
  case $1 in
    --) shift; break ;;
    --yes) agreed=true ;;
    -h | --help) usage; exit 0 ;;
    *) fail "$0: unknown option $1 (try --help)" ;;
  esac
  shift
done
[ $# -gt 0 ] || fail "$0: a command is missing (try --help)"

WAIT_SECONDS=30

# shellcheck disable=SC2086 # a list of words
has_podman || install_packages "Podman is not installed, and tests run sandboxes with it" $PODMAN_PACKAGES
[ "$(id -u)" = 0 ] || fail "Podman's own storage and networks require root here. Type:" "  sudo $0"

dir=$(mktemp -d /var/tmp/berth-podman-XXXXXX)
service=
own_podman_exec() {
  exec podman --root "$dir/storage" --runroot "$dir/run" --tmpdir "$dir/tmp" --storage-driver overlay \
    --runtime "$dir/runtime" --cgroup-manager cgroupfs --events-backend file "$@"
}
own_podman() {
  (own_podman_exec "$@")
}
clean() {
  own_podman rm --all --force --time 0 >/dev/null 2>&1 || true
  if [ -n "$service" ]; then
    kill "$service" 2>/dev/null || true
    wait "$service" 2>/dev/null || true
  fi
  # Podman's monitors outlive their commands by minutes. Without SIGKILL, each would run Podman once more.
  for process in /proc/[0-9]*; do
    [ "$(cat "$process/comm" 2>/dev/null)" = conmon ] || continue
    ! tr '\0' '\n' 2>/dev/null <"$process/cmdline" | grep -qF "$dir/" || kill -9 "${process#/proc/}" 2>/dev/null || true
  done
  # The storage, and mounts that a container left behind.
  remove_directory "$dir"
}
clean_at_exit clean

# runc, because crun does not support machines with control groups of both versions. Podman asks for more processes per
# user than a service may set without CAP_SYS_RESOURCE, as in a container. The service's own limit is enough.
cat >"$dir/runtime" <<'RUNTIME'
#!/bin/sh
before= file=
for argument do
  case $before in
    --bundle) file=$argument/config.json ;;
    --process) file=$argument ;;
  esac
  before=$argument
done
limit=$(ulimit -Hp)
case $limit in
  *[!0-9]*) ;;
  *) [ -z "$file" ] ||
    sed -i "s/\"RLIMIT_NPROC\",\"hard\":[0-9]*,\"soft\":[0-9]*/\"RLIMIT_NPROC\",\"hard\":$limit,\"soft\":$limit/" "$file" ;;
esac
exec runc "$@"
RUNTIME
chmod 755 "$dir/runtime"

# Podman's own profile allows unshare, mount, keyctl and others; Docker's does not.
printf '[containers]\nseccomp_profile = "%s"\n' "$root/third_party/moby/seccomp-default.json" >"$dir/containers.conf"
export CONTAINERS_CONF="$dir/containers.conf"

say "Loading berth/test into Podman ..."
docker save berth/test:latest | own_podman load --quiet >/dev/null
exec 3>"$dir/log"
# In this directory, because its monitors leave a file in the working directory for a container that ran out of memory.
(cd -- "$dir" && own_podman_exec system service --time=0 "unix://$dir/podman.sock") >&3 2>&3 </dev/null &
service=$!
waited=0
until DOCKER_HOST="unix://$dir/podman.sock" timeout 10 docker version >/dev/null 2>&1; do
  if [ "$waited" -ge "$WAIT_SECONDS" ] || ! kill -0 "$service" 2>/dev/null; then
    tail -n 15 "$dir/log" >&2
    fail "Podman did not answer within $WAIT_SECONDS s."
  fi
  sleep 1
  waited=$((waited + 1))
done
code=0
DOCKER_HOST="unix://$dir/podman.sock" "$@" 3>&- || code=$?
exit "$code"
