import { expect, test } from "vitest";
import { quotaMountOf } from "../../../../src/workspaces/host/project-quota.ts";

/** As in /proc/self/mountinfo of different machines. */
const OVERLAY_ROOT =
  "1013 898 0:61 / / rw,relatime master:259 - overlay overlay rw,lowerdir=/var/lib/docker/overlay2/l/AB:/var/lib/docker/overlay2/l/CD,upperdir=/var/lib/docker/overlay2/1f/diff,workdir=/var/lib/docker/overlay2/1f/work";
const EXT4_ROOT = "29 1 8:1 / / rw,relatime shared:1 - ext4 /dev/sda1 rw,errors=remount-ro";
const PROC = "22 29 0:21 / /proc rw,nosuid,nodev,noexec,relatime shared:12 - proc proc rw";
const EXT4_QUOTA = "41 29 8:17 / /srv/work rw,nosuid,nodev,relatime shared:30 - ext4 /dev/sdb1 rw,prjquota";
const XFS_QUOTA =
  "95 29 253:3 / /var/lib/berth rw,relatime shared:48 master:2 - xfs /dev/mapper/vg0-berth rw,attr2,inode64,logbufs=8,logbsize=32k,pquota";
const XFS_PLAIN =
  "96 29 253:4 / /mnt/plain rw,relatime shared:49 - xfs /dev/mapper/vg0-plain rw,attr2,inode64,noquota";
const TMPFS = "24 29 0:23 / /tmp rw,nosuid,nodev shared:5 - tmpfs tmpfs rw,size=1024000k,inode64";
const MACHINE = `${[PROC, EXT4_ROOT, EXT4_QUOTA, XFS_QUOTA, XFS_PLAIN, TMPFS].join("\n")}\n`;

test.each([
  ["/srv/work", { type: "ext4", mountPoint: "/srv/work" }],
  ["/srv/work/berth/workspaces", { type: "ext4", mountPoint: "/srv/work" }],
  ["/var/lib/berth/workspaces", { type: "xfs", mountPoint: "/var/lib/berth" }],
  // Names that only share a prefix.
  ["/srv/working/dir", undefined],
  ["/var/lib/berth-other", undefined],
  // Mounted without the option, or a file system without it.
  ["/var/lib/docker", undefined],
  ["/mnt/plain/workspaces", undefined],
  ["/tmp/workspaces", undefined],
  ["/proc/self", undefined],
])("finds the mount of %s", (place, expected) => {
  expect(quotaMountOf(place, MACHINE)).toEqual(expected);
});

test("finds no quota at the root of a container, and that of a volume in it", () => {
  expect(quotaMountOf("/data/workspaces", `${OVERLAY_ROOT}\n`)).toBeUndefined();
  const volume =
    "1050 1013 8:17 /docker/volumes/berth/_data /data rw,relatime master:30 - ext4 /dev/sdb1 rw,prjquota";
  expect(quotaMountOf("/data/workspaces", `${OVERLAY_ROOT}\n${volume}\n`)).toEqual({
    type: "ext4",
    mountPoint: "/data",
  });
});

test("reads names with blanks, tabs, newlines, backslashes and octal digits", () => {
  const line = (escaped: string) => `50 29 8:17 / ${escaped} rw - ext4 /dev/sdb1 rw,prjquota\n`;
  for (const [escaped, mountPoint] of [
    ["/mnt/my\\040work", "/mnt/my work"],
    ["/mnt/tab\\011and\\012line", "/mnt/tab\tand\nline"],
    ["/mnt/back\\134slash", "/mnt/back\\slash"],
    ["/mnt/back\\134040slash", "/mnt/back\\040slash"],
    ["/mnt/1234", "/mnt/1234"],
  ] as const) {
    expect(quotaMountOf(`${mountPoint}/workspaces`, `${EXT4_ROOT}\n${line(escaped)}`)).toEqual({
      type: "ext4",
      mountPoint,
    });
  }
});

test("accepts any number of optional fields, including none", () => {
  for (const fields of ["", "shared:3 ", "shared:3 master:4 propagate_from:2 ", "unbindable "]) {
    const line = `50 29 8:17 / /mnt/w rw,relatime ${fields}- ext4 /dev/sdb1 rw,prjquota`;
    expect(quotaMountOf("/mnt/w/x", `${EXT4_ROOT}\n${line}\n`)).toEqual({
      type: "ext4",
      mountPoint: "/mnt/w",
    });
  }
});

test("uses the visible mount: the deepest, and the last of several at one path", () => {
  const below = "60 41 0:44 / /srv/work/berth rw - tmpfs tmpfs rw";
  expect(quotaMountOf("/srv/work/berth/workspaces", `${MACHINE}${below}\n`)).toBeUndefined();
  const bound = "61 41 8:17 /elsewhere /srv/work/bound rw,relatime - ext4 /dev/sdb1 rw,prjquota";
  expect(quotaMountOf("/srv/work/bound/workspaces", `${MACHINE}${bound}\n`)).toEqual({
    type: "ext4",
    mountPoint: "/srv/work/bound",
  });
  const over = "62 41 0:45 / /srv/work rw - tmpfs tmpfs rw";
  expect(quotaMountOf("/srv/work/berth", `${MACHINE}${over}\n`)).toBeUndefined();
  expect(quotaMountOf("/srv/work/berth", `${over}\n${MACHINE}`)).toEqual({
    type: "ext4",
    mountPoint: "/srv/work",
  });
});

test("finds no quota in options that only look like one", () => {
  for (const options of ["rw,usrquota,grpquota", "rw,noquota", "rw,pqnoenforce", "rw,data=prjquota"]) {
    const line = `50 29 8:17 / /mnt/w rw - ext4 /dev/sdb1 ${options}`;
    expect(quotaMountOf("/mnt/w", `${line}\n`)).toBeUndefined();
  }
  expect(quotaMountOf("/mnt/w", "")).toBeUndefined();
});
