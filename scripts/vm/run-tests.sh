#!/bin/sh
# run-tests.sh REPOSITORY VITEST-ARGUMENT...: what scripts/test-in-vm.sh runs as
# the virtual machine's first process. Never run it elsewhere: it creates file
# systems on the first two disks.
[ $$ = 1 ] && [ -b /dev/vdb ] || exit 1
root=$1
shift
export HOME=/root PATH="$root/node_modules/.bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
# The compile cache, shared with the host.
export NODE_COMPILE_CACHE="$root/node_modules/.cache/node"
ip link set lo up
mount -t cgroup2 cgroup2 /sys/fs/cgroup
mkdir -p /run/disks/ext4 /run/disks/xfs
mkfs.ext4 -q -O quota,project /dev/vda && mount -o prjquota /dev/vda /run/disks/ext4
mkfs.xfs -q /dev/vdb && mount -o prjquota /dev/vdb /run/disks/xfs
cd "$root"
CI=true node node_modules/vitest/vitest.mjs run --config test/vm/vitest.config.ts --reporter=verbose "$@" </dev/null
echo $? >/dev/ttyS1
sync
echo o >/proc/sysrq-trigger
while :; do :; done
