/** Image of sandboxes in tests: Debian with python3, its regression tests and procps. */
export const TEST_IMAGE = "berth/test:latest";

/** Image of sandboxes for desktops and browsers. */
export const DESKTOP_IMAGE = "berth/desktop:latest";

/** A static busybox and nothing else: see scripts/busybox-image.sh. */
export const BUSYBOX_IMAGE = "berth/busybox:latest";

/** An image that no machine and no registry has. */
export const MISSING_IMAGE = "registry.invalid/berth/missing:1";
