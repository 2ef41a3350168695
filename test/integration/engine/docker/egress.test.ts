import { execFileSync, spawn } from "node:child_process";
import { once } from "node:events";
import { readFile, writeFile } from "node:fs/promises";
import { createServer, type Server } from "node:http";
import { createConnection } from "node:net";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { docker } from "../../../support/docker.ts";
import { lockMachine } from "../../../support/machine-lock.ts";
import { openPython, run, sh, spec, useEngine } from "./support.ts";

/** A public address that is routed to a namespace on this machine while the tests run. */
const PUBLIC = { address: "11.22.33.44", namespace: "berth-test-net", link: "berthtest0" };

/** Addresses in the same namespace that the machine reaches, but no sandbox may: one in each closed range. */
const CLOSED = ["10.213.99.7", "100.99.213.7", "169.254.213.7", "172.29.213.7", "192.168.213.7"];

const { engine } = useEngine({ egressDns: [PUBLIC.address] });
let server: Server;
let ref = "";
let interpreter: Awaited<ReturnType<typeof openPython>>;
let sibling = "";
let lock: AsyncDisposable | undefined;

/** How long these tests of other runs may take: they use names, addresses and the firewall of the whole machine. */
const OTHERS_MS = 1_200_000;

function ip(...args: string[]): void {
  execFileSync("ip", args, { stdio: "pipe" });
}

