import { expect } from "vitest";
import type { Engine, EngineSandboxSpec } from "../../../src/engine/port.ts";
import type { Subject } from "./subject.ts";

/** Tests, for Podman, of a process that ends while its stdin is being written. */
export function unreadStdin(
  engine: Engine,
  spec: () => EngineSandboxSpec,
): NonNullable<Subject["exceptions"]["unreadStdin"]> {
  return {
    reason: "Podman closes the connection while stdin is in it, and its last output may go with it",
    instead: async () => {
      const { ref } = await engine.create(spec());
      for (let i = 0; i < 10; i++) {
        const ended = Promise.withResolvers<Error | undefined>();
        const argv = ["sh", "-c", `read -r line; echo last words; exit ${i}`];
        const output: Uint8Array[] = [];
        const sink = {
          data: (_stream: "stdout" | "stderr", bytes: Uint8Array) => void output.push(bytes),
          end: ended.resolve,
        };
        const spawned = await engine.spawn(ref, { argv, stdin: true }, sink);
        const written = spawned.writeStdin(Buffer.alloc(2_000_000, "\n")).catch(() => {});
        expect(await spawned.wait()).toBe(i);
        // The exit code is correct. The output is complete, or reported as possibly incomplete.
        const end = await ended.promise;
        if (end === undefined) expect(Buffer.concat(output).toString()).toBe("last words\n");
        else expect(end).toMatchObject({ reason: "ENGINE_UNAVAILABLE" });
        await written;
      }
    },
  };
}
