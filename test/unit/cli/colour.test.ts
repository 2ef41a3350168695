import { once } from "node:events";
import http from "node:http";
import type { AddressInfo } from "node:net";
import { PassThrough } from "node:stream";
import { expect, onTestFinished, test } from "vitest";
import { complaint, paintFor, remarkLine } from "../../../src/cli/colour.ts";
import { formatTable } from "../../../src/cli/format.ts";
import { runHere } from "../../support/program-here.ts";

const terminal = Object.assign(new PassThrough(), { isTTY: true });
const pipe = new PassThrough();
const GREEN = "\x1b[32mup\x1b[39m";

test.each([
  [terminal, {}, GREEN],
  [pipe, {}, "up"],
  [terminal, { NO_COLOR: "1" }, "up"],
  [terminal, { NO_COLOR: "" }, GREEN],
  [terminal, { TERM: "dumb" }, "up"],
  [pipe, { FORCE_COLOR: "1" }, GREEN],
  [pipe, { FORCE_COLOR: "", NO_COLOR: "1" }, GREEN],
  [terminal, { FORCE_COLOR: "0" }, "up"],
  [terminal, { FORCE_COLOR: "false" }, "up"],
])("colours by stream and environment: %#", (stream, env, painted) => {
  expect(paintFor(stream, env)("up", "good")).toBe(painted);
});

test("text without a tone has no colour", () => {
  expect(paintFor(terminal, {})("up", undefined)).toBe("up");
});

test("colour does not count towards the width of a column", () => {
  const paint = (text: string, row: number, column: number) =>
    row === 0 && column === 0 ? `<${text}>` : text;
  const rows = [
    ["up", "x"],
    ["long", "y"],
  ];
  expect(formatTable(["S", "T"], rows, paint)).toBe("S     T\n<up>    x\nlong  y\n");
});

test("errors stand out on a terminal", async () => {
  const plain = await runHere(["ls", "--nonsense"]);
  expect(plain.stderr).toMatch(/^berth: unknown option '--nonsense'\n/);
  const coloured = await runHere(["ls", "--nonsense"], { isTTY: true });
  expect(coloured.stderr).toBe(plain.stderr.replace("berth:", "\x1b[31mberth:\x1b[39m"));
});

/** What sets the title of a terminal, fills its clipboard, and writes over its line. */
const ACTIVE = "\x1b]0;owned\x07\x1b]52;c;Y3VybA==\x07\x1b[2K\r\u202e";
const SHOWN = "\\u{1b}]0;owned\\u{7}\\u{1b}]52;c;Y3VybA==\\u{7}\\u{1b}[2K\\u{d}\\u{202e}";

test("nothing that an error or a remark quotes acts on the terminal, and its lines stay lines", () => {
  const io = { stderr: pipe, env: {} };
  expect(complaint(io, `one: ${ACTIVE}\ntwo`, `try: ${ACTIVE}`)).toBe(
    `berth: one: ${SHOWN}\ntwo\ntry: ${SHOWN}\n`,
  );
  expect(remarkLine(`one: ${ACTIVE}\ntwo`)).toBe(`berth: one: ${SHOWN}\ntwo\n`);
});

test.each([["ls"], ["rm", "box"], ["wait", "box"]])(
  "the error of a call shows what the service quotes of a sandbox: %s",
  async (...args) => {
    const server = http.createServer((_request, response) => {
      response.writeHead(500, { "content-type": "application/json" });
      response.end(JSON.stringify({ code: "internal", message: `needs a shell: ${ACTIVE}` }));
    });
    server.listen(0, "127.0.0.1");
    await once(server, "listening");
    onTestFinished(() => void server.close());
    const address = `127.0.0.1:${(server.address() as AddressInfo).port}`;
    const { stderr } = await runHere(args, { env: { BERTH_ADDRESS: address } });
    expect(stderr).toContain(`berth: needs a shell: ${SHOWN}`);
  },
);
