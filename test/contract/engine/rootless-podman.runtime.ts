import { rootlessSuite } from "./rootless-suite.ts";

rootlessSuite({ name: "rootless Podman", losesOutput: true, environment: ["TERM", "container"] });
