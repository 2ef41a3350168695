import { DockerEngine } from "../../../src/engine/docker/engine.ts";
import { TEST_IMAGE } from "../../support/images.ts";

// Makes a container with pipes in a directory of this process's own mount namespace; says where a shell's output goes.
const silent = { debug() {}, info() {}, warn() {}, error() {} };
const engine = new DockerEngine({
  instance: `unseen-${process.pid}`,
  logger: silent,
  pipesDir: process.argv[2] ?? "",
});
const { ref } = await engine.create({
  sandboxId: `sbx_unseen${process.pid}`,
  generation: 1,
  owner: "tester",
  image: TEST_IMAGE,
  env: {},
  workingDir: "/workspace",
  user: "",
  resources: { memoryBytes: 256 << 20, cpuMillis: 1000, pidsLimit: 64, diskBytes: undefined },
  network: "NONE",
  mounts: [],
  runtime: "",
});
try {
  const { promise, resolve } = Promise.withResolvers<unknown>();
  const argv = ["/bin/sh", "-c", "readlink /proc/self/fd/1"];
  await engine.spawn(
    ref,
    { argv, stdin: false },
    { data: (_, chunk) => process.stdout.write(chunk), end: resolve },
  );
  await promise;
} finally {
  await engine.remove(ref);
  await engine.close();
}
