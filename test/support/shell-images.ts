import { TEST_IMAGE } from "./images.ts";

/** One image for each shell that Berth must work with: what its /bin/sh is. */
export const SHELL_IMAGES = [
  ["dash", TEST_IMAGE],
  ["bash", "berth/bash:latest"],
  ["busybox", "berth/busybox:latest"],
] as const;
