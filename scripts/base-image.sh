#!/bin/sh
# Makes sure that Berth's own images exist: berth/base; berth/desktop for vm and browser sessions; and for tests
# berth/test and berth/bash.
#
# Usage: scripts/base-image.sh [--yes] [--desktop] [--test]
#   --desktop  berth/desktop as well (1.4 GB; one to three minutes)
#   --test     the images for tests as well
#   --yes      install a missing mmdebstrap (root on Debian) without asking; the
#              same as CI=true in the environment
#
# They are built on debian:bookworm-slim. If no registry has that, it is built from Debian's packages. Images are
# rebuilt when their Dockerfile or their base image changes.
set -eu
root=$(CDPATH='' cd -- "$(dirname -- "$0")/.." && pwd)
# shellcheck source=scripts/common.sh
. "$root/scripts/common.sh"
images=base
while [ $# -gt 0 ]; do
  case $1 in
    --yes) agreed=true ;;
    --desktop) images="$images desktop" ;;
    --test) images="$images test bash" ;;
    -h | --help) usage; exit 0 ;;
    *) fail "$0: unknown option $1 (try --help)" ;;
  esac
  shift
done

DEBIAN=debian:bookworm-slim
PULL_SECONDS=120
PACKAGES=ca-certificates,procps,python3

image_id() {
  docker image inspect --format '{{.Id}}' "$1" 2>/dev/null
}

debian() {
  say "Pulling $DEBIAN ..."
  if timeout "$PULL_SECONDS" docker pull --quiet "$DEBIAN" >/dev/null 2>&1; then return; fi
  command -v mmdebstrap >/dev/null ||
    install_packages "No registry serves $DEBIAN, and mmdebstrap is needed to make it" mmdebstrap
  [ "$(id -u)" = 0 ] || fail "No registry has $DEBIAN, and building it requires root. Type:" "  sudo $0"
  say "No registry has $DEBIAN. Building it from Debian's packages (about 20 s) ..."
  log=$(mktemp)
  rootfs=$(mktemp)
  trap 'rm -f -- "$log" "$rootfs"' EXIT
  mmdebstrap --format=tar --variant=minbase --include="$PACKAGES" bookworm "$rootfs" >"$log" 2>&1 ||
    { tail -n 20 "$log" >&2; fail "mmdebstrap failed."; }
  docker import --change 'CMD ["bash"]' "$rootfs" "$DEBIAN" >/dev/null
}

build() {
  dockerfile=$root/images/$1/Dockerfile
  base=$(sed -n 's/^FROM //p' "$dockerfile")
  source=$({ cat "$dockerfile"; image_id "$base"; } | sha256sum | cut -c1-16)
  if image_is_from "berth/$1:latest" "$source"; then return; fi
  old=$(image_id "berth/$1:latest" || true)
  say "Building berth/$1:latest ..."
  # With the host's network, because the default bridge may have no route to the outside even if the host does.
  log=$(mktemp)
  docker build --network host --label "berth.source=$source" --tag "berth/$1:latest" "$root/images/$1" >"$log" 2>&1 || {
    tail -n 30 "$log" >&2
    rm -f -- "$log"
    fail "Building berth/$1:latest failed."
  }
  rm -f -- "$log"
  # Fails while something uses it.
  if [ -n "$old" ]; then docker image rm "$old" >/dev/null 2>&1 || true; fi
}

# Concurrent callers must not build the same image.
mkdir -p "$root/.cache"
exec 9>"$root/.cache/images.lock"
flock 9

image_id "$DEBIAN" >/dev/null || debian
for image in $images; do build "$image"; done
echo "Images are ready:$(for image in $images; do printf ' berth/%s' "$image"; done)."
