import { execFile } from "node:child_process";
import { once } from "node:events";
import fs from "node:fs/promises";
import http from "node:http";
import http2 from "node:http2";
import net from "node:net";
import os from "node:os";
import path from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import tls from "node:tls";
import { promisify } from "node:util";
import * as grpc from "@grpc/grpc-js";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { SandboxService } from "../../../gen/ts/berth/v1/sandbox_pb.js";
import {
  FLAG,
  FRAME,
  frame,
  opening,
  postFields,
  RawConnection,
  reset,
} from "../../support/attacks/frames.ts";
import { eventually } from "../../support/eventually.ts";
import { GrpcJs } from "../../support/server/grpc-js.ts";
import { startTestServer } from "../../support/server/test-server.ts";

const { getStats } = SandboxService.method;
const PATH = "/berth.v1.SandboxService/GetStats";
const PREFACE = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

let dir: string;
beforeAll(async () => {
  dir = await fs.mkdtemp(path.join(os.tmpdir(), "berth-rpc-"));
});
afterAll(() => fs.rm(dir, { recursive: true, force: true }));

/** A raw connection, and when the other side closed it. */
async function rawConnection(port: number) {
  const socket = net.connect(port, "127.0.0.1");
  let received = "";
  socket.on("data", (chunk) => {
    received += chunk.toString("latin1");
  });
  socket.on("error", () => {});
  const closed = new Promise((resolve) => socket.once("close", resolve));
  await once(socket, "connect");
  return { socket, closed, received: () => received };
}

const HEALTH_REQUEST = "GET /healthz HTTP/1.1\r\nhost: localhost\r\n\r\n";

/** The answer to a request on a connection that has been silent for half a second. Undefined if it was closed. */
async function answerLater(socket: net.Socket, ready: string): Promise<string | undefined> {
  const closed = new Promise<undefined>((resolve) => socket.once("close", () => resolve(undefined)));
  const answered = (async () => {
    await once(socket, ready);
    await sleep(500);
    socket.write(HEALTH_REQUEST);
    return String((await once(socket, "data"))[0]);
  })();
  answered.catch(() => {});
  const answer = await Promise.race([answered, closed]);
  socket.destroy();
  return answer;
}

const HOUR_MS = 3_600_000;
/** Longer than a test may take, so that what closes a connection is the limit that the test sets. */
const PATIENT = {
  sniffTimeoutMs: HOUR_MS,
  headersTimeoutMs: HOUR_MS,
  keepAliveTimeoutMs: HOUR_MS,
  requestTimeoutMs: HOUR_MS,
};

describe("the first bytes", () => {
  test("may arrive one by one, in HTTP/1 and HTTP/2", async () => {
    await using t = await startTestServer();
    const one = await rawConnection(t.port);
    for (const byte of "GET /healthz HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n") {
      one.socket.write(byte);
      await sleep(1);
    }
    await one.closed;
    expect(one.received()).toMatch(/^HTTP\/1.1 200 OK[\s\S]*ok\n$/);

    const two = await rawConnection(t.port);
    for (const byte of `${PREFACE}\0\0\0\x04\0\0\0\0\0`) {
      two.socket.write(Buffer.from(byte, "latin1"));
      await sleep(1);
    }
    await eventually(() => two.received().length >= 9);
    // The first frame of an HTTP/2 server is SETTINGS.
    expect(two.received().charCodeAt(3)).toBe(4);
    two.socket.destroy();
  });

  test("that begin like the preface and continue otherwise are HTTP/1", async () => {
    await using t = await startTestServer();
    const { socket, closed, received } = await rawConnection(t.port);
    socket.write("PRI * HTTP/1.1\r\nhost: localhost\r\n\r\n");
    await closed;
    expect(received()).toMatch(/^HTTP\/1.1 400/);
  });

  test.each(["", "P", "PRI", PREFACE.slice(0, 23)])(
    "that stop after %j close the connection",
    async (start) => {
      const limit = start === "" ? "keepAliveTimeoutMs" : "sniffTimeoutMs";
      await using t = await startTestServer({ limits: { ...PATIENT, [limit]: 200 } });
      // Node counts a timer from the beginning of the event loop's turn, so only an earlier timer shows that the server
      // has waited.
      let isOver = false;
      setTimeout(() => {
        isOver = true;
      }, 200);
      const { socket, closed } = await rawConnection(t.port);
      socket.write(start);
      await closed;
      expect(isOver).toBe(true);
    },
  );

  test("of a client that leaves have no effect", async () => {
    await using t = await startTestServer();
    for (const start of ["", "P", "PRI * HT"]) {
      const { socket, closed } = await rawConnection(t.port);
      socket.end(start);
      await closed;
    }
    using client = new GrpcJs(t.authority);
    await client.unary(getStats, {});
  });
});

