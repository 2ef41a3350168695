// The servers of a test's internet: DNS, HTTP and HTTPS on every address of its network namespace. Arguments: the
// certificate's files. Prints a line once all of them listen.
import { createHash } from "node:crypto";
import { createSocket } from "node:dgram";
import { EventEmitter, once } from "node:events";
import { readFileSync } from "node:fs";
import { createServer, type RequestListener } from "node:http";
import { createServer as createTlsServer } from "node:https";
import { createServer as createTcpServer } from "node:net";
import { INTERNET } from "./internet-addresses.ts";

const [cert = "", key = ""] = process.argv.slice(2);
const TYPE_AAAA = 28;
const QUESTION_AT = 12;

/** How often each name was requested. */
const asked = new Map<string, number>();
/** How many clients are being flooded. */
let floods = 0;
/** Ends the answers that are held back after their heads. */
const release = new EventEmitter();

/** The answers for a name. A rebinding name has a public address the first time, and then a private one. */
function addressesOf(name: string, type: number): readonly string[] {
  const times = (asked.get(`${name} ${type}`) ?? 0) + 1;
  asked.set(`${name} ${type}`, times);
  const addresses = INTERNET.names[name] ?? [];
  const turn = name.startsWith("rebind")
    ? addresses.slice(times > 1 ? 1 : 0, times > 1 ? undefined : 1)
    : addresses;
  return turn.filter((address) => address.includes(":") === (type === TYPE_AAAA));
}

/** The 16 bytes of an IPv6 address, written like ::1 or 2600::5. */
function bytesOf(address: string): Buffer {
  if (!address.includes(":")) return Buffer.from(address.split(".").map(Number));
  const [head = "", tail = ""] = address.split("::").map((part) => part.split(":").filter(Boolean));
  const middle = Array.from({ length: 8 - head.length - tail.length }, () => "0");
  const groups = [...head, ...middle, ...tail].map((group) => Number.parseInt(group, 16));
  return Buffer.from(groups.flatMap((group) => [group >> 8, group & 255]));
}

function answerTo(query: Buffer): Buffer {
  const labels: string[] = [];
  let at = QUESTION_AT;
  for (let length = query[at] ?? 0; length > 0; length = query[at] ?? 0) {
    labels.push(query.toString("latin1", at + 1, at + 1 + length));
    at += 1 + length;
  }
  const type = query.readUInt16BE(at + 1);
  const name = labels.join(".").toLowerCase();
  const known = INTERNET.names[name] !== undefined;
  const records = addressesOf(name, type).map((address) => {
    const data = bytesOf(address);
    const head = Buffer.from([0xc0, QUESTION_AT, 0, type, 0, 1, 0, 0, 0, 0, 0, data.length]);
    return Buffer.concat([head, data]);
  });
  const header = Buffer.from(query.subarray(0, QUESTION_AT));
  header.writeUInt16BE(known ? 0x8180 : 0x8183, 2);
  header.writeUInt16BE(1, 4);
  header.writeUInt16BE(records.length, 6);
  header.writeUInt32BE(0, 8);
  return Buffer.concat([header, query.subarray(QUESTION_AT, at + 5), ...records]);
}

/** Returns what it received, redirects, switches protocols, refuses bodies, holds them back, or sends endless data and says to how many. */
const reply: RequestListener = (request, response) => {
  const { pathname, searchParams } = new URL(request.url ?? "", "http://server");
  if (pathname === "/redirect") {
    response.writeHead(302, { Location: searchParams.get("to") ?? "" }).end();
  } else if (pathname === "/switch") {
    request.socket.end("HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: other\r\n\r\n");
  } else if (pathname === "/flood") {
    const more = (): void => {
      while (response.write(Buffer.alloc(65_536)));
    };
    response.on("drain", more).on("error", () => {});
    response.once("close", () => floods--);
    floods++;
    more();
  } else if (pathname === "/early") {
    // Like servers that refuse a body: they drop it, so that their answer arrives.
    response.writeHead(413, { "Content-Length": 8 }).write("too much");
    request.resume().once("end", () => response.end());
  } else if (pathname === "/held") {
    response.flushHeaders();
    release.once("now", () => response.end("released"));
  } else if (pathname === "/release") {
    release.emit("now");
    response.end();
  } else if (pathname === "/floods") {
    response.end(String(floods));
  } else {
    let length = 0;
    request.on("data", (chunk: Buffer) => {
      length += chunk.length;
    });
    request.on("end", () => {
      const to = request.socket.localAddress?.replace("::ffff:", "");
      const { authorization, ...headers } = request.headers;
      // Shows which credential arrived without revealing it.
      const credential = authorization && createHash("sha256").update(authorization).digest("hex");
      const secure = "encrypted" in request.socket;
      response.end(
        JSON.stringify({ to, method: request.method, url: request.url, headers, length, credential, secure }),
      );
    });
  }
};

const dns = createSocket("udp4");
dns.on("message", (query, { port, address }) => dns.send(answerTo(query), port, address));
dns.bind(53, "0.0.0.0");
const echo = createTcpServer({ allowHalfOpen: true }, (socket) => {
  socket.on("error", () => {});
  socket.pipe(socket);
});
const servers = [
  ...[80, 8080].map((port) => createServer(reply).listen(port, "::")),
  createTlsServer({ cert: readFileSync(cert), key: readFileSync(key) }, reply).listen(443, "::"),
  echo.listen(INTERNET.echoPort, "::"),
];
await Promise.all([once(dns, "listening"), ...servers.map((server) => once(server, "listening"))]);
console.log("listening");
process.stdin.resume().once("end", () => process.exit());
