import { CELLS, type Cell } from "./cells.ts";

/** What became of one cell. */
export type Outcome =
  | { readonly kind: "passed"; readonly ms: number }
  | { readonly kind: "failed"; readonly why: string }
  /** The client cannot do it by its nature. */
  | { readonly kind: "cannot"; readonly why: string }
  /** A tool is missing. */
  | { readonly kind: "not run"; readonly why: string };

/** One row of the table. */
export interface ClientReport {
  readonly name: string;
  readonly version: string;
  readonly outcomes: Readonly<Record<Cell, Outcome>>;
}

/** The table as Markdown, which reads well at a terminal too, and below it why a cell is not a yes. */
export function table(reports: readonly ClientReport[]): string {
  const reasons: string[] = [];
  const mark = (outcome: Outcome): string => {
    if (outcome.kind === "passed") return "yes";
    if (!reasons.includes(outcome.why)) reasons.push(outcome.why);
    const number = reasons.indexOf(outcome.why) + 1;
    const text = { failed: "**FAILED**", cannot: "–", "not run": "*not run*" }[outcome.kind];
    return `${text} (${number})`;
  };
  const rows = [
    ["client", "version", ...CELLS],
    ...reports.map(({ name, version, outcomes }) => [
      name,
      version,
      ...CELLS.map((cell) => mark(outcomes[cell])),
    ]),
  ];
  const widths = rows[0]?.map((_, column) => Math.max(...rows.map((row) => row[column]?.length ?? 0))) ?? [];
  const line = (row: readonly string[]) =>
    `| ${row.map((cell, column) => cell.padEnd(widths[column] ?? 0)).join(" | ")} |`;
  const [header = [], ...body] = rows;
  const rule = `|${widths.map((width) => "-".repeat(width + 2)).join("|")}|`;
  const notes = reasons.map((why, index) => `${index + 1}. ${why.replaceAll("\n", "\n   ")}`);
  return [line(header), rule, ...body.map(line), ...(notes.length > 0 ? ["", ...notes] : [])].join("\n");
}

/** `docs/interop.md`. */
export function page(reports: readonly ClientReport[]): string {
  return `# Interop

\`npm run interop\` runs clients of other libraries and languages against a real service, and writes this page. The clients
use the packages of their registries and stubs generated from \`proto/\`. Each is a small program in
[interop/clients](../interop/clients).

${table(reports)}

| cell | what the client does, and what the run checks |
|---|---|
| unary | \`RunCommand\`: output and exit code |
| stream | \`Exec\`: 20,000 lines, counted and hashed, then the exit code |
| reason | \`GetSandbox\` of an unknown id: code, and reason and metadata of the typed \`ErrorDetail\` |
| deadline | \`Exec\` with two seconds: DEADLINE_EXCEEDED, and the process is gone from the sandbox |
| cancel | \`Exec\`, canceled after its first output: the process is gone from the sandbox |
| 12 MB | \`Exec\` of 12 MiB of random bytes, counted and hashed |
| 100 in parallel | 100 calls of \`RunCommand\` at once; each has its own output |

"–" means that a client cannot do this by its nature, "not run" that it could not be tried. Neither counts as a yes.

## Run it

\`\`\`sh
npm run interop                            # all; names what is missing, and the command that installs it
npm run interop -- --yes                   # installs what is missing, as root on Debian
npm run interop -- --only grpc-go          # one client, or several: --only grpc-go,tonic
\`\`\`

It needs Docker; the clients need Go, Rust, Java with Maven, Python and, for the browser, the desktop image
(\`scripts/base-image.sh --desktop\`). It exits 1 if a cell failed or was not run.

## Conformance

\`npm run conformance\` runs Connect's own suite (connectconformance 1.0.7) against the port: gRPC, gRPC-Web and Connect
in every combination of HTTP version, codec, compression and TLS. All of its 3,620 cases that apply pass, and none is
marked as known to fail; [interop/conformance/features.yaml](../interop/conformance/features.yaml) says what applies.

## Go stubs

[interop/clients/go/buf.gen.yaml](../interop/clients/go/buf.gen.yaml) generates stubs for grpc-go and connect-go. Only Go
and Node have to be installed. Copy it into your module, set \`value\` to the import path of the stubs, and run

\`\`\`sh
npx @bufbuild/buf generate PATH/TO/berth/proto
\`\`\`
`;
}
