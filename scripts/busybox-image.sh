#!/bin/sh
# Makes sure that the image berth/busybox exists: 2 MB, with BusyBox as the only program and its ash as /bin/sh. Built
# from Debian's package busybox-static.
#
# Usage: scripts/busybox-image.sh [--yes]
#   --yes  asks nothing; the same as CI=true in the environment
set -eu
root=$(CDPATH='' cd -- "$(dirname -- "$0")/.." && pwd)
# shellcheck source=scripts/common.sh
. "$root/scripts/common.sh"
take_only_yes "$@"

IMAGE=berth/busybox:latest

source=$(sha256sum <"$0" | cut -c1-16)
if image_is_from "$IMAGE" "$source"; then
  echo "Image is ready: $IMAGE."
  exit 0
fi

command -v apt-get >/dev/null && command -v dpkg-deb >/dev/null ||
  fail "Building $IMAGE requires Debian's apt-get and dpkg-deb."
say "Building $IMAGE ..."
work=$(mktemp -d)
trap 'rm -rf -- "$work"' EXIT
cd "$work"
# apt-get downloads as its own user.
chmod 755 .
apt-get download -qq busybox-static >/dev/null 2>&1 ||
  { apt-get update -qq && apt-get download -qq busybox-static >/dev/null; } ||
  fail "apt-get could not download busybox-static."
dpkg-deb --fsys-tarfile busybox-static_*.deb | tar -x ./bin/busybox

mkdir -p image/bin image/etc image/root image/tmp image/usr/bin image/var
chmod 1777 image/tmp
mv bin/busybox image/bin/
for program in $(image/bin/busybox --list); do
  [ "$program" = busybox ] || ln -s busybox "image/bin/$program"
done
ln -s /bin/env image/usr/bin/env
printf '%s\n' root:x:0:0:root:/root:/bin/sh nobody:x:65534:65534:nobody:/:/bin/sh >image/etc/passwd
printf '%s\n' root:x:0: nogroup:x:65534: >image/etc/group
tar -C image --owner=0 --group=0 --numeric-owner -c . |
  docker import --change 'CMD ["sh"]' --change "LABEL berth.source=$source" - "$IMAGE" >/dev/null
echo "Image is ready: $IMAGE."
