#!/bin/sh
# Makes sure that a directory with the root file system of berth/desktop exists, and prints its path: for --rootfs, so
# that bubblewrap's sandboxes can have a desktop and a browser that this machine does not have.
#
# Usage: scripts/desktop-rootfs.sh [--yes]
#   --yes  build a missing image without asking, as scripts/base-image.sh does
#
# The directory is below /var/tmp, where every user may enter it. It is created again when the image changes.
set -eu
root=$(CDPATH='' cd -- "$(dirname -- "$0")/.." && pwd)
# shellcheck source=scripts/common.sh
. "$root/scripts/common.sh"
take_only_yes "$@"

CI=$agreed "$root/scripts/base-image.sh" --desktop >&2
image=$(docker image inspect --format '{{.Id}}' berth/desktop:latest)
dir=/var/tmp/berth-desktop-$(printf %.12s "${image#sha256:}")

# Next to the directory, which several checkouts share.
exec 9>"$dir.lock"
flock 9
if [ ! -e "$dir/.complete" ]; then
  say "Unpacking berth/desktop into $dir ..."
  # No rm -rf: this unpacking overwrites an interrupted one.
  mkdir -p "$dir"
  container=$(docker create "$image")
  trap 'docker rm "$container" >/dev/null' EXIT
  docker export "$container" | tar -x -C "$dir" --exclude='dev/*' --no-same-owner
  chmod 755 "$dir"
  touch "$dir/.complete"
fi
echo "$dir"
