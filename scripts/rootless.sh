#!/bin/sh
# Runs a command as its own ordinary user, with DOCKER_HOST set to that user's rootless Docker or Podman, which has the
# image berth/test. Afterwards ends and removes everything: the processes, their files, the account.
#
# Usage: scripts/rootless.sh docker|podman [--yes] -- COMMAND...
#   --yes  install what is missing (root on Debian or Ubuntu) without asking; the
#          same as CI=true in the environment
#
# The command runs in the repository, which it may not write to, with its own home and TMPDIR. Needs root to create the
# account, and the Docker daemon that scripts/docker.sh starts, but only for the image.
set -eu
root=$(CDPATH='' cd -- "$(dirname -- "$0")/.." && pwd)
# shellcheck source=scripts/common.sh
. "$root/scripts/common.sh"
kind=
while [ $# -gt 0 ]; do
  case $1 in
    --) shift; break ;;
    --yes) agreed=true ;;
    -h | --help) usage; exit 0 ;;
    docker | podman) kind=$1 ;;
    *) fail "$0: unknown option $1 (try --help)" ;;
  esac
  shift
done
[ -n "$kind" ] || fail "$0: docker or podman is missing (try --help)"
[ $# -gt 0 ] || fail "$0: a command is missing (try --help)"

PATH=$PATH:/usr/sbin:/sbin
missing=
for program in newuidmap:uidmap slirp4netns:slirp4netns ip:iproute2; do
  command -v "${program%:*}" >/dev/null || missing="$missing ${program#*:}"
done
case $kind in
  docker) command -v rootlesskit >/dev/null || missing="$missing rootlesskit" ;;
  podman) has_podman || missing="$missing $PODMAN_PACKAGES" ;;
esac
# shellcheck disable=SC2086 # a list of words
[ -z "$missing" ] || install_packages "A rootless $kind needs more packages" $missing
[ "$(id -u)" = 0 ] || fail "Creating an account requires root. Type:" "  sudo $0"
starter=
if [ "$kind" = docker ]; then
  for place in /usr/bin /usr/share/docker.io/contrib; do
    [ -n "$starter" ] || ! [ -x "$place/dockerd-rootless.sh" ] || starter=$place/dockerd-rootless.sh
  done
  [ -n "$starter" ] || fail "Docker's dockerd-rootless.sh is not installed. It comes with Debian's docker.io."
fi

dir=$(mktemp -d "/var/tmp/berth-rootless-XXXXXX")
account=berth-$(basename "$dir" | sed 's/.*-//' | tr '[:upper:]' '[:lower:]')-$$
clean() {
  # All processes were in a namespace that has ended.
  userdel --force "$account" >/dev/null 2>&1 || true
  remove_directory "$dir"
}
clean_at_exit clean
chmod 755 "$dir"
mkdir "$dir/berth" "$dir/home" "$dir/devices"
# Not a system account: those get no ranges of ids.
useradd --home-dir "$dir/home" --no-create-home --shell /bin/sh "$account"
grep -q "^$account:" /etc/subuid && grep -q "^$account:" /etc/subgid ||
  fail "useradd gave the account no ranges in /etc/subuid and /etc/subgid. See SUB_UID_COUNT in /etc/login.defs."
mkdir -m 700 "$dir/home/run" "$dir/home/tmp"
chown -R "$account:" "$dir/home"
say "Saving berth/test for the rootless $kind ..."
docker save --output "$dir/image.tar" berth/test:latest
chmod 644 "$dir/image.tar"

# Runs as the account, below.
cat >"$dir/start" <<'START'
set -eu
kind=$1 starter=$2 dir=$3
shift 3
case $kind in
  docker) DOCKER_HOST=unix://$XDG_RUNTIME_DIR/docker.sock "$starter" >"$HOME/log" 2>&1 </dev/null & ;;
  podman)
    # Podman's own profile allows unshare, mount, keyctl and others; Docker's does not.
    mkdir -p "$HOME/.config/containers"
    printf '[containers]\nseccomp_profile = "%s"\n[engine]\nruntime = "runc"\ncgroup_manager = "cgroupfs"\nevents_logger = "file"\n' \
      "$dir/berth/third_party/moby/seccomp-default.json" >"$HOME/.config/containers/containers.conf"
    printf '[storage]\ndriver = "overlay"\n' >"$HOME/.config/containers/storage.conf"
    # Without root, Podman gives containers its own limits of open files and core dumps instead of the requested ones.
    (cd "$HOME" && ulimit -c 0 && ulimit -n 16384 && exec podman system service --time=0 "unix://$XDG_RUNTIME_DIR/podman.sock") \
      >"$HOME/log" 2>&1 </dev/null & ;;
esac
daemon=$!
export DOCKER_HOST="unix://$XDG_RUNTIME_DIR/$kind.sock"
waited=0
until timeout 10 docker version >/dev/null 2>&1; do
  if [ "$waited" -ge 60 ] || ! kill -0 "$daemon" 2>/dev/null; then
    tail -n 15 "$HOME/log" >&2
    echo "The rootless $kind did not answer within 60 s." >&2
    exit 1
  fi
  sleep 1
  waited=$((waited + 1))
done
docker load --quiet --input "$dir/image.tar" >/dev/null
cd "$dir/berth"
# No exec: this shell is process 1, which adopts orphans.
"$@"
START

# Runs as root, in its own namespaces: nobody else sees its mounts, and the processes that remain are killed at the end.
cat >"$dir/enter" <<'ENTER'
set -eu
dir=$1 root=$2 modules=$3 account=$4 starter=$5 kind=$6
shift 6
mount --bind "$root" "$dir/berth"
mount --bind "$modules" "$dir/berth/node_modules"
mount -o remount,bind,ro "$dir/berth"
mount -o remount,bind,ro "$dir/berth/node_modules"
# If the machine's devices are closed to ordinary users, as without udev: new ones of the same kind.
mount -t tmpfs -o mode=755 none "$dir/devices"
while read -r device minor; do
  [ -c "$device" ] || continue
  mknod -m 666 "$dir/devices/$minor" c 10 "$minor"
  mount --bind "$dir/devices/$minor" "$device"
done <<DEVICES
/dev/net/tun 200
/dev/fuse 229
DEVICES
# If its containers have no limit of processes, the user has.
exec prlimit --nproc=4096 setpriv --reuid="$account" --regid="$account" --init-groups --inh-caps=-all -- env -i \
  PATH="$dir/berth/node_modules/.bin:/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin" HOME="$dir/home" \
  TMPDIR="$dir/home/tmp" XDG_RUNTIME_DIR="$dir/home/run" USER="$account" CI="${CI-}" TERM="${TERM-dumb}" \
  sh "$dir/start" "$kind" "$starter" "$dir" "$@"
ENTER
modules=$(readlink -f "$root/node_modules")
code=0
unshare --mount --propagation slave --pid --fork --kill-child --mount-proc \
  sh "$dir/enter" "$dir" "$root" "$modules" "$account" "$starter" "$kind" "$@" || code=$?
exit "$code"
