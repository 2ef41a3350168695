import type { Change, Defect } from "./defect.ts";

const ARCHIVE = "test/integration/files/archive.test.ts";
const ARCHIVE_CHECK = "test/unit/files/archive-check.test.ts";
const STRAYS = "with %s is refused as a whole";

function defect(name: string, test: Defect["test"], ...changes: Change[]): Defect {
  return { name, changes, test };
}

const change = (file: string, from: string, to: string): Change => ({ file, from, to });
const inCheck = (from: string, to: string): Change => change("src/files/archive-check.ts", from, to);

/** Of what test/security names and no other area has. */
export const SECURITY_DEFECTS: readonly Defect[] = [
  defect(
    "a path may lead out of the working directory",
    { file: "test/unit/files/path.test.ts", title: "%s is refused", row: "../home" },
    change("src/files/path.ts", "else if (names.length > floor)", "else if (names.length > floor * 0)"),
  ),
  defect(
    "an archive is unpacked through links that it made",
    { file: ARCHIVE, title: STRAYS, row: "a link, then a file below it" },
    inCheck('if (standing === "symlink") throw refuse(entry, "it lies below a symbolic link");', ""),
    inCheck(
      "if (before !== undefined && before !== standing) {",
      'if (before === "file" && before !== standing) {',
    ),
  ),
  defect(
    "names in an archive may lead out",
    { file: ARCHIVE, title: STRAYS, row: ".." },
    inCheck('  if (parts.includes("..")) throw', '  if (parts.includes("...")) throw'),
  ),
  defect(
    "archives may hold devices",
    { file: ARCHIVE, title: STRAYS, row: "a device" },
    inCheck('kind === "character-device" || kind === "block-device"', 'kind === "block-device"'),
  ),
  defect(
    "files of an archive keep the bits that give rights",
    {
      file: ARCHIVE_CHECK,
      title: "permissions without set-id bits, without owners, and with a time in range",
    },
    inCheck("entry.mode & KEPT_MODE_BITS", "entry.mode & (KEPT_MODE_BITS | 0o6000)"),
  ),
  defect(
    "an archive may have any number of entries",
    { file: ARCHIVE_CHECK, title: "more than 500,000 entries" },
    inCheck("++this.#entryCount > MAX_ENTRIES", "++this.#entryCount > 4 * MAX_ENTRIES"),
  ),
  defect(
    "part of a nonce passes for a marker",
    {
      file: "test/unit/fuzz/parsers.test.ts",
      title: "what a lane writes",
    },
    change(
      "src/base/markers.ts",
      "bytes.indexOf(this.#nonce);",
      "bytes.indexOf(this.#nonce.subarray(0, 4));",
    ),
  ),
  defect(
    "bytes that are no message are the service's own failure",
    {
      file: "test/unit/fuzz/requests.test.ts",
      title: "%s takes any bytes",
      row: "berth.v1.SandboxService/CreateSandbox",
    },
    change(
      "src/server/framing.ts",
      'throw new BerthError("INVALID_ARGUMENT", `The request is not a valid ${schema.typeName}.`, { cause });',
      "throw cause;",
    ),
  ),
  defect(
    "the host of a target in absolute form is not checked",
    {
      file: "test/unit/server/origin-guard.test.ts",
      title: "of a target in absolute form counts, whatever the header says",
    },
    change("src/server/http-message.ts", "  request.headers.host = authority;\n", ""),
  ),
  defect(
    "any host name is answered to",
    {
      file: "test/unit/server/origin-guard.test.ts",
      title: "is refused everywhere, also for health and metrics",
    },
    change(
      "src/server/origin-guard.ts",
      "if (host === undefined || !this.#isKnown(host, request)) {",
      "if (host === undefined) {",
    ),
  ),
  defect(
    "pages of any origin may call",
    { file: "test/unit/server/origin-guard.test.ts", title: "%s is foreign", row: "https://evil.example" },
    change(
      "src/server/origin-guard.ts",
      "if (originHost === undefined || !this.#isKnown(originHost, request)) {",
      "if (originHost === undefined) {",
    ),
  ),
  defect(
    "there are places for any number of sandboxes",
    {
      file: "test/integration/sandboxes/capacity.test.ts",
      title: "of creates beyond the limit exactly as many succeed as there are places, time and again",
    },
    change(
      "src/sandboxes/capacity.ts",
      "if (this.#taken < this.limit) return",
      "if (this.#taken <= this.limit) return",
    ),
  ),
  defect(
    "containers may have any number of processes",
    { file: "test/integration/engine/docker/hardening.test.ts", title: "limits are the spec's" },
    change(
      "src/engine/docker/container-config.ts",
      "    PidsLimit: pidsLimit,\n",
      "    PidsLimit: 2 * pidsLimit,\n",
    ),
  ),
  defect(
    "containers have no process that reaps",
    { file: "test/integration/engine/docker/hardening.test.ts", title: "orphans are reaped" },
    change("src/engine/docker/container-config.ts", "      Init: true,\n", "      Init: false,\n"),
  ),
  defect(
    "any directory may be mounted",
    {
      file: "test/contract/engine/bubblewrap.test.ts",
      title: "%s as a mount",
      row: "a link out of what is allowed",
    },
    change("src/engine/mounts.ts", "!roots.some((root) => isWithin(real, root)) ||", "roots.length === 0 ||"),
  ),
];
