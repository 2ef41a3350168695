import { execFile } from "node:child_process";
import path from "node:path";
import { promisify } from "node:util";
import { beforeAll, expect, test } from "vitest";
import { type DocumentRun, runDocument } from "../support/run-document.ts";

const root = path.join(import.meta.dirname, "../..");

const environment = path.join(root, "scripts/python-env.sh");
const packages = ["python-newest", path.join(root, "clients/python/tests/newest.txt")];

// The document is run where there is no index to install packages from.
beforeAll(() => promisify(execFile)(environment, packages), 300_000);

/** An empty Python environment, in which pip finds what the client needs without an index. */
const PYTHON = `
cached=$(${environment} ${packages.join(" ")})
python3 -m venv "$HOME/python"
. "$HOME/python/bin/activate"
"$cached/bin/python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))' >"$(python -c 'import sysconfig; print(sysconfig.get_path("purelib"))')/cached.pth"
export PIP_NO_INDEX=1 PIP_DISABLE_PIP_VERSION_CHECK=1
`;

test("the README's commands and programs do what it says", { timeout: 900_000 }, async ({ signal }) => {
  const run: DocumentRun = {
    before: PYTHON,
    lasting: [{ line: /^[^#]*\bberth serve/, ready: "curl -fsS http://127.0.0.1:7070/healthz" }],
    // The demo, the tests and the clients' tests run this; grpcurl is among the clients of npm run interop.
    leftOut: ["npm run demo", "npm test", "npm pack", "grpcurl"],
  };
  const written = await runDocument("README.md", run, signal);
  for (const said of [
    "\n42\nsome input\n",
    '{"stdout":"aGVsbG8K","stderr":"","exitStatus":{"cause":"EXIT_CAUSE_EXITED","exitCode":3,',
    "berth.v1.ProcessService/Exec\n",
    "1\n2\n3\n exit code 0\n1\n2\n3\n",
    "Step 3: the test passes\nFINISHED\n",
  ]) {
    expect(written).toContain(said);
  }
});