/** A fake part of the public internet. None of its traffic leaves the machine. */
function raiseInternet(): void {
  const { address, namespace, link } = PUBLIC;
  ip("netns", "add", namespace);
  ip("link", "add", link, "type", "veth", "peer", "name", "eth0", "netns", namespace);
  ip("addr", "add", "198.51.100.1/30", "dev", link);
  ip("link", "set", link, "up");
  for (const each of [address, ...CLOSED]) ip("route", "add", `${each}/32`, "via", "198.51.100.2");
  ip("-n", namespace, "addr", "add", "198.51.100.2/30", "dev", "eth0");
  for (const each of [address, ...CLOSED]) ip("-n", namespace, "addr", "add", `${each}/32`, "dev", "lo");
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

/** The result of connecting from the sandbox. */
async function connect(address: string, port: number): Promise<string> {
  const program = `
import socket, sys
try:
    socket.create_connection((sys.argv[1], int(sys.argv[2])), 20)
    print("connected")
except ConnectionRefusedError: print("refused")
except Exception as error: print(repr(error))`;
  const { stdout } = await interpreter.python.run(program, address, String(port));
  return stdout.toString().trim();
}

/** The output of a Python program, which may fail. */
async function python(program: string, ...args: string[]): Promise<string> {
  const { stdout, stderr } = await interpreter.python.run(`import socket, sys\n${program}`, ...args);
  return `${stdout}${stderr}`;
}

async function reachedFromHere(address: string, at: number): Promise<void> {
  const socket = createConnection(at, address);
  try {
    await once(socket, "connect");
  } finally {
    socket.destroy();
  }
}

beforeAll(async () => {
  lock = await lockMachine("egress", OTHERS_MS);
  dropInternet();
  raiseInternet();
  server = createServer((_, response) => response.end("of the host")).listen(0, "0.0.0.0");
  ({ ref } = await engine.create(spec({ network: "EGRESS" })));
  interpreter = await openPython(engine, ref);
  ({ ref: sibling } = await engine.create(spec({ network: "EGRESS", owner: "another-tenant" })));
}, OTHERS_MS + 180_000);

afterAll(async () => {
  interpreter?.close();
  server?.close();
  if (lock === undefined) return;
  dropInternet();
  await lock[Symbol.asyncDispose]();
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
  test("reaches the public internet, and no private address of the same server", async () => {
    const program = `import socket
server = socket.create_server(("0.0.0.0", 8080))
while True: server.accept()[0].close()`;
    const listener = spawn("ip", ["netns", "exec", PUBLIC.namespace, "python3", "-c", program], {
      stdio: "ignore",
    });
    try {
      await expect.poll(() => connect(PUBLIC.address, 8080)).toBe("connected");
      for (const address of CLOSED) {
        // The machine itself reaches it.
        await reachedFromHere(address, 8080);
        expect(await connect(address, 8080), address).toBe("refused");
        expect(await connect(`::ffff:${address}`, 8080), address).toMatch(/refused|unreachable/);
      }
    } finally {
      listener.kill();
    }
  });

  test("does not reach the machine, at any of its addresses", async () => {
    const { NetworkSettings } = await docker.getContainer(ref).inspect();
    const gateway = NetworkSettings.Networks["berth-egress"]?.Gateway ?? "";
    expect(gateway).toMatch(/^\d/);
    // The server answers everyone who reaches it.
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
    await expect.poll(async () => (await run(engine, sibling, ["sh", "-c", self])).exitCode).toBe(0);
    expect(await connect(await addressOf(sibling), 8000)).toBe("refused");
  });

  test.each(["169.254.169.254", "10.0.0.1", "172.16.0.1", "192.168.0.1", "100.64.0.1", "198.18.0.1"])(
    "does not reach %s, and fails at once",
    async (address) => {
      expect(await connect(address, 80)).toBe("refused");
    },
  );

  test("has no IPv6, and cannot get it", async () => {
    expect((await sh(engine, ref, "cat /proc/net/if_inet6")).trim()).toBe("");
    const turnOn = "echo 0 >/proc/sys/net/ipv6/conf/all/disable_ipv6";
    expect((await run(engine, ref, ["sh", "-c", turnOn])).exitCode).not.toBe(0);
    for (const address of ["fd00::1", "fe80::1%eth0", "2606:4700::1111", "ff02::1%eth0"])
      expect(await connect(address, 80), address).toMatch(/unreachable|assign|Errno/);
  });

  test("the machine has no IPv6 address on their bridge", async () => {
    expect(await readFile("/proc/net/if_inet6", "utf8")).not.toMatch(/\bberth0\b/);
  });

  test.each([
    ["a packet socket, for forged ARP and MAC addresses", "socket.AF_PACKET, socket.SOCK_RAW, 3"],
    ["a raw IP socket, for forged sources", "socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_RAW"],
    ["a raw ICMP socket, for redirects", "socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_ICMP"],
  ])("cannot open %s", async (_what, kind) => {
    expect(await python(`socket.socket(${kind})`)).toMatch(/PermissionError/);
  });

  test("cannot change its addresses, its routes or its MAC address", async () => {
    const program = `fcntl.ioctl(socket.socket(), REQUEST, struct.pack("16s48x", b"eth0"))`;
    // SIOCSIFADDR, SIOCADDRT, SIOCSIFHWADDR
    for (const request of ["0x8916", "0x890b", "0x8924"]) {
      const printed = await python(`import fcntl, struct; ${program.replace("REQUEST", request)}`);
      expect(printed, request).toMatch(/PermissionError/);
    }
  });

  test("gets no answer to a ping from the machine or a sibling", async () => {
    const { NetworkSettings } = await docker.getContainer(ref).inspect();
    const gateway = NetworkSettings.Networks["berth-egress"]?.Gateway ?? "";
    const program = `
ping = socket.socket(socket.AF_INET, socket.SOCK_DGRAM, socket.IPPROTO_ICMP)
ping.settimeout(1)
ping.sendto(bytes([8, 0, 0xf7, 0xff, 0, 0, 0, 0]), (sys.argv[1], 0))
print("answer", ping.recv(99))`;
    for (const address of [gateway, await addressOf(sibling), CLOSED[0] ?? ""])
      expect(await python(program, address), address).toMatch(/Error/);
  });

  test("reaches nobody by broadcast or multicast", async () => {
    const listening = `
import socket, struct, sys
server = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
server.bind(("", 5353))
own = socket.inet_aton(sys.argv[1])
server.setsockopt(socket.IPPROTO_IP, socket.IP_ADD_MEMBERSHIP, socket.inet_aton("224.0.0.251") + own)
while True: open("/tmp/heard", "ab").write(server.recv(99) + b"\\n")`;
    const address = await addressOf(sibling);
    const argv = ["python3", "-c", listening.replace("\\\\n", "\\n"), address];
    await engine.spawn(sibling, { argv, stdin: false }, { data() {}, end() {} });
    const say = `
import socket, sys
speaker = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
speaker.setsockopt(socket.SOL_SOCKET, socket.SO_BROADCAST, 1)
for to in sys.argv[2:]:
    try: speaker.sendto(sys.argv[1].encode(), (to, 5353))
    except OSError as error: pass`;
    const all = ["255.255.255.255", address.replace(/\.\d+\.\d+$/, ".255.255"), "224.0.0.251", address];
    // It listens: it receives its own message.
    const heard = (): Promise<string> => sh(engine, sibling, "cat /tmp/heard 2>/dev/null || true");
    await expect
      .poll(async () => {
        await run(engine, sibling, ["python3", "-c", say, "own", address]);
        return heard();
      })
      .toContain("own");
    await python(say, "foreign", ...all);
    await run(engine, sibling, ["python3", "-c", say, "last", address]);
    await expect.poll(heard).toContain("last");
    expect(await heard()).not.toContain("foreign");
  });

  test("a name with a private address leads nowhere, and Docker's resolver is not a way out", async () => {
    const program = `import socket
server = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
server.bind(("${PUBLIC.address}", 53))
while True:
    query, sender = server.recvfrom(512)
    question = query[12:query.index(b"\\0", 12) + 5]
    record = b"\\xc0\\x0c\\0\\1\\0\\1\\0\\0\\0\\0\\0\\4" + socket.inet_aton("${CLOSED[0]}")
    found = question.endswith(b"\\0\\1\\0\\1")
    counts = b"\\0\\1\\0" + bytes([found]) + b"\\0\\0\\0\\0"
    server.sendto(query[:2] + b"\\x81\\x80" + counts + question + (record if found else b""), sender)`;
    const resolver = spawn("ip", ["netns", "exec", PUBLIC.namespace, "python3", "-c", program], {
      stdio: "ignore",
    });
    try {
      const lookUp = 'print(socket.gethostbyname("rebound.example"))';
      await expect.poll(() => python(lookUp)).toBe(`${CLOSED[0]}\n`);
      expect(await connect("rebound.example", port())).toBe("refused");
      expect(await connect("127.0.0.11", port())).toMatch(/refused|timed out/);
    } finally {
      resolver.kill();
    }
  });

  test("loopback is its own, not the machine's", async () => {
    for (const address of ["127.0.0.1", "127.1.2.3", "0.0.0.0", "::1", "::ffff:127.0.0.1"])
      expect(await connect(address, port()), address).not.toBe("connected");
  });
});

test("deleted rules are restored before the next sandbox", async () => {
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

test("IPv6 that was turned on for the bridge is turned off before the next sandbox", async () => {
  const file = "/proc/sys/net/ipv6/conf/berth0/disable_ipv6";
  await writeFile(file, "0");
  await engine.create(spec({ network: "EGRESS" }));
  expect((await readFile(file, "utf8")).trim()).toBe("1");
});

test("capabilities report it", async () => {
  expect((await engine.info()).capabilities.egress).toBe(true);
});
