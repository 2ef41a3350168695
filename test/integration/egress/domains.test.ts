import { readFile } from "node:fs/promises";
import path from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { Client, failureOf } from "../../support/client.ts";
import { removeContainers } from "../../support/docker.ts";
import { ENGINES } from "../../support/engines.ts";
import { eventually } from "../../support/eventually.ts";
import { Internet } from "../../support/internet.ts";
import { INTERNET } from "../../support/internet-addresses.ts";
import { ServeProcess } from "../../support/program.ts";
import { ScriptPython } from "../../support/script-python.ts";
import { newDataDir } from "../../support/settings.ts";

/** Fetches a URL like programs that support proxies, follows redirects, and prints the result. */
const FETCH = `
import sys, urllib.request, urllib.error
try:
    with urllib.request.urlopen(sys.argv[1], timeout=30) as answer: print(answer.status, answer.read().decode())
except urllib.error.HTTPError as error: print(error.code, error.read().decode())
except Exception as error: print(error)
`;

/** Connects without a proxy. */
const CONNECT = `
import socket, sys
try: socket.create_connection((sys.argv[1], 80), 5); print("connected")
except OSError as error: print(error)
`;

/** Sends bytes to the proxy, closes its side if asked to, and prints the response. */
const SAY = `
import socket, sys
door = socket.create_connection(("127.0.0.1", 3128), 30)
door.sendall(sys.argv[1].encode().decode("unicode_escape").encode("latin1"))
if sys.argv[2:]: door.shutdown(socket.SHUT_WR)
while data := door.recv(65536): sys.stdout.write(data.decode("latin1"))
`;

/**
 * Sends requests on one connection, waits for the first byte of an answer, and disconnects. Prints whether at most one
 * connection came of it, and how many are left in the end.
 */
const PIPELINE = `
import socket, sys, time, urllib.request
def floods():
    with urllib.request.urlopen("http://allowed.example/floods", timeout=30) as answer: return int(answer.read())
door = socket.create_connection(("127.0.0.1", 3128), 30)
door.sendall(sys.argv[1].encode().decode("unicode_escape").encode("latin1"))
try: door.recv(1)
except ConnectionError: pass
print(floods() <= 1)
door.close()
for _ in range(200):
    if not (left := floods()): break
    time.sleep(0.01)
print(left)
`;

/** Makes requests as a client that would rather keep its connection. */
const KEEP = `
import http.client
door = http.client.HTTPConnection("127.0.0.1", 3128, timeout=30)
for method, body in (("GET", None), ("POST", b"12345"), ("GET", None)):
    door.request(method, "http://allowed.example/", body, {"Connection": "keep-alive"})
    answer = door.getresponse()
    print(answer.status, b'"length":5' in answer.read())
`;

/** Sends a large body before it reads the answer, more than the buffers of the kernel take. */
const POST = `
import http.client, sys
door = http.client.HTTPConnection("127.0.0.1", 3128, timeout=30)
try:
    door.request("POST", sys.argv[1], bytes(16 << 20))
    answer = door.getresponse()
    print(answer.status, answer.read().decode())
except OSError as error: print(error)
`;

/** Reads the head of an answer before the server may send the rest. */
const HEAD = `
import http.client
def get(path):
    door = http.client.HTTPConnection("127.0.0.1", 3128, timeout=30)
    door.request("GET", "http://allowed.example" + path)
    return door.getresponse()
try:
    held = get("/held")
    print(held.status)
    get("/release")
    print(held.read().decode())
except OSError as error: print(error)
`;

const DOMAINS = [
  "allowed.example",
  "*.allowed.example",
  `allowed.example:${INTERNET.echoPort}`,
  ...["six", "private", "metadata", "loopback", "private6", "loopback6", "mapped", "mixed"].map(
    (name) => `${name}.example`,
  ),
  ...["rebind.example", "rebind-between.example", "unreachable.example", "missing.example"],
];

