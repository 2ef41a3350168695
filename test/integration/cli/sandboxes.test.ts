import { once } from "node:events";
import http from "node:http";
import http2 from "node:http2";
import { type AddressInfo, createServer, type Server } from "node:net";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { VERSION } from "../../../src/version.ts";
import { containersOf } from "../../support/docker.ts";
import { TEST_IMAGE } from "../../support/images.ts";
import { ServeProcess } from "../../support/program.ts";
import { runProgramHere } from "../../support/program-here.ts";
import { expectRemaining } from "../../support/remaining.ts";

let service: ServeProcess;
beforeAll(async () => {
  service = await ServeProcess.start(["--max-sandboxes", "2"]);
});
afterAll(() => service.stop());

const json = async (args: string[]) =>
  JSON.parse((await service.runHere([...args, "--json"])).stdout.toString());

describe("create, ls, stats and rm", () => {
  test("a sandbox from create to delete", async () => {
    const begin = performance.now();
    const created = await service.run(["create", "-l", "team=red", "--idle-timeout", "5m"]);
    const id = created.stdout.toString().trim();
    expect(created.stdout.toString()).toMatch(/^sbx_[a-z2-7]{20}\n$/);

    const { sandbox } = (await json(["create", "--id", "named", "-l", "team=blue"])) as { sandbox: object };
    expect(sandbox).toMatchObject({
      sandboxId: "named",
      state: "SANDBOX_STATE_RUNNING",
      engine: "docker",
      isolation: "ISOLATION_LEVEL_CONTAINER",
      generation: "1",
      spec: { image: TEST_IMAGE, labels: { team: "blue" }, workingDir: "/workspace" },
    });

    const ls = (await service.run(["ls"])).stdout.toString().split("\n");
    expect(ls[0]).toMatch(/^ID +STATE +IMAGE +AGE +EXPIRES +ACTIVE$/);
    for (const [row = "", name, timeout] of [
      [ls[1], "named", 3600],
      [ls[2], id, 300],
    ] as const) {
      const cells = row.split(/ {2,}/);
      const age = expect.stringMatching(/^\d+\w+( \d+s)?$/);
      expect(cells).toEqual([name, "running", TEST_IMAGE, age, expect.any(String), "0"]);
      expectRemaining(cells[4], timeout, begin);
    }

    const red = await json(["ls", "-l", "team=red"]);
    expect(red.sandboxes.map(({ sandboxId }: { sandboxId: string }) => sandboxId)).toEqual([id]);

    expect(await json(["stats"])).toMatchObject({
      totalSandboxes: 2,
      activeOperations: 0,
      maxSandboxes: 2,
      idleTimeout: "3600s",
      cleanupInterval: "300s",
      isShuttingDown: false,
      engine: { name: "docker", available: true, isolation: "ISOLATION_LEVEL_CONTAINER" },
    });
    const stats = (await service.run(["stats"])).stdout.toString();
    expect(stats).toMatch(/^sandboxes +2 of 2, 0 in use$/m);
    expect(stats).toMatch(/^engine +docker \d+/m);

    const full = await service.runHere(["create"]);
    expect(full.exitCode).toBe(1);
    expect(full.stderr).toMatch(
      /^berth: Maximum number of sandboxes \(2\) reached\..*\nTo list them: berth ls\n$/,
    );

    const removed = await service.run(["rm", id, "named", "unknown"]);
    expect(removed).toMatchObject({
      exitCode: 1,
      stderr: 'berth: There is no sandbox "unknown".\nTo list them: berth ls --all\n',
    });
    expect(removed.stdout.toString().trim().split("\n").sort()).toEqual(["named", id].sort());
    expect(await service.runHere(["rm", "named"])).toMatchObject({
      exitCode: 1,
      stderr: 'berth: The sandbox "named" has ended already.\n',
    });
    for (const force of ["-f", "--force"])
      expect(await service.runHere(["rm", force, "named", "unknown"])).toMatchObject({
        exitCode: 0,
        stderr: "",
      });
    expect(await containersOf(service.instance)).toEqual([]);

    expect((await json(["ls"])).sandboxes).toEqual([]);
    const all = (await service.runHere(["ls", "--all"])).stdout.toString();
    expect(all).toMatch(/^named +terminated \(deleted\) /m);
  });

  test("rm --json reports each", async () => {
    const forced = await service.runHere(["rm", "--json", "--force", "a"]);
    expect(JSON.parse(forced.stdout.toString())).toEqual({ sandboxId: "a", deleted: true });
    const { stdout } = await service.runHere(["rm", "--json", "a", "b"]);
    const lines = stdout
      .toString()
      .trim()
      .split("\n")
      .map((line) => JSON.parse(line));
    for (const sandboxId of ["a", "b"])
      expect(lines).toContainEqual({
        sandboxId,
        deleted: false,
        error: `There is no sandbox "${sandboxId}".`,
      });
  });

  test("version prints both versions, or why the service's is not known", async () => {
    const { stdout } = await service.run(["version"]);
    expect(stdout.toString()).toBe(`client   ${VERSION}\nservice  ${VERSION} at ${service.address}\n`);
    const { address } = service;
    expect(JSON.parse((await service.runHere(["version", "--json"])).stdout.toString())).toEqual({
      client: { version: VERSION },
      service: { version: VERSION, address },
    });
    const alone = await runProgramHere(["version", "--address", "127.0.0.1:1"]);
    expect([alone.exitCode, alone.stdout.toString()]).toEqual([
      0,
      `client   ${VERSION}\nservice  none: no service answers at 127.0.0.1:1\n`,
    ]);
  });

  test("the client's options may stand before the command", async () => {
    const { address } = service;
    const env = { BERTH_ADDRESS: "127.0.0.1:1" };
    const first = await service.runHere(["--address", address, "--json", "session", "ls"], { env });
    expect(JSON.parse(first.stdout.toString())).toEqual({ sessions: [], nextPageToken: "" });
    const middle = await service.runHere(["session", "--address", address, "ls"], { env });
    expect(middle).toMatchObject({ exitCode: 0, stderr: "" });
    expect(await service.runHere(["--address", address, "serve"])).toMatchObject({
      exitCode: 2,
      stderr: "berth: unknown option '--address'\n",
    });
  });
});

