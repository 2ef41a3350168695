import { execFileSync, spawn } from "node:child_process";
import { once } from "node:events";
import { closeSync, constants, mkdtempSync, openSync, rmSync } from "node:fs";
import { Socket } from "node:net";
import { tmpdir } from "node:os";
import path from "node:path";
import { text } from "node:stream/consumers";
import { setTimeout } from "node:timers/promises";
import { expect, onTestFinished, test } from "vitest";
import { MAIN, ServeProcess } from "../../support/program.ts";

/** A FIFO. Node reads from the pipes that it makes for a child before anything asks it to. */
function openPipe(): { readonly reader: number; readonly writer: number } {
  const dir = mkdtempSync(path.join(tmpdir(), "berth-fifo-"));
  onTestFinished(() => rmSync(dir, { recursive: true }));
  const file = path.join(dir, "stderr");
  execFileSync("mkfifo", [file]);
  const reader = openSync(file, constants.O_RDONLY | constants.O_NONBLOCK);
  return { reader, writer: openSync(file, constants.O_WRONLY) };
}

/** Runs a command that fails, and whose stderr is full. Once it has tried to write there, it says so on stdout. */
function failOnFullStderr() {
  const code = `
    const { writeSync } = await import("node:fs");
    // The first use makes it non-blocking.
    const { stderr } = process;
    for (const bytes of [4096, 1])
      try {
        for (;;) writeSync(2, "x".repeat(bytes));
      } catch {}
    const write = stderr.write.bind(stderr);
    stderr.write = (...args) => {
      const result = write(...args);
      writeSync(1, "tried");
      return result;
    };
    process.argv.push("berth", "ls", "--address", "nonsense:");
    await import(${JSON.stringify(MAIN)});`;
  const { reader, writer } = openPipe();
  const child = spawn(process.execPath, ["--input-type=module", "--eval", code], {
    stdio: ["ignore", "pipe", writer],
    timeout: 120_000,
    killSignal: "SIGKILL",
  });
  onTestFinished(() => void child.kill("SIGKILL"));
  closeSync(writer);
  return { reader, tried: once(child.stdout as Socket, "data"), exited: once(child, "exit") };
}

test("why a command fails is written to a stderr that is read late", async () => {
  const { reader, tried, exited } = failOnFullStderr();
  await tried;
  const stderr = new Socket({ fd: reader, readable: true, writable: false });
  expect(await text(stderr)).toMatch(/^x+berth: .*nonsense/);
  expect(await exited).toEqual([2, null]);
});

test("a stderr that nobody reads does not keep a command from ending", async () => {
  const { reader, exited } = failOnFullStderr();
  expect(await exited).toEqual([2, null]);
  closeSync(reader);
});

test("an interrupt ends a command whose output nobody reads", async () => {
  const service = await ServeProcess.start(["--engine", "bubblewrap"]);
  onTestFinished(() => void service.stop());
  expect(await service.runHere(["create", "--id", "box"])).toMatchObject({ exitCode: 0 });
  /** How a command ends that is interrupted while it writes more than the pipes on the way take. */
  const interrupted = async (...line: string[]) => {
    const child = service.begin(line);
    try {
      await once(child.stdout, "readable");
      child.kill("SIGINT");
      const late = setTimeout(20_000, "still runs", { ref: false });
      return await Promise.race([once(child, "exit").then(([exitCode]) => exitCode), late]);
    } finally {
      child.kill("SIGKILL");
    }
  };
  const long = ["A", "B", "C"].flatMap((name) => ["-e", `${name}=${"x".repeat(100_000)}`]);
  expect(await service.runHere(["create", "--id", "long", ...long])).toMatchObject({ exitCode: 0 });
  const ends = await Promise.all([
    interrupted("ls", "--format", "{{json .}}".repeat(500)),
    interrupted("inspect", ...Array.from({ length: 500 }, () => "box")),
    interrupted("inspect", "-f", "{{json .spec}}".repeat(1000), "box"),
    interrupted("tool", "run", "-w", "ann", "python:run", "code='x' * 300_000"),
    interrupted("run", "--json", ...long, "--", "true"),
    interrupted("update", "--json", "--idle-timeout", "1h", "long"),
  ]);
  expect(ends).toEqual([130, 130, 130, 130, 130, 130]);
});
