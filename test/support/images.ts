/** Image of the sandboxes in tests: Debian with python3, its regression tests and procps. */
export const TEST_IMAGE = "berth/test:latest";

/** Image of the sandboxes of desktops and browsers. */
export const DESKTOP_IMAGE = "berth/desktop:latest";

/** A static busybox and nothing else, as scripts/busybox-image.sh makes it. */
export const BUSYBOX_IMAGE = "berth/busybox:latest";

/** An image that no machine has and no registry serves. */
export const MISSING_IMAGE = "registry.invalid/berth/missing:1";
