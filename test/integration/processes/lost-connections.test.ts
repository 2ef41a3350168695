import { createHash, randomInt } from "node:crypto";
import { beforeAll, describe, expect, test } from "vitest";
import { useApp } from "../../support/app.ts";
import { Client } from "../../support/client.ts";
import { type CutKind, CuttingLink } from "../../support/cutting-link.ts";
import { containerOf, processesIn } from "../../support/docker.ts";
import { eventually } from "../../support/eventually.ts";
import { scaled } from "../../support/scale.ts";
import { SHELL_IMAGES } from "../../support/shell-images.ts";
import type { ExitStatus, ProcessEvent } from "../../support/wire.ts";

/** How many connections break, in each of the four ways. */
const CUTS = 50;
/** Further connections that may break: a client may open one that it does not use, and that one never breaks. */
const SPARE_CUTS = 5;
/** The process's output: this many times 1,000 lines to stdout, and 100 to stderr. */
const ROUNDS = scaled(400, 40);
const LINE_BYTES = 16;
const lineAt = (index: number): string => `${String(index).padStart(LINE_BYTES - 1, "0")}\n`;
/** Writes for some seconds, so that some connections break meanwhile and others after its end. */
const WRITE = `i=0; while [ $i -lt ${ROUNDS} ]; do
  awk -v i=$i 'BEGIN { for (n = i * 1000; n < (i + 1) * 1000; n++) {
    printf "%015d\\n", n; if (n % 10 == 0) printf "%015d\\n", n >"/dev/stderr" } }'
  i=$((i+1)); sleep 0.02; done`;

function digestOf(step: number): string {
  const hash = createHash("sha256");
  for (let i = 0; i < ROUNDS * 1000; i += step) hash.update(lineAt(i));
  return hash.digest("hex");
}

const app = useApp();
let sandboxId = "";
beforeAll(async () => {
  sandboxId = (await app.client.createSandbox({ image: SHELL_IMAGES[0][1] })).sandbox_id;
});

const WAYS = [
  ["reset", "detached", { on_disconnect: "ON_DISCONNECT_DETACH" }],
  ["reset", "with a grace", { disconnect_grace: { seconds: 60 } }],
  ["fin", "detached", { on_disconnect: "ON_DISCONNECT_DETACH" }],
  ["fin", "with a grace", { disconnect_grace: { seconds: 60 } }],
] as const;

/** What a caller has received from a process, over all its connections. */
class Joined {
  readonly hashes = { stdout: createHash("sha256"), stderr: createHash("sha256") };
  readonly offsets = { stdout: 0, stderr: 0 };
  processId = "";
  exit: ExitStatus | undefined;

  take({ started, output, gap, exited }: ProcessEvent): void {
    if (this.exit) throw new Error("something came after the end");
    if (started) {
      if (this.processId !== "") expect(started.process_id).toBe(this.processId);
      this.processId = started.process_id;
    }
    if (gap) throw new Error(`a gap at ${gap.from_offset}`);
    if (exited) this.exit = exited;
    if (!output) return;
    const stream = output.stream === "OUTPUT_STREAM_STDOUT" ? "stdout" : "stderr";
    expect(output.offset).toBe(this.offsets[stream]);
    this.hashes[stream].update(output.data);
    this.offsets[stream] += output.data.length;
  }
}

describe("connections that break at random bytes", () => {
  test.each(WAYS)("by a %s, of a process %s, join up to the exact transcript", async (kind, name, how) => {
    const bytes = ROUNDS * 1000 * LINE_BYTES * 1.1;
    // The first ones break before a response, the others anywhere in its frames.
    const lengths = [20, 90, 150].concat(
      Array.from({ length: CUTS - 3 + SPARE_CUTS }, () => randomInt(1, Math.ceil(bytes / CUTS))),
    );
    const link = await CuttingLink.to(app.app.address, kind, lengths);
    try {
      const joined = new Joined();
      const request = { sandbox_id: sandboxId, shell: WRITE, request_id: `${kind} ${name}`, ...how };
      let connections = 0;
      for (; joined.exit === undefined && connections < CUTS * 10; connections++) {
        const client = new Client(link.address);
        const { stdout, stderr } = joined.offsets;
        const call =
          joined.processId === ""
            ? client.stream("ProcessService/Exec", request)
            : client.stream("ProcessService/AttachProcess", {
                process_id: joined.processId,
                stdout_offset: stdout,
                stderr_offset: stderr,
              });
        const broken = await (async () => {
          for await (const event of call as AsyncIterable<ProcessEvent>) joined.take(event);
        })().then(
          () => undefined,
          (error: unknown) => error,
        );
        client.close();
        if (broken !== undefined) expect(broken).toMatchObject({ metadata: expect.anything() });
      }
      expect(link.cuts).toBeGreaterThanOrEqual(CUTS);
      expect(joined.exit).toMatchObject({ cause: "EXIT_CAUSE_EXITED", exit_code: 0 });
      expect(joined.offsets.stdout).toBe(ROUNDS * 1000 * LINE_BYTES);
      expect(joined.hashes.stdout.digest("hex")).toBe(digestOf(1));
      expect(joined.hashes.stderr.digest("hex")).toBe(digestOf(10));
      // The service has closed every broken connection.
      await eventually(() => link.lingering === 0, { describe: () => link.lingering });
    } finally {
      link.close();
    }
  });
});

test.each<CutKind>(["reset", "fin"])(
  "a process whose caller's connection breaks by a %s is killed by default",
  async (kind) => {
    const link = await CuttingLink.to(app.app.address, kind, [700]);
    const client = new Client(link.address);
    try {
      const execution = client.exec(sandboxId, "(sleep 4901; true) & while :; do echo y; sleep 0.05; done");
      const processId = await execution.processId;
      await expect(execution.result).rejects.toThrow();
      const ended = async () =>
        (await app.client.call("ProcessService/GetProcess", { process_id: processId })).process.exit_status;
      await eventually(async () => (await ended()) !== null);
      expect((await ended())?.cause).toBe("EXIT_CAUSE_CANCELED");
      const container = await containerOf(app.instance, sandboxId);
      expect((await processesIn(container)).filter((args) => args.includes("4901"))).toEqual([]);
    } finally {
      client.close();
      link.close();
    }
  },
);
