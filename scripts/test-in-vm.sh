#!/bin/sh
# Runs the tests of test/vm in a virtual machine, for what this machine's kernel may lack: ext4 and xfs with project
# quotas, and only version 2 of control groups. Debian's kernel boots there, over a read-only view of this machine's
# files. The tests write to the virtual machine's memory, or to two disks that are files in a temporary directory here.
#
# Needs about 3 GB of memory, 400 MB below ~/.cache/berth and, without KVM, half an hour on two cores.
#
# Usage: scripts/test-in-vm.sh [--yes] [-- VITEST-ARGUMENT...]
#   --yes  install what is missing (root on Debian 12, amd64) without asking;
#          the same as CI=true in the environment
set -eu
root=$(CDPATH='' cd -- "$(dirname -- "$0")/.." && pwd)
# shellcheck source=scripts/common.sh
. "$root/scripts/common.sh"
while [ $# -gt 0 ]; do
  case $1 in
    --yes) agreed=true ;;
    -h | --help) usage; exit 0 ;;
    --) shift; break ;;
    *) fail "$0: unknown option $1 (try --help)" ;;
  esac
  shift
done

MODULES="virtio_pci virtio_blk 9pnet_virtio 9p overlay crc32c_generic ext4 xfs quota_v2"
# A hung test ends with the machine.
MAX_SECONDS=3600

[ "$(uname -m)" = x86_64 ] || fail "This needs an x86-64 machine."
PATH=$PATH:/usr/sbin:/sbin
for program in qemu-system-x86_64:qemu-system-x86 mkfs.xfs:xfsprogs setquota:quota bwrap:bubblewrap; do
  command -v "${program%:*}" >/dev/null || install_packages "${program%:*} is not installed" "${program#*:}"
done
[ -x "$root/node_modules/node/bin/node" ] || fail "The packages are missing. Type: npm ci"

# Unpacked instead of installed, so that this machine's boot files do not change.
fetch_kernel() {
  say "Fetching Debian's kernel, $package ..."
  download=$(mktemp -d)
  (
    cd "$download"
    apt-get download -qq "$package" busybox-static >/dev/null 2>&1 ||
      fail "apt-get could not download $package and busybox-static. As root type: apt-get update"
    mkdir unpacked
    for deb in ./*.deb; do dpkg-deb -x "$deb" unpacked; done
    unpacked/bin/busybox depmod -b "$PWD/unpacked" "$version"
    mkdir -p "$cache"
    mv unpacked "$kernel"
  ) || { rm -rf -- "$download"; exit 1; }
  rm -rf -- "$download"
}

command -v apt-get >/dev/null && command -v dpkg-deb >/dev/null ||
  fail "This needs Debian's apt-get and dpkg-deb to get the kernel."
package=$(apt-cache depends linux-image-amd64 | sed -n 's/^ *Depends: \(linux-image-.*\)/\1/p' | head -n 1)
[ -n "$package" ] || fail "apt-get does not know linux-image-amd64. As root type: apt-get update"
version=${package#linux-image-}
cache=${XDG_CACHE_HOME:-$HOME/.cache}/berth
kernel=$cache/$package
[ -d "$kernel" ] || fetch_kernel

work=$(mktemp -d)
trap 'rm -rf -- "$work"' EXIT
trap 'exit 1' HUP INT TERM

# The initial file system: BusyBox, the kernel modules, and init.
tree=$work/tree
modules=$tree/lib/modules/$version
mkdir -p "$tree/bin" "$modules"
cp "$kernel/bin/busybox" "$tree/bin/"
cp "$root/scripts/vm/init" "$tree/init"
cp "$kernel/lib/modules/$version/modules.builtin" "$modules/"
files=$(for module in $MODULES; do
  grep "/$module\.ko:" "$kernel/lib/modules/$version/modules.dep" || fail "$package has no module $module."
done)
for file in $(printf '%s' "$files" | tr -d :); do
  mkdir -p "$modules/${file%/*}"
  cp "$kernel/lib/modules/$version/$file" "$modules/$file"
done
"$kernel/bin/busybox" depmod -b "$tree" "$version"
quote() {
  for word do printf " '%s'" "$(printf %s "$word" | sed "s/'/'\\\\''/g")"; done
}
cat >"$tree/settings" <<EOF
modules='$MODULES'
set -- $(quote "$root/scripts/vm/run-tests.sh" "$root" "$@")
EOF
(cd "$tree" && find . | "$kernel/bin/busybox" cpio -o -H newc 2>/dev/null) | gzip -1 >"$work/initrd"
truncate -s 512M "$work/ext4" "$work/xfs"

accelerator=tcg,thread=multi
if grep -qE '^flags.* (vmx|svm)' /proc/cpuinfo && [ -w /dev/kvm ]; then accelerator=kvm; fi
say "Booting $package in a virtual machine ($accelerator) ..."
: >"$work/status"
# If the machine does not get to its tests, its console says why.
timeout "$MAX_SECONDS" qemu-system-x86_64 \
  -accel "$accelerator" -cpu max -smp 2 -m 3G -nodefaults -no-user-config -display none -no-reboot \
  -kernel "$kernel/boot/vmlinuz-$version" -initrd "$work/initrd" -append "console=ttyS0 quiet loglevel=1 panic=-1" \
  -serial stdio -serial "file:$work/status" \
  -virtfs "local,path=/,mount_tag=host,security_model=none,readonly=on,multidevs=remap" \
  -drive "file=$work/ext4,format=raw,if=virtio,cache=unsafe" \
  -drive "file=$work/xfs,format=raw,if=virtio,cache=unsafe" </dev/null || say "The virtual machine failed: $?"
status=$(tr -d '\r\n' <"$work/status")
[ -n "$status" ] || fail "The virtual machine ended before its tests did."
exit "$status"
