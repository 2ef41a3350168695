import { rootlessSuite } from "./rootless-suite.ts";

rootlessSuite({ name: "rootless Podman", environment: ["TERM", "container"] });
