#!/usr/bin/env bash
# Makes the image berth/busybox:latest: a static busybox and nothing else, for
# the tests that show what Berth asks of an image. Needs apt-get, dpkg-deb and a
# Docker daemon; no image registry.
set -euo pipefail

work=$(mktemp -d)
trap 'rm -rf -- "$work"' EXIT

(cd "$work" && apt-get download -qq busybox-static 2>/dev/null && dpkg-deb -x busybox-static_*.deb unpacked)
root=$work/root
mkdir -p "$root"/{bin,dev,etc,proc,root,sys} && mkdir -m 1777 "$root/tmp"
cp "$work/unpacked/bin/busybox" "$root/bin/busybox"
for applet in $("$root/bin/busybox" --list); do
  [ "$applet" = busybox ] || ln -s busybox "$root/bin/$applet"
done
printf '%s\n' 'root:x:0:0:root:/root:/bin/sh' 'nobody:x:65534:65534:nobody:/:/bin/sh' >"$root/etc/passwd"
printf '%s\n' 'root:x:0:' 'nobody:x:65534:' >"$root/etc/group"

tar -C "$root" --owner=0 --group=0 -c . | docker import --change 'CMD ["/bin/sh"]' - berth/busybox:latest
