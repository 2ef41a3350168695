import { createHash } from "node:crypto";
import { mkdtemp, readdir, readFile, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import path from "node:path";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { Client } from "../../support/client.ts";
import { removeContainers } from "../../support/docker.ts";
import { ENGINES } from "../../support/engines.ts";
import { Internet } from "../../support/internet.ts";
import { runProgram, ServeProcess } from "../../support/program.ts";
import { newDataDir } from "../../support/settings.ts";

const SECRET = "egress-secret-4711";
const ADDED = createHash("sha256").update(`Bearer ${SECRET}`).digest("hex");

/** Fetches a URL, with an Authorization header if one is given. */
const FETCH = `
import sys, urllib.request, urllib.error
request = urllib.request.Request(sys.argv[1], method=sys.argv[2])
if sys.argv[3:]: request.add_header("Authorization", sys.argv[3])
try:
    with urllib.request.urlopen(request, timeout=30) as answer: print(answer.status, answer.headers, answer.read().decode())
except urllib.error.HTTPError as error: print(error.code, error.headers, error.read().decode())
except Exception as error: print(error)
`;

let directory = "";
let file = "";

beforeAll(async () => {
  directory = await mkdtemp(path.join(tmpdir(), "berth-credentials-"));
  file = path.join(directory, "credentials.json");
  const secret = { header: "Authorization", value: "Bearer {secret}", secret: "token" };
  await writeFile(path.join(directory, "token"), `${SECRET}\n`, { mode: 0o600 });
  const content = {
    "allowed.example": secret,
    "six.example": { ...secret, owners: ["another"] },
    "private.example": secret,
    "not-vouched-for.example": secret,
  };
  await writeFile(file, JSON.stringify(content));
});
afterAll(() => rm(directory, { recursive: true, force: true }));

describe.each(ENGINES)("credentials on $name", ({ name }) => {
  let internet: Internet;
  let service: ServeProcess;
  let client: Client;
  let sandboxId = "";
  const dataDir = newDataDir();
  const listen = `unix:${path.join(dataDir, "socket")}`;

  const get = async (url: string, method = "GET", ...own: string[]): Promise<string> => {
    const argv = ["python3", "-c", FETCH, url, method, ...own];
    const answer = (await client.run(sandboxId, argv)).stdout.toString().trim();
    expect(answer).not.toContain(SECRET);
    return answer;
  };
  const seen = async (url: string, ...own: string[]): Promise<Record<string, unknown>> => {
    const answer = await get(url, "GET", ...own);
    expect(answer).toMatch(/^200 /);
    return JSON.parse(answer.slice(answer.indexOf("{")));
  };

  beforeAll(async () => {
    internet = await Internet.start();
    service = await ServeProcess.start(
      ["--egress-credentials", file, "--log-level", "debug"],
      { BERTH_ENGINE: name, BERTH_LISTEN: listen, NODE_EXTRA_CA_CERTS: internet.certificateFile },
      { dataDir, within: internet.within },
    );
    client = new Client(listen);
    const names = ["allowed", "www.allowed", "other", "six", "private", "not-vouched-for"];
    const domains = names.map((each) => `${each}.example`);
    sandboxId = (await client.createSandbox({ egress_domains: domains })).sandbox_id;
  });
  afterAll(async () => {
    client?.close();
    const end = await service?.stop();
    await removeContainers(service.instance);
    await internet?.[Symbol.asyncDispose]();
    expect(end?.stderr).not.toContain(SECRET);
  });

  test("the server sees the credential, over TLS", async () => {
    expect(await seen("http://allowed.example/")).toMatchObject({ credential: ADDED, secure: true });
  });

  test("it takes the place of what the client sent", async () => {
    expect(await seen("http://allowed.example/", "Bearer guess")).toMatchObject({ credential: ADDED });
  });

  test("other hosts, subdomains and other owners' hosts get none", async () => {
    for (const host of ["other", "www.allowed", "six"]) {
      const answer = await seen(`http://${host}.example/`);
      expect(answer, host).toMatchObject({ secure: false });
      expect(answer, host).not.toHaveProperty("credential");
    }
  });

  test("a redirect to another host does not carry it along", async () => {
    const to = encodeURIComponent("http://other.example/");
    expect(await seen(`http://allowed.example/redirect?to=${to}`)).not.toHaveProperty("credential");
  });

  test("TRACE, which a server answers with the request it got, is refused", async () => {
    expect(await get("http://allowed.example/", "TRACE")).toMatch(/^403 [\s\S]*TRACE is not allowed/);
  });

  test("a private address gets none", async () => {
    expect(await get("http://private.example/")).toMatch(/^403 [\s\S]*no public address/);
  });

  test("a server without a certificate for its name gets none", async () => {
    expect(await get("http://not-vouched-for.example/")).toMatch(/^502 [\s\S]*by TLS failed/);
  });

  test("nothing in the sandbox, the API or the data directory has the secret", async () => {
    const look = `env; cat /proc/*/environ /proc/*/cmdline 2>/dev/null; grep -rsl ${SECRET.slice(0, 8)} /tmp /run /etc /workspace`;
    expect(await client.output(sandboxId, `{ ${look}; } | tr '\\0' '\\n'`)).not.toContain(SECRET);
    expect(JSON.stringify(await client.getSandbox(sandboxId))).not.toContain(SECRET);
    for (const entry of await readdir(dataDir, { recursive: true, withFileTypes: true })) {
      if (!entry.isFile()) continue;
      expect(await readFile(path.join(entry.parentPath, entry.name), "latin1"), entry.name).not.toContain(
        SECRET,
      );
    }
  });

  test("a replaced secret is used at once; a missing one is reported without its name", async () => {
    const token = path.join(directory, "token");
    await writeFile(token, "new");
    const credential = createHash("sha256").update("Bearer new").digest("hex");
    expect(await seen("http://allowed.example/")).toMatchObject({ credential });
    // A key with several lines is not valid in a header.
    await writeFile(token, "two\nlines");
    for (let request = 0; request < 3; request++) {
      const refused = await get("http://allowed.example/");
      expect(refused).toMatch(/^502 [\s\S]*credential for allowed\.example .* characters that no header may/);
      expect(refused).not.toContain("lines");
    }
    const connections = () => internet.run("ss", "-Htn", "state", "established", "dport = 443");
    await expect.poll(connections).toBe("");
    await rm(token);
    const answer = await get("http://allowed.example/");
    expect(answer).toMatch(/^502 [\s\S]*credential for allowed\.example cannot be read/);
    expect(answer).not.toContain(directory);
    await writeFile(token, `${SECRET}\n`);
  });
});

test.each([
  ["no JSON", "{", /it is not JSON/],
  ["a list", "[]", /: is not a map of names to values/],
  ["an unknown key", '{"a.example": {"header": "A", "secret": "token", "extra": 1}}', /a\.example/],
  ["no header", '{"a.example": {"secret": "token"}}', /a\.example\.header/],
  [
    "a header with a line's end",
    '{"a.example": {"header": "A\\r\\nB", "secret": "token"}}',
    /not a header name/,
  ],
  [
    "a value without the secret",
    '{"a.example": {"header": "A", "value": "B", "secret": "token"}}',
    /a\.example\.value/,
  ],
  ["a wildcard", '{"*.example.org": {"header": "A", "secret": "token"}}', /name one host/],
  ["an address", '{"10.0.0.1": {"header": "A", "secret": "token"}}', /it is an address/],
  [
    "a secret that is not there",
    '{"a.example": {"header": "A", "secret": "absent"}}',
    /absent cannot be read/,
  ],
])("a file with %s is refused at start", async (_what, content, message) => {
  const bad = path.join(directory, "bad.json");
  await writeFile(bad, content);
  const args = ["serve", "--engine", "bubblewrap", "--listen", "127.0.0.1:0", "--egress-credentials", bad];
  const { exitCode, stderr } = await runProgram(args);
  expect(exitCode).not.toBe(0);
  expect(stderr).toMatch(message);
  expect(stderr).not.toContain(SECRET);
});