describe("a connection of HTTP/1", () => {
  test("is kept longer than clients keep theirs, and may be reused until then", async () => {
    await using t = await startTestServer();
    const [response] = (await once(http.get(`${t.url}/healthz`), "response")) as [http.IncomingMessage];
    response.resume();
    // Go closes its own after 90 s.
    expect(response.headers["keep-alive"]).toBe("timeout=120");
  });

  test("that has sent nothing yet does not count as slow", async () => {
    await using t = await startTestServer({ limits: { sniffTimeoutMs: 100, headersTimeoutMs: 100 } });
    expect(await answerLater(net.connect(t.port, "127.0.0.1"), "connect")).toMatch(/^HTTP\/1.1 200 OK/);
  });

  test("is closed when its keep-alive time has passed without a request", async () => {
    await using t = await startTestServer({ limits: { keepAliveTimeoutMs: 100 } });
    // On a busy machine that time may have passed before the request arrives.
    const answer = await eventually(async () => {
      const { socket, closed, received } = await rawConnection(t.port);
      socket.write(HEALTH_REQUEST);
      await closed;
      return received() !== "" && received();
    });
    expect(answer).toMatch(/^HTTP\/1.1 200 OK/);
  });

  test("may ask again before it is answered, but not any number of times", async () => {
    await using t = await startTestServer({ limits: { maxConcurrentStreams: 3 } });
    const { socket, received } = await rawConnection(t.port);
    const answers = () => received().split("HTTP/1.1 200 OK").length - 1;
    for (const sum of [3, 6]) {
      socket.write(HEALTH_REQUEST.repeat(3));
      await eventually(() => answers() === sum || socket.destroyed);
      expect(answers()).toBe(sum);
    }
    const call = `POST ${PATH} HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\ncontent-length: 2\r\nx-test: hang\r\n\r\n{}`;
    socket.write(call.repeat(4));
    expect(await eventually(() => (socket.destroyed ? "closed" : t.record.unary > 3 && "served"))).toBe(
      "closed",
    );
  });

  test("keeps its other calls if the deadline of one passes that waits to be answered", async () => {
    await using t = await startTestServer();
    const { socket, received } = await rawConnection(t.port);
    const call = (header: string) =>
      `POST ${PATH} HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\ncontent-length: 2\r\n${header}\r\n\r\n{}`;
    socket.write(
      call("x-test: ignore") + call("x-test: hang\r\nconnect-timeout-ms: 50") + call("x-test: none"),
    );
    // Longer than a client may take to read the end of its answer.
    await Promise.race([once(socket, "close"), sleep(3000)]);
    t.record.letGo.resolve();
    const answers = () => received().match(/HTTP\/1\.1 \d+/g) ?? [];
    await eventually(() => answers().length === 3 || socket.destroyed);
    expect(answers()).toEqual(["HTTP/1.1 200", "HTTP/1.1 504", "HTTP/1.1 200"]);
  });
});