describe.each(ENGINES)("egress_domains on $name", ({ name }) => {
  let internet: Internet;
  let service: ServeProcess;
  let client: Client;
  let interpreter: ScriptPython | undefined;
  let sandboxId = "";
  const dataDir = newDataDir();
  const listen = `unix:${path.join(dataDir, "socket")}`;

  const create = async (domains: readonly string[]): Promise<string> =>
    (await client.createSandbox({ egress_domains: domains })).sandbox_id;
  const python = async (program: string, ...args: string[]): Promise<string> => {
    interpreter ??= await ScriptPython.start(client, sandboxId);
    return (await interpreter.run(program, ...args)).stdout.toString().trim();
  };
  const pythonIn = async (id: string, program: string, ...args: string[]): Promise<string> =>
    (await client.run(id, ["python3", "-c", program, ...args])).stdout.toString().trim();
  const get = (url: string): Promise<string> => python(FETCH, url);
  const body = async (url: string): Promise<{ to: string; headers: Record<string, string> }> => {
    const answer = await get(url);
    expect(answer, url).toMatch(/^200 \{/);
    return JSON.parse(answer.slice(4));
  };

  beforeAll(async () => {
    internet = await Internet.start();
    service = await ServeProcess.start(
      [],
      { BERTH_ENGINE: name, BERTH_LISTEN: listen },
      { dataDir, within: internet.within },
    );
    client = new Client(listen);
    sandboxId = await create(DOMAINS);
    const ca = { env: { CA: internet.certificate } };
    expect((await client.run(sandboxId, 'printf %s "$CA" >/tmp/ca.pem', ca)).exit_status.exit_code).toBe(0);
  });
  afterAll(async () => {
    client?.close();
    await service?.stop();
    await removeContainers(service.instance);
    await internet?.[Symbol.asyncDispose]();
  });

  test("an allowed domain answers, over HTTP", async () => {
    expect((await body("http://allowed.example/a?b=c")).to).toBe("11.22.33.44");
    expect((await body("http://six.example/")).to).toBe(INTERNET.public6);
  });

  test("an allowed domain answers, over HTTPS, with the server's own certificate", async () => {
    const line = `SSL_CERT_FILE=/tmp/ca.pem python3 -c '${FETCH}' https://allowed.example/`;
    expect(await client.output(sandboxId, line)).toMatch(/^200 .*"to":"11\.22\.33\.44"/);
  });

  test("a wildcard allows subdomains", async () => {
    expect((await body("http://www.allowed.example/")).to).toBe("11.22.33.45");
    const other = await create(["*.allowed.example"]);
    expect(await pythonIn(other, FETCH, "http://allowed.example/")).toMatch(/^403 /);
  });

  test("another domain is refused with a clear message", async () => {
    expect(await get("http://other.example/")).toBe(
      "403 other.example:80 is not among the egress_domains of this sandbox.",
    );
    expect(await get("https://other.example/")).toMatch(/Tunnel connection failed: 403/);
    expect(await python(SAY, "CONNECT other.example:443 HTTP/1.1\\r\\n\\r\\n")).toMatch(
      /^HTTP\/1\.1 403 [\s\S]*other\.example:443 is not among the egress_domains/,
    );
  });

  test("another port is refused", async () => {
    expect(await get("http://allowed.example:8080/")).toMatch(/^403 allowed\.example:8080 is not among/);
  });

  test.each(["private", "metadata", "loopback", "private6", "loopback6", "mapped"])(
    "an allowed name with an address that is not public is refused: %s.example",
    async (label) => {
      expect(await get(`http://${label}.example/`)).toBe(
        `403 ${label}.example has no public address; private ones are closed to sandboxes.`,
      );
      expect(await get(`https://${label}.example/`)).toMatch(/Tunnel connection failed: 403/);
    },
  );

  test("of a name's addresses the public ones are used", async () => {
    expect((await body("http://mixed.example/")).to).toBe("11.22.33.44");
  });

  test("a name that is rebound to a private address is refused from then on", async () => {
    expect((await body("http://rebind.example/")).to).toBe("11.22.33.44");
    expect(await get("http://rebind.example/")).toMatch(/^403 rebind\.example has no public address/);
  });

  test("the connection goes to the checked address, not to the name's next one", async () => {
    expect((await body("http://rebind-between.example/")).to).toBe("11.22.33.44");
  });

  test.each(["http://169.254.169.254/", "http://other.example/", "http://127.0.0.1:8080/"])(
    "a redirect to %s leads nowhere",
    async (to) => {
      const answer = await get(`http://allowed.example/redirect?to=${encodeURIComponent(to)}`);
      // Addresses excluded from proxies are looked for in the sandbox itself.
      expect(answer).toMatch(to.includes("127.0.0.1") ? /Connection refused/ : /^403 .* is not among/);
    },
  );

  test.each([...INTERNET.public, ...INTERNET.closed, `[${INTERNET.public6}]`, `[${INTERNET.closed6}]`])(
    "the address %s is reached neither through the proxy nor past it",
    async (address) => {
      expect(await get(`http://${address}/`)).toMatch(/^403 .* is not among/);
      expect(await get(`https://${address}/`)).toMatch(/Tunnel connection failed: 40/);
      expect(await python(CONNECT, address.replace(/[[\]]/g, ""))).toMatch(/unreachable|cannot assign/i);
    },
  );

  test("other spellings of addresses are refused", async () => {
    for (const host of ["0x0a090909", "167381257", "10.9.2313", "[::ffff:10.9.9.9]", "[64:ff9b::a09:909]"])
      expect(await get(`http://${host}/`), host).toMatch(/^403 .* is not among/);
  });

  test("the sandbox has only loopback, and resolves no name", async () => {
    expect(await client.output(sandboxId, "tail -n +3 /proc/net/dev | cut -d: -f1")).toMatch(/^\s*lo\s*$/);
    const resolve =
      'import socket\ntry: print(socket.gethostbyname("allowed.example"))\nexcept OSError: print("unknown")';
    expect(await python(resolve)).toBe("unknown");
  });

  test("a request's Host is the checked name", async () => {
    const lie =
      "GET http://allowed.example/ HTTP/1.1\\r\\nHost: other.example\\r\\nConnection: close\\r\\n\\r\\n";
    const answer = await python(SAY, lie);
    expect(answer).toMatch(/^HTTP\/1\.1 200 /);
    expect(answer).toContain('"host":"allowed.example"');
    expect(answer).not.toContain("other.example");
  });

  test.each(["GET", "DELETE", "OPTIONS", "POST", "PUT"])(
    "a body of %s in chunks arrives as a body, and not as a request of its own",
    async (method) => {
      const hidden = "GET /hidden HTTP/1.1\\r\\nHost: other.example\\r\\n\\r\\n";
      const request = `${method} http://allowed.example/ HTTP/1.1\\r\\nHost: a\\r\\n`;
      const chunked = `Connection: close\\r\\nTransfer-Encoding: chunked\\r\\n\\r\\n2d\\r\\n${hidden}\\r\\n0\\r\\n\\r\\n`;
      // Listing Content-Length among the connection headers does not remove it either.
      const counted = `Connection: close, Content-Length\\r\\nContent-Length: 45\\r\\n\\r\\n${hidden}`;
      for (const framed of [chunked, counted]) {
        const answer = await python(SAY, `${request}${framed}`);
        expect(answer).toMatch(/^HTTP\/1\.1 200 /);
        expect(answer).toContain(`"method":"${method}"`);
        expect(answer).toContain('"length":45');
        expect(answer).not.toContain("/hidden");
      }
    },
  );

  test.each(["GET", "POST"])("a %s without a body arrives without one", async (method) => {
    const request = `${method} http://allowed.example/ HTTP/1.1\\r\\nHost: a\\r\\nConnection: close\\r\\n\\r\\n`;
    const answer = await python(SAY, request);
    expect(answer).toMatch(/^HTTP\/1\.1 200 [\s\S]*"length":0/);
    expect(answer).not.toContain("transfer-encoding");
  });

  test("a server that changes the protocol unasked is reported at once", async () => {
    const answer = await get("http://allowed.example/switch");
    expect(answer).toBe("502 allowed.example did not answer: it changed to another protocol.");
  });

  test("a tunnel still carries data one way after the other way has ended", async () => {
    const connect = `CONNECT allowed.example:${INTERNET.echoPort} HTTP/1.1\\r\\n\\r\\nover and out`;
    expect(await python(SAY, connect, "end")).toMatch(/^HTTP\/1\.1 200 [\s\S]*\r\n\r\nover and out$/);
  });

  const TO_ALLOWED = "http://allowed.example/ HTTP/1.1\\r\\nHost: a";
  test.each([
    ["no URL", "GET / HTTP/1.1\\r\\nHost: a\\r\\n\\r\\n", 400],
    ["another scheme", "GET ftp://allowed.example/ HTTP/1.1\\r\\nHost: a\\r\\n\\r\\n", 400],
    ["CONNECT to no port", "CONNECT allowed.example HTTP/1.1\\r\\n\\r\\n", 400],
    ["CONNECT to a port that is none", "CONNECT allowed.example:99999 HTTP/1.1\\r\\n\\r\\n", 403],
    ["CONNECT with a password", "CONNECT a:b@allowed.example:443 HTTP/1.1\\r\\n\\r\\n", 400],
    ["no HTTP at all", "\\x00\\xff\\r\\n\\r\\n", 400],
    [
      "smuggled lengths",
      `POST ${TO_ALLOWED}\\r\\nContent-Length: 4\\r\\nTransfer-Encoding: chunked\\r\\n\\r\\n0\\r\\n\\r\\n`,
      400,
    ],
  ])("a request with %s is refused", async (_what, request, status) => {
    expect(await python(SAY, request)).toMatch(new RegExp(`^HTTP/1\\.1 ${status} `));
  });

  test("headers that end early are refused", async () => {
    expect(await python(SAY, `GET ${TO_ALLOWED}\\r\\nX: `, "end")).toMatch(/^HTTP\/1\.1 400 /);
  });

  test("headers of more than 32 KiB are refused", async () => {
    expect(await get(`http://allowed.example/${"a".repeat(40_000)}`)).toMatch(/^431/);
  });

  test("a name without an address, and a server that does not answer, are reported differently from refusals", async () => {
    expect(await get("http://missing.example/")).toBe("502 missing.example has no address.");
    expect(await get("http://unreachable.example/")).toMatch(
      /^502 Connecting to unreachable\.example:80 failed/,
    );
  });

  test("a sandbox has at most 64 connections, and does not use up those of others", async () => {
    const program = `
import socket
open = [socket.create_connection(("127.0.0.1", 3128), 30) for _ in range(80)]
lost = 0
for door in open:
    # One that is refused is closed at once.
    door.settimeout(60)
    try: door.sendall(b"CONNECT allowed.example:${INTERNET.echoPort} HTTP/1.1\\r\\n\\r\\n"); door.recv(1) or 1 / 0
    except (OSError, ZeroDivisionError): lost += 1
print(len(open) - lost)`;
    expect(await python(program)).toBe("64");
    // Those connections ended with their program.
    await eventually(async () => (await get("http://allowed.example/")).startsWith("200"));
  });

  const FLOOD = "GET http://allowed.example/flood HTTP/1";
  test.each([
    ["requests", `${FLOOD}.1\\r\\nHost: a\\r\\n\\r\\n`.repeat(200)],
    ["requests of HTTP/1.0", `${FLOOD}.0\\r\\nConnection: keep-alive\\r\\n\\r\\n`.repeat(200)],
    [
      "a tunnel behind a request",
      `${FLOOD}.1\\r\\nHost: a\\r\\n\\r\\nCONNECT allowed.example:80 HTTP/1.1\\r\\n\\r\\nGET /flood HTTP/1.1\\r\\nHost: a\\r\\n\\r\\n`,
    ],
  ])("one connection opens one to the outside, and it ends with it: %s", async (_what, requests) => {
    expect(await python(PIPELINE, requests)).toBe("True\n0");
  });

  test("a client that would keep its connection gets every answer", async () => {
    expect(await python(KEEP)).toBe("200 False\n200 True\n200 False");
  });

  test.each([
    ["of a server", "http://allowed.example/early", "413 too much"],
    [
      "of the proxy",
      "http://other.example/",
      "403 other.example:80 is not among the egress_domains of this sandbox.",
    ],
    [
      "that a server has closed its connection",
      "http://allowed.example/switch",
      "502 allowed.example did not answer: it changed to another protocol.",
    ],
  ])("an answer before the end of the request is read after it: %s", async (_what, url, answer) => {
    expect(await python(POST, url)).toBe(answer);
  });

  test("the head of an answer does not wait for its body", async () => {
    expect(await python(HEAD)).toBe("200\nreleased");
  });

  test("unread data waits in the kernel, not in the service", async () => {
    const id = await create(["allowed.example"]);
    const program = `
import socket, time
doors = [socket.create_connection(("127.0.0.1", 3128), 30) for _ in range(8)]
for door in doors: door.sendall(b"GET http://allowed.example/flood HTTP/1.1\\r\\nHost: a\\r\\n\\r\\n")
for door in doors: door.recv(1)
print("flowing", flush=True)
time.sleep(600)`;
    const flood = client.exec(id, ["python3", "-c", program]);
    await flood.until("flowing");
    // Without a limit it would grow by what the server sends: hundreds of MiB per second.
    const growth = async (): Promise<number> => {
      const before = await residentMiB(service.pid);
      await sleep(1_000);
      return (await residentMiB(service.pid)) - before;
    };
    await expect.poll(growth).toBeLessThan(8);
    await client.deleteSandbox(id);
    await flood.result.catch(() => {});
    // The connections to the outside end with the sandbox.
    const established = (): Promise<string> =>
      internet.run("ss", "-Htn", "state", "established", "dport = 80");
    await eventually(async () => (await established()).trim() === "", {
      describe: established,
    });
  });

  test("the sandbox shows its domains, and commands find the proxy", async () => {
    const { spec } = await client.getSandbox(sandboxId);
    expect(spec).toMatchObject({ egress_domains: DOMAINS, network: { mode: "NETWORK_MODE_EGRESS" } });
    const proxies = await client.output(sandboxId, "env | grep -i _proxy | sort");
    expect(proxies.trim().split("\n")).toEqual([
      "HTTPS_PROXY=http://127.0.0.1:3128",
      "HTTP_PROXY=http://127.0.0.1:3128",
      "NO_PROXY=localhost,127.0.0.1,::1",
      "http_proxy=http://127.0.0.1:3128",
      "https_proxy=http://127.0.0.1:3128",
      "no_proxy=localhost,127.0.0.1,::1",
    ]);
  });

  test("a sandbox without domains has no proxy", async () => {
    const { sandbox_id: id } = await client.createSandbox();
    expect((await client.run(id, ["python3", "-c", SAY, "x"])).stderr.toString()).toMatch(
      /Connection refused/,
    );
    expect(await client.output(id, "env | grep -ci _proxy || true")).toBe("0\n");
  });

  test.each([
    [["10.9.9.9"], /address/],
    [["[::1]"], /address/],
    [["0x7f.1"], /address/],
    [["*"], /allows everything/],
    [["localhost"], /not a domain/],
    [["*.*.example"], /not a domain/],
    [["a..example"], /not a domain/],
    [["http://allowed.example"], /not a domain/],
    [["allowed.example/path"], /not a domain/],
    [["allowed.example:0"], /port/],
    [["allowed.example:70000"], /port/],
    [[""], /not a domain/],
    [["a\r\nb.example"], /not a domain/],
  ])("refuses %j", async (domains, message) => {
    expect(await failureOf(create(domains))).toMatchObject({
      code: "INVALID_ARGUMENT",
      message: expect.stringMatching(message),
    });
  });

  test("refuses more than 64 domains", async () => {
    const many = Array.from({ length: 65 }, (_, i) => `a${i}.example`);
    expect(await failureOf(create(many))).toMatchObject({ code: "INVALID_ARGUMENT" });
  });

  test("refuses domains for a sandbox without a network", async () => {
    const spec = { egress_domains: ["allowed.example"], network: { mode: "NETWORK_MODE_NONE" } };
    expect(await failureOf(client.createSandbox(spec))).toMatchObject({ code: "INVALID_ARGUMENT" });
  });

  test("the command line accepts domains", async () => {
    const args = ["run", "--egress-domain", "allowed.example", "--egress-domain", "*.allowed.example", "--"];
    const { stdout } = await service.run([...args, "python3", "-c", FETCH, "http://www.allowed.example/"]);
    expect(stdout.toString()).toMatch(/^200 .*"to":"11\.22\.33\.45"/);
  });

  const testOnDocker = name === "docker" ? test : undefined;
  testOnDocker?.(
    "sandboxes that outlive the service reach their domains again after its restart",
    async () => {
      await service.stop("SIGKILL");
      expect(await internet.run("ss", "-Htln")).not.toContain("3128");
      client.close();
      service = await service.again([], { BERTH_ENGINE: name, BERTH_LISTEN: listen });
      client = new Client(listen);
      // It ended with the service.
      interpreter = undefined;
      await eventually(async () => (await get("http://allowed.example/")).startsWith("200"));
      expect(await get("http://other.example/")).toMatch(/^403 /);
    },
  );
});

async function residentMiB(pid: number): Promise<number> {
  const pages = Number((await readFile(`/proc/${pid}/statm`, "utf8")).split(" ")[1]);
  return (pages * 4096) / 2 ** 20;
}
