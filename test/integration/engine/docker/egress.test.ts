import { execFileSync, spawn } from "node:child_process";
import { createServer, type Server } from "node:http";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { docker } from "../../../support/docker.ts";
import { run, sh, spec, useEngine } from "./support.ts";

/** A public address that leads, for as long as the tests run, to a namespace of this machine. */
const PUBLIC = { address: "11.22.33.44", namespace: "berth-test-net", link: "berthtest0" };

const { engine } = useEngine();
let server: Server;
let ref = "";
let sibling = "";

function ip(...args: string[]): void {
  execFileSync("ip", args, { stdio: "pipe" });
}

/** A stretch of public internet: nothing of it leaves the machine. */
function raiseInternet(): void {
  const { address, namespace, link } = PUBLIC;
  ip("netns", "add", namespace);
  ip("link", "add", link, "type", "veth", "peer", "name", "eth0", "netns", namespace);
  ip("addr", "add", "198.51.100.1/30", "dev", link);
  ip("link", "set", link, "up");
  ip("route", "add", `${address}/32`, "via", "198.51.100.2");
  ip("-n", namespace, "addr", "add", "198.51.100.2/30", "dev", "eth0");
  ip("-n", namespace, "addr", "add", `${address}/32`, "dev", "lo");
  ip("-n", namespace, "link", "set", "eth0", "up");
  ip("-n", namespace, "link", "set", "lo", "up");
  ip("-n", namespace, "route", "add", "default", "via", "198.51.100.1");
}

function dropInternet(): void {
  for (const args of [
    ["link", "delete", PUBLIC.link],
    ["netns", "delete", PUBLIC.namespace],
  ]) {
    try {
      ip(...args);
    } catch {}
  }
}

/** How connecting from the sandbox ends. */
async function connect(address: string, port: number): Promise<string> {
  const program = `
import socket, sys
try:
    socket.create_connection((sys.argv[1], int(sys.argv[2])), 3)
    print("connected")
except ConnectionRefusedError: print("refused")
except Exception as error: print(repr(error))`;
  const { stdout } = await run(engine, ref, ["python3", "-c", program, address, String(port)]);
  return stdout.toString().trim();
}

beforeAll(async () => {
  dropInternet();
  raiseInternet();
  server = createServer((_, response) => response.end("of the host")).listen(0, "0.0.0.0");
  ({ ref } = await engine.create(spec({ network: "EGRESS" })));
  ({ ref: sibling } = await engine.create(spec({ network: "EGRESS" })));
});

afterAll(() => {
  server.close();
  dropInternet();
});

async function addressOf(container: string): Promise<string> {
  const { NetworkSettings } = await docker.getContainer(container).inspect();
  return NetworkSettings.Networks["berth-egress"]?.IPAddress ?? "";
}

function port(): number {
  const address = server.address();
  return typeof address === "object" && address ? address.port : 0;
}

describe("a sandbox with egress", () => {
  test("reaches the public internet", async () => {
    const program = `import socket
server = socket.create_server(("${PUBLIC.address}", 8080))
while True: server.accept()[0].close()`;
    const listener = spawn("ip", ["netns", "exec", PUBLIC.namespace, "python3", "-c", program], {
      stdio: "ignore",
    });
    try {
      await expect.poll(() => connect(PUBLIC.address, 8080), { timeout: 10_000 }).toBe("connected");
    } finally {
      listener.kill();
    }
  });

  test("does not reach the machine, by any of its addresses", async () => {
    const { NetworkSettings } = await docker.getContainer(ref).inspect();
    const gateway = NetworkSettings.Networks["berth-egress"]?.Gateway ?? "";
    expect(gateway).toMatch(/^\d/);
    // The server answers whoever may come.
    expect(await (await fetch(`http://${gateway}:${port()}`)).text()).toBe("of the host");
    for (const address of [gateway, "172.17.0.1", "198.51.100.1"])
      expect(await connect(address, port()), address).toBe("refused");
  });

  test("does not reach a sibling", async () => {
    await engine.spawn(
      sibling,
      { argv: ["python3", "-m", "http.server", "8000"], stdin: false },
      { data() {}, end() {} },
    );
    const self = "python3 -c 'import socket; socket.create_connection((\"127.0.0.1\", 8000), 1)'";
    await expect
      .poll(async () => (await run(engine, sibling, ["sh", "-c", self])).exitCode, { timeout: 10_000 })
      .toBe(0);
    expect(await connect(await addressOf(sibling), 8000)).toBe("refused");
  });

  test.each(["169.254.169.254", "10.0.0.1", "172.16.0.1", "192.168.0.1", "100.64.0.1", "198.18.0.1"])(
    "does not reach %s, and fails at once",
    async (address) => {
      expect(await connect(address, 80)).toBe("refused");
    },
  );

  test("has no IPv6", async () => {
    expect((await sh(engine, ref, "cat /proc/net/if_inet6")).trim()).toBe("");
  });
});

test("rules that somebody removed are restored before the next sandbox", async () => {
  execFileSync("iptables", ["-w", "5", "-D", "INPUT", "-i", "berth0", "-j", "REJECT"]);
  execFileSync("iptables", ["-w", "5", "-F", "BERTH-EGRESS"]);
  const created = await Promise.all([
    engine.create(spec({ network: "EGRESS" })),
    engine.create(spec({ network: "EGRESS" })),
  ]);
  expect(created).toHaveLength(2);
  const rules = execFileSync("iptables", ["-w", "5", "-S"]).toString();
  expect(rules.match(/-A INPUT -i berth0/g)).toHaveLength(1);
  expect(rules.match(/-A DOCKER-USER -i berth0/g)).toHaveLength(1);
  expect(rules).toContain("-A BERTH-EGRESS -d 10.0.0.0/8 -j REJECT");
});

test("capabilities report it", async () => {
  expect((await engine.info()).capabilities.egress).toBe(true);
});