describe("slow clients", () => {
  test("headers that do not end close the connection", async () => {
    await using t = await startTestServer({ limits: { ...PATIENT, headersTimeoutMs: 500 } });
    const { socket, closed, received } = await rawConnection(t.port);
    socket.write(`POST ${PATH} HTTP/1.1\r\nhost: localhost\r\n`);
    const drip = setInterval(() => socket.write("x: y\r\n"), 50);
    await closed.finally(() => clearInterval(drip));
    // If data is still on its way to a server that closes, the reset may overtake the response.
    expect(received()).toMatch(/^(HTTP\/1.1 408|$)/);
  });

  test("headers that stop halfway are answered, and close the connection", async () => {
    await using t = await startTestServer({ limits: { ...PATIENT, headersTimeoutMs: 200 } });
    const { socket, closed, received } = await rawConnection(t.port);
    socket.write(`POST ${PATH} HTTP/1.1\r\nhost: localhost\r\n`);
    await closed;
    expect(received()).toMatch(/^HTTP\/1.1 408/);
  });

  test.each(["http1", "http2"])(
    "a request message that does not arrive ends the call over %s",
    async (version) => {
      await using t = await startTestServer({ limits: { ...PATIENT, requestTimeoutMs: 400 } });
      if (version === "http1") {
        const request = http.request(`${t.url}${PATH}`, {
          method: "POST",
          headers: { "content-type": "application/json", "content-length": 10 },
        });
        request.write("{");
        const [response] = (await once(request, "response")) as [http.IncomingMessage];
        expect(response.statusCode).toBe(504);
        request.destroy();
      } else {
        const session = http2.connect(t.url);
        const stream = session.request({
          ":method": "POST",
          ":path": PATH,
          "content-type": "application/grpc",
          te: "trailers",
        });
        stream.write(Buffer.from([0, 0, 0, 0, 9, 1]));
        const [trailers] = await once(stream.resume(), "trailers");
        expect(trailers).toMatchObject({ "grpc-status": "4" });
        session.destroy();
      }
      expect(t.record.unary).toBe(0);
      await eventually(() => t.log.calls.length === 1);
      expect(t.log.calls[0]?.fields).toMatchObject({
        code: "DEADLINE_EXCEEDED",
        reason: "DEADLINE_EXCEEDED",
      });
    },
  );

  /** A client that has opened a watch. */
  async function watching(url: string): Promise<http2.ClientHttp2Session> {
    const session = http2.connect(url);
    session.on("error", () => {});
    const stream = session.request({
      ":method": "POST",
      ":path": "/berth.v1.SandboxService/WatchEvents",
      "content-type": "application/grpc",
    });
    stream.on("error", () => {});
    stream.end(Buffer.from([0, 0, 0, 0, 0]));
    await once(stream, "data");
    return session;
  }

  test("a client that answers no ping is dropped, and its calls end", async () => {
    await using t = await startTestServer({ limits: { pingIntervalMs: 200, pingTimeoutMs: 200 } });
    const session = await watching(t.url);
    expect(t.record.open).toBe(1);
    await sleep(600);
    // It has answered so far.
    expect(t.record.open).toBe(1);
    const { socket } = session;
    // From now on it neither reads nor writes, as if its machine were gone. HTTP/2 forbids pausing its socket, so this stops reading on the handle below.
    (socket as unknown as { _handle?: { readStop(): void } })._handle?.readStop();
    session.socket.ref();
    await eventually(() => t.record.open === 0);
    session.destroy();
  });

  test("a client that answers no ping is dropped, however many uploads it has ended and reset", async () => {
    const maxConcurrentStreams = 3;
    await using t = await startTestServer({
      limits: { pingIntervalMs: 4_000, pingTimeoutMs: 1_000, maxConcurrentStreams },
    });
    let pings = 0;
    const connection = (await RawConnection.open(t.authority)).followPings(() => pings++);
    const fields = postFields(t.authority, "/test.UploadService/Upload", "application/grpc");
    await connection.send(opening());
    // Each makes the server ask, until it may ask no more.
    for (let stream = 1; pings <= maxConcurrentStreams && !connection.closed; stream += 2) {
      const before = pings;
      await connection.send(frame(FRAME.headers, FLAG.endHeaders | FLAG.endStream, stream, fields));
      await eventually(() => pings > before || connection.closed);
      await connection.send(reset(stream));
      // More resets at once would end the connection.
      await sleep(500);
    }
    await expect.poll(() => connection.closed).toBe(true);
  });

  test("a client that answers pings is kept, although the service itself is halted for longer", async () => {
    const [intervalMs, haltMs] = [50, 100];
    await using t = await startTestServer({
      limits: { pingIntervalMs: intervalMs, pingTimeoutMs: intervalMs },
    });
    const session = await watching(t.url);
    let pings = 0;
    session.on("ping", () => (pings += 1));
    // Comes after the server's own timer of that time, so that each ping is followed by a halt.
    const halting = setInterval(() => {
      for (const since = performance.now(); performance.now() - since < haltMs; );
    }, intervalMs);
    await eventually(() => pings >= 5 || t.record.open === 0).finally(() => clearInterval(halting));
    expect(t.record.open).toBe(1);
    session.destroy();
  });
});

test("connections beyond the limit are refused, and logged", async () => {
  await using t = await startTestServer({ limits: { maxConnections: 2 } });
  const kept = [await rawConnection(t.port), await rawConnection(t.port)];
  const { closed } = await rawConnection(t.port);
  await closed;
  expect(t.log.lines).toContainEqual({
    level: "warn",
    message: "connection refused: too many",
    fields: { limit: 2 },
  });
  for (const { socket } of kept) socket.destroy();
  // The server notices a little later that they are gone.
  await expect
    .poll(async () => {
      using client = new GrpcJs(t.authority);
      return await client.unary(getStats, {}).then(() => "served", String);
    })
    .toBe("served");
});

