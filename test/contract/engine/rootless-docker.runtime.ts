import { rootlessSuite } from "./rootless-suite.ts";

rootlessSuite({
  name: "rootless Docker",
  open: {
    calls: ["io_uring_setup", "io_uring_enter", "io_uring_register", "socket vsock"],
    reason: "the profile is the daemon's, and Docker before 25 lets these through",
  },
});
