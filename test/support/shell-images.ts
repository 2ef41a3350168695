import { TEST_IMAGE } from "./images.ts";

/** An image for each shell that Berth must support as /bin/sh. */
export const SHELL_IMAGES = [
  ["dash", TEST_IMAGE],
  ["bash", "berth/bash:latest"],
  ["busybox", "berth/busybox:latest"],
] as const;