test("a client learns how many calls it may make at once, and queues more", async () => {
  await using t = await startTestServer({ limits: { maxConcurrentStreams: 3 } });
  using client = new GrpcJs(t.authority);
  const calls = Array.from({ length: 8 }, () =>
    client.unary(getStats, {}, { header: { "x-test": "ignore" } }),
  );
  await eventually(() => t.record.unary >= 3);
  await sleep(50);
  expect(t.record.unary).toBe(3);
  t.record.letGo.resolve();
  await Promise.all(calls);
  expect(t.record.unary).toBe(8);
});

test("a client learns that a frame may have as much as one read of the socket", async () => {
  await using t = await startTestServer();
  const session = http2.connect(t.url);
  const [settings] = (await once(session, "remoteSettings")) as [http2.Settings];
  session.destroy();
  expect(settings.maxFrameSize).toBe(64 * 1024);
});

describe("the address", () => {
  test("a port that is taken is a clear error", async () => {
    await using t = await startTestServer();
    await expect(startTestServer({}, t.authority)).rejects.toMatchObject({
      name: "BerthError",
      message: `Cannot listen on ${t.authority}: another program uses it. Stop that one, or choose another address with --listen.`,
    });
  });

  test("another machine's address is a clear error", async () => {
    await expect(startTestServer({}, "192.0.2.1:0")).rejects.toMatchObject({
      message:
        "Cannot listen on 192.0.2.1:0: this machine has no such address. Choose another with --listen.",
    });
  });

  test("IPv6 works, and every interface means both", async () => {
    await using v6 = await startTestServer({}, "[::1]:0");
    expect(v6.authority).toMatch(/^\[::1\]:\d+$/);
    using client = new GrpcJs(v6.authority);
    await client.unary(getStats, {});
    await using all = await startTestServer({}, ":0");
    for (const host of ["127.0.0.1", "[::1]"]) {
      using one = new GrpcJs(`${host}:${all.port}`);
      await one.unary(getStats, {});
    }
  });
});

describe("a Unix socket", () => {
  test("serves gRPC and HTTP/1, whatever name the client calls it by", async () => {
    const file = path.join(dir, "serve.sock");
    await using t = await startTestServer({}, `unix:${file}`);
    using client = new GrpcJs(`unix:${file}`);
    await client.unary(getStats, {});
    await eventually(() => t.log.calls.length === 1);
    expect(t.log.calls[0]?.fields.peer).toBe("unix");
    const request = http.get({ socketPath: file, path: "/healthz", headers: { host: "whatever.example" } });
    const [response] = (await once(request, "response")) as [http.IncomingMessage];
    expect(response.resume().statusCode).toBe(200);
  });

  test("belongs to its owner alone, and is removed when the server stops", async () => {
    const file = path.join(dir, "mode.sock");
    const umask = process.umask(0);
    try {
      const t = await startTestServer({}, `unix:${file}`);
      expect((await fs.stat(file)).mode & 0o777).toBe(0o600);
      expect(process.umask()).toBe(0);
      await t.server.stop({ graceMs: 0 });
      await expect(fs.stat(file)).rejects.toMatchObject({ code: "ENOENT" });
    } finally {
      process.umask(umask);
    }
  });

  test("left behind by a dead server is replaced", async () => {
    const file = path.join(dir, "stale.sock");
    // Node removes its socket at exit, so the server must die by SIGKILL.
    const script = `require("net").createServer().listen(${JSON.stringify(file)}, () => process.kill(process.pid, "SIGKILL"))`;
    await promisify(execFile)(process.execPath, ["-e", script]).catch(() => {});
    expect((await fs.stat(file)).isSocket()).toBe(true);
    await using _ = await startTestServer({}, `unix:${file}`);
    using client = new GrpcJs(`unix:${file}`);
    await client.unary(getStats, {});
  });

  test("of a living server is left alone", async () => {
    const file = path.join(dir, "alive.sock");
    await using _ = await startTestServer({}, `unix:${file}`);
    await expect(startTestServer({}, `unix:${file}`)).rejects.toMatchObject({
      message: `Another server answers on ${file}. Stop it, or choose another path for the socket.`,
    });
    using client = new GrpcJs(`unix:${file}`);
    await client.unary(getStats, {});
  });

  test("never replaces another file", async () => {
    const file = path.join(dir, "precious");
    await fs.writeFile(file, "data");
    await expect(startTestServer({}, `unix:${file}`)).rejects.toThrow(/exists and is not a socket/);
    expect(await fs.readFile(file, "utf8")).toBe("data");
  });

  test("in a directory that does not exist is a clear error", async () => {
    await expect(startTestServer({}, `unix:${dir}/no/such.sock`)).rejects.toThrow(
      `${dir}/no, where the socket should be, is not a directory.`,
    );
  });
});

