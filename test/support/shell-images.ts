/** One image for each shell that Berth must work with: what its /bin/sh is. */
export const SHELL_IMAGES = [
  ["dash", "debian:bookworm-slim"],
  ["bash", "berth/bash:latest"],
  ["busybox", "berth/busybox:latest"],
] as const;