test("with bubblewrap, ls names no image", async () => {
  const other = await ServeProcess.start(["--engine", "bubblewrap"]);
  try {
    await other.runHere(["create", "--id", "plain"]);
    const [headings, row] = (await other.runHere(["ls"])).stdout.toString().split("\n");
    expect(headings).toMatch(/^ID +STATE +IMAGE +AGE /);
    expect(row).toMatch(/^plain +running +- +\d/);
  } finally {
    await other.stop();
  }
});

describe("errors", () => {
  test.each<[string[], number, string]>([
    [["create", "--id", "new\nline"], 1, "sandbox_id"],
    [["create", "--memory", "lots"], 2, '--memory: "lots" is not a size'],
    [["create", "--memory", "1MiB"], 1, "spec.resources.memory_bytes"],
    [["create", "--cpus", "0"], 2, "--cpus:"],
    [["create", "extra"], 2, "too many arguments"],
    [["ls", "-l", "team"], 2, '--label: "team" is not of the form KEY=VALUE'],
    [["rm"], 2, "missing required argument 'sandbox'"],
    [["stat"], 2, "unknown command 'stat'"],
    [["ls", "--address", "somewhere"], 2, '"somewhere" is not the address of a service'],
  ])("%j", async (args, code, problem) => {
    const { exitCode, stderr } = await service.runHere(args);
    expect(exitCode).toBe(code);
    expect(stderr).toMatch(/^berth: /);
    expect(stderr).toContain(problem);
  });

  const OTHERS: Record<string, () => Server> = {
    "a web server": () => http.createServer((_request, response) => response.end("hello")),
    "a web server without such a page": () =>
      http.createServer((_request, response) => response.writeHead(404).end("what?")),
    "a web server of HTTP/2": () => {
      return http2.createServer((_request, response) => void response.end("hello"));
    },
    "a mail server": () => createServer((socket) => socket.on("error", () => {}).end("220 ready\r\n")),
  };

  test.each(
    Object.keys(OTHERS).flatMap((other) => [
      { other, scheme: "" },
      { other, scheme: "http://" },
    ]),
  )("$other at $scheme… is not taken for Berth", async ({ other, scheme }) => {
    const server = OTHERS[other]?.();
    if (server === undefined) throw new Error(`no ${other}`);
    await once(server.listen(0, "127.0.0.1"), "listening");
    try {
      const address = `${scheme}127.0.0.1:${(server.address() as AddressInfo).port}`;
      for (const [args, code] of [
        [["ls"], 1],
        [["exec", "box", "true"], 125],
      ] as const) {
        const { exitCode, stderr } = await runProgramHere(args, { env: { BERTH_ADDRESS: address } });
        expect(exitCode).toBe(code);
        // It may close the connection before it sends anything.
        if (scheme === "" && other === "a web server of HTTP/2") {
          expect(stderr).toContain(`For a proxy that takes only HTTP/2, write http://${address}\n`);
        } else expect(stderr).toContain(`berth: what answers at ${address} is not Berth\n`);
      }
    } finally {
      server.close();
    }
  });

  test("an older service that lacks a call is not taken for something else", async () => {
    const server = http.createServer((_request, response) =>
      response
        .writeHead(404, { "content-type": "application/json" })
        .end('{"code":"unimplemented","message":"This server has no such method."}'),
    );
    await once(server.listen(0, "127.0.0.1"), "listening");
    try {
      const address = `127.0.0.1:${(server.address() as AddressInfo).port}`;
      const env = { BERTH_ADDRESS: address };
      expect((await runProgramHere(["ls"], { env })).stderr).toContain(
        "berth: This server has no such method.",
      );
      const streamed = await runProgramHere(["exec", "box", "true"], { env });
      expect(streamed.exitCode).toBe(125);
      expect(streamed.stderr).toContain(`berth: the service at ${address} does not know this call\n`);
    } finally {
      server.close();
    }
  });

  test.each(["unix:/tmp/no-such-berth.sock", "127.0.0.1:1", "http://[::1]:1"])(
    "no service at %s",
    async (address) => {
      const { exitCode, stderr } = await runProgramHere(["stats"], { env: { BERTH_ADDRESS: address } });
      expect(exitCode).toBe(1);
      expect(stderr).toContain(`berth: no service answers at ${address}\nStart one with: berth serve\n`);
    },
  );
});