describe("TLS", () => {
  let keys: { cert: Buffer; key: Buffer };
  beforeAll(async () => {
    const [cert, key] = [path.join(dir, "cert.pem"), path.join(dir, "key.pem")];
    await promisify(execFile)("openssl", [
      ..."req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2 -subj /CN=localhost".split(
        " ",
      ),
      ...["-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1", "-keyout", key, "-out", cert],
    ]);
    keys = { cert: await fs.readFile(cert), key: await fs.readFile(key) };
  });

  test("negotiates HTTP/2 with gRPC clients", async () => {
    await using t = await startTestServer({ tls: keys });
    using client = new GrpcJs(`localhost:${t.port}`, grpc.credentials.createSsl(keys.cert));
    expect((await client.unary(getStats, {})).message.totalSandboxes).toBe(3);
  });

  test.each([
    ["h2", "h2"],
    ["http/1.1", "http/1.1"],
    ["h2, http/1.1", "h2"],
  ])("offered %s, negotiates %s", async (offered, agreed) => {
    await using t = await startTestServer({ tls: keys });
    const socket = tls.connect({
      port: t.port,
      host: "127.0.0.1",
      ca: keys.cert,
      ALPNProtocols: offered.split(", "),
    });
    await once(socket, "secureConnect");
    expect(socket.alpnProtocol).toBe(agreed);
    socket.destroy();
  });

  test("without ALPN is HTTP/1.1", async () => {
    await using t = await startTestServer({ tls: keys });
    const socket = tls.connect({ port: t.port, host: "127.0.0.1", ca: keys.cert });
    await once(socket, "secureConnect");
    socket.write("GET /healthz HTTP/1.1\r\nhost: localhost\r\n\r\n");
    expect(String((await once(socket, "data"))[0])).toMatch(/^HTTP\/1.1 200/);
    socket.destroy();
  });

  test("a request in several records, while the previous answer still waits to be read, is served after it", async () => {
    await using t = await startTestServer({ tls: keys });
    const socket = tls.connect({ port: t.port, host: "127.0.0.1", ca: keys.cert });
    await once(socket, "secureConnect");
    const post = (path: string, body: string) =>
      socket.write(
        `POST ${path} HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n` +
          `content-length: ${body.length}\r\n\r\n${body}`,
      );
    post("/berth.v1.ProcessService/Exec", '{"shell": "pour 256"}');
    let produced = 0;
    await eventually(async () => {
      produced = t.record.produced;
      await sleep(200);
      return produced > 0 && produced === t.record.produced;
    });
    expect(produced).toBeLessThan(256);
    // A record has at most 16 KiB.
    post(PATH, `{${" ".repeat(40_000)}}`);
    // It is read while the previous response still waits.
    await sleep(200);
    let received = "";
    socket.on("data", (data) => {
      received += data.toString("latin1");
    });
    await eventually(() => received.includes('"totalSandboxes":3') || socket.closed);
    expect(received.split("HTTP/1.1 200 OK")).toHaveLength(3);
    socket.destroy();
  });

  test("a spare connection of HTTP/1 that has sent nothing yet does not count as slow", async () => {
    const limits = { sniffTimeoutMs: 400, headersTimeoutMs: 100 };
    await using t = await startTestServer({ tls: keys, limits });
    // On a busy machine a handshake may take too long.
    const answer = await eventually(() =>
      answerLater(
        tls.connect({ port: t.port, host: "127.0.0.1", rejectUnauthorized: false }),
        "secureConnect",
      ),
    );
    expect(answer).toMatch(/^HTTP\/1.1 200 OK/);
  });

  test("a handshake that does not end closes the connection", async () => {
    await using t = await startTestServer({ tls: keys, limits: { ...PATIENT, sniffTimeoutMs: 200 } });
    const { socket, closed } = await rawConnection(t.port);
    socket.write(Buffer.from([22, 3, 1]));
    await closed;
  });

  test("plain text at a TLS port closes the connection, not the server", async () => {
    await using t = await startTestServer({ tls: keys });
    const { socket, closed } = await rawConnection(t.port);
    socket.write("GET / HTTP/1.1\r\nhost: localhost\r\n\r\n");
    await closed;
    using client = new GrpcJs(`localhost:${t.port}`, grpc.credentials.createSsl(keys.cert));
    await client.unary(getStats, {});
  });
});
