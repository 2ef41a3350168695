import { expect, test } from "vitest";
import { documents, snippetsOf } from "../support/documents.ts";
import { TEST_IMAGE } from "../support/images.ts";
import { type DocumentRun, runDocument } from "../support/run-document.ts";

/** How each guide is run, and what it must then have written. */
const GUIDES: Readonly<Record<string, DocumentRun & { readonly writes: readonly string[] }>> = {
  "docs/desktops-and-browsers.md": {
    service: true,
    writes: ['"name":"xterm"', "[ref=e1]"],
  },
  "docs/how-to/watch-a-desktop.md": {
    service: true,
    before: `
      jq -cn '{seconds: 1, tool: "click", code: 4001, message: "no", screenshot: "0001-click.png"}' >timeline.jsonl
    `,
    lasting: [{ line: /^berth session view/, ready: 'grep -q http://127.0.0.1: "$HOME/lasting.log"' }],
    leftOut: [
      // Shows a picture in a window.
      "berth tool run -w ann vm:screenshot -o - | display",
    ],
    writes: ["1280 800 RFB 003.008\n", "1\tclick\tno\t0001-click.png\n"],
  },
  "docs/how-to/allow-domains.md": {
    service: true,
    leftOut: [
      // Needs the internet.
      "berth run --egress-domain pypi.org",
    ],
    writes: ["403 example.com:80 is not among the egress_domains of this sandbox.\n"],
  },
  "docs/how-to/tokens.md": {
    before: 'alias berth="$PWD/bin/berth"; ln -s "$PWD/node_modules" "$HOME"; cd "$HOME"',
    // Others must not read the tokens that the first lines write.
    lasting: [
      {
        line: /^berth serve/,
        ready: 'grep -q "berth listens" "$HOME/lasting.log" && [ -z "$(find . -name "*.token" -perm /077)" ]',
      },
    ],
    writes: ['"labels":{"made-by":"acme"}', '"made-by": "acme"', "dashboard"],
  },
  "docs/how-to/audit.md": {
    before: 'alias berth="$PWD/bin/berth"; cd "$HOME"',
    lasting: [{ line: /^berth serve/, ready: 'grep -q "berth listens" "$HOME/lasting.log"' }],
    writes: ["berth.v1.SandboxService/CreateSandbox\t", "audit-log"],
  },
  "docs/how-to/operate.md": {
    before: `
      alias berth="$PWD/bin/berth"; cd "$HOME"; umask 077; mkdir backup
      export ADMIN=$HOME/admin BACKUP=$HOME/backup DATA_DIR=$HOME/data LOG=$HOME/log
      berth token create --tenant ops --scope admin --tokens tokens.yaml >admin
      berth token create --tenant acme --tokens tokens.yaml >acme
      berth serve --tokens tokens.yaml --data-dir data 2>log >out &
      trap 'kill %1; wait' EXIT
      until grep -q listens out; do sleep 0.1; done
      berth create --token-file acme --id box
      berth exec --token-file acme -d box -- sleep 600
      berth workspace create --token-file acme kept
      berth inspect --token-file acme none || true
    `,
    writes: [
      'berth_tenant_sandboxes{tenant="acme"} 1',
      " / 512\n",
      "sleep 600",
      "berth-box-",
      '"berth.v1.SandboxService/GetSandbox","NOT_FOUND","SANDBOX_NOT_FOUND"]',
    ],
  },
  "docs/how-to/secrets.md": {
    before: 'alias berth="$PWD/bin/berth"; cd "$HOME"',
    lasting: [{ line: /^berth serve/, ready: 'grep -q "berth listens" "$HOME/lasting.log"' }],
    writes: ["the token is [redacted]\n", "10 characters\n", "1 secret"],
  },
  "clients/typescript/README.md": {
    service: true,
    // typescript-package.test.ts packs and installs it.
    leftOut: ["npm install", "npm pack"],
    writes: ["42\n 0\n", "hello\n", "[ 'today.txt' ]", "Step 1: 1\nStep 2: 2\nStep 3: 3\n"],
  },
  "docs/debugging.md": {
    before: `
      alias berth="$PWD/bin/berth"
      CONTAINER=$(docker run -d --rm --network none ${TEST_IMAGE} sleep 600)
      trap 'docker rm -f "$CONTAINER" $(docker ps -aq --filter label=berth.instance=$INSTANCE) >/dev/null; stop "$lasting"' EXIT
      INSTANCE=test-$RANDOM$RANDOM
      docker run -d --network none --label berth.instance=$INSTANCE ${TEST_IMAGE} sleep 600
    `,
    lasting: [
      {
        line: /--inspect src\/main/,
        ready: "curl -fsS http://127.0.0.1:9229/json/version",
      },
      { line: /main\.ts serve --data-dir/, ready: 'grep -q listens "$HOME/lasting.log"' },
    ],
    leftOut: [
      // Watch, stop at the first line for a debugger, or run parts of the tests, which run anyway.
      "npm run test:watch",
      "npm run dev",
      "npm test",
      "npx vitest run --project integration",
      'npx vitest run "$FILE"',
      // They need the paths of an installed service, or a lane that hangs.
      "sqlite3",
      "ls -l",
      "find",
    ],
    writes: ["Tests  3 passed", "sleep 600"],
  },
};

/** Documents with snippets that no test here runs, and why. */
const ELSEWHERE: Readonly<Record<string, string>> = {
  "README.md": "readme.test.ts",
  "CONTRIBUTING.md": "starts the tests themselves, and installs packages where it is run",
  "clients/python/README.md": "python-package.test.ts",
  "docs/how-to/add-a-session-type.md": "how-to.test.ts",
  "docs/how-to/add-an-engine.md": "how-to.test.ts",
  "docs/how-to/add-an-rpc.md": "how-to.test.ts",
  "docs/how-to/add-credentials.md": "egress/credentials.test.ts, without the internet",
  "docs/how-to/install-on-kubernetes.md":
    "pushes to a registry; kubernetes/chart.kubernetes.ts has the chart",
  "docs/interop.md": "installs the clients of seven languages, for minutes",
  "docs/benchmarks.md": "measures for minutes",
  "docs/performance.md": "measures for minutes",
  "docs/soak.md": "measures for minutes",
};

test.for(Object.entries(GUIDES))("%s does what it says", async ([name, guide], { signal }) => {
  const { writes, ...run } = guide;
  const written = await runDocument(name, run, signal);
  for (const text of writes) expect(written).toContain(text);
});

test("every document with commands or programs is run", () => {
  const withCode = documents().filter((name) =>
    snippetsOf(name).some(({ language }) => ["sh", "ts", "python"].includes(language)),
  );
  expect([...Object.keys(GUIDES), ...Object.keys(ELSEWHERE)].sort()).toEqual(withCode);
});
