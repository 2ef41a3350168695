import { DockerEngine } from "../../../../src/engine/docker/engine.ts";

// pipes-unseen.ts DIRECTORY SPEC: creates a container with pipes in a directory in this process's own mount namespace;
// prints where a shell's output goes.
const silent = { debug() {}, info() {}, warn() {}, error() {} };
const engine = new DockerEngine({
  instance: `unseen-${process.pid}`,
  logger: silent,
  pipesDir: process.argv[2] ?? "",
});
const { ref } = await engine.create(JSON.parse(process.argv[3] ?? ""));
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
