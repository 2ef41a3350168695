import { beforeAll, describe, expect, test } from "vitest";
import { useApp } from "../../support/app.ts";
import { ENGINES } from "../../support/engines.ts";
import { scaled } from "../../support/scale.ts";
import { type BashData, type ToolAnswer, Worker } from "../../support/worker.ts";

const COMMANDS = scaled(10_000, 300);
const WORKERS = 4;
const LATE = Buffer.from("late\n");

/** A command and its expected result. */
interface Case {
  readonly command: string;
  readonly stdout: Buffer;
  readonly stderr: Buffer;
  readonly code: number;
  /**
   * Whether it leaves something behind that writes `late` later. That output must come with this command's, or not at
   * all.
   */
  readonly leaves: boolean;
}

/** Pseudo-random numbers that are the same in every run. */
function randomNumbers(seed: number): (below: number) => number {
  let state = seed;
  return (below) => {
    state = (Math.imul(state, 1_664_525) + 1_013_904_223) >>> 0;
    return Math.floor((state / 2 ** 32) * below);
  };
}

function randomCase(random: (below: number) => number, variable: number): Case {
  const bytes = (most: number): Buffer =>
    Buffer.from(Array.from({ length: random(most) }, () => random(256)));
  const printed = (data: Buffer): string =>
    `printf '${[...data].map((byte) => `\\${byte.toString(8).padStart(3, "0")}`).join("")}'`;
  const stdout = bytes(random(20) === 0 ? 20_000 : 40);
  const stderr = bytes(20);
  const code = random(3) === 0 ? random(256) : 0;
  const leaves = random(20) === 0;
  const counted = Buffer.from(`${variable + 1}\n`);
  const parts = [
    `n=$((n + 1))`,
    "echo $n",
    printed(stdout),
    `${printed(stderr)} >&2`,
    // Something left behind that holds the command's pipes.
    ...(leaves ? [`{ (sleep 0.0${random(6)}; echo late; echo late >&2) & }`] : []),
    ...(random(10) === 0 ? ["cat; read -r x"] : []),
    code === 0 ? "true" : `(exit ${code})`,
  ];
  return {
    command: parts.join(["; ", "\n"][random(2)]),
    stdout: Buffer.concat([counted, stdout]),
    stderr,
    code,
    leaves,
  };
}

describe.each(ENGINES)("on $name", ({ name, settings }) => {
  const app = useApp(settings);
  const workers: Worker[] = [];

  beforeAll(async () => {
    const { sandbox_id: sandboxId } = await app.client.createSandbox();
    for (let i = 0; i < WORKERS; i++) {
      const worker = new Worker(app.client, `random ${i}`);
      await worker.create("bash", undefined, { sandbox_id: sandboxId });
      workers.push(worker);
    }
  });

  test(`${COMMANDS} random commands give their own bytes and codes, and no other's`, async () => {
    const ran = await Promise.all(
      workers.map(async (worker, index) => {
        const random = randomNumbers(index + 1 + (name === "docker" ? 0 : 100));
        for (let i = 0; i < COMMANDS / WORKERS; i++) {
          const wanted = randomCase(random, i);
          const answer = await worker.execute<BashData>("bash:run", { command: wanted.command });
          const got = {
            stdout: bytesOf(answer, "stdout"),
            stderr: bytesOf(answer, "stderr"),
            code: answer.data.exit_code,
            lost: answer.data.session_lost,
          };
          const { stdout, stderr, code, leaves } = wanted;
          const isRight = (bytes: Buffer, own: Buffer): boolean =>
            bytes.equals(own) || (leaves && bytes.equals(Buffer.concat([own, LATE])));
          if (!isRight(got.stdout, stdout) || !isRight(got.stderr, stderr) || got.code !== code || got.lost) {
            expect({ command: wanted.command, ...got }).toEqual({ ...wanted, lost: false });
          }
        }
        return COMMANDS / WORKERS;
      }),
    );
    expect(ran.reduce((sum, count) => sum + count, 0)).toBe(COMMANDS);
  }, 600_000);
});

function bytesOf(answer: ToolAnswer<BashData>, stream: "stdout" | "stderr"): Buffer {
  const attached = answer.attachments.find((attachment) => attachment.name === stream);
  return attached ? attached.content : Buffer.from(answer.data[stream]);
}
