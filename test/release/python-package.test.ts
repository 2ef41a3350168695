import { mkdtemp, readdir, readFile, writeFile } from "node:fs/promises";
import path from "node:path";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { PYTHON_CLIENT, PythonTests, pythonOf } from "../support/python-tests.ts";

const root = path.join(import.meta.dirname, "../..");

let tests: PythonTests;
beforeAll(async () => {
  tests = await PythonTests.start();
});
afterAll(() => tests?.[Symbol.asyncDispose]());

// Against hangs only: whole suites of Python run in these, on first use with the making of their environments.
describe.concurrent("the Python client", { timeout: 900_000 }, () => {
  test("passes its tests with the lowest grpcio and protobuf that it takes", async () => {
    const output = await tests.pytest("lowest", "not vm");
    expect(output).toMatch(/^\d{2,} passed, \d+ deselected in /m);
  });

  test("has types that mypy and pyright find nothing wrong with", async () => {
    const python = await pythonOf("checkers");
    const pyright = path.join(root, "node_modules/pyright/index.js");
    await tests.passes(python, ["-m", "mypy", "--cache-dir", path.join(root, ".cache/mypy")]);
    await tests.passes(process.execPath, [
      pyright,
      "--project",
      path.join(PYTHON_CLIENT, "pyproject.toml"),
      "--pythonpath",
      python,
    ]);
  });

  test("installs in a clean environment as a wheel, of which the quickstart runs, and as a link", async () => {
    const newest = await pythonOf("newest");
    const place = await mkdtemp(path.join(tests.directory, "install-"));
    const python = path.join(place, "env/bin/python");
    const env = { ...tests.environment, PYTHONPATH: "" };
    const pip = (...args: string[]) =>
      tests.passes(python, ["-m", "pip", "-q", "--disable-pip-version-check", ...args], env);
    await tests.passes("python3", ["-m", "venv", path.join(place, "env")], env);
    // What it depends on, as installed already: there need be no network.
    const installed = 'import sysconfig; print(sysconfig.get_path("purelib"))';
    const [from, to] = await Promise.all([
      tests.passes(newest, ["-c", installed]),
      tests.passes(python, ["-c", installed]),
    ]);
    await writeFile(path.join(to.trim(), "dependencies.pth"), from);

    // Of the source archive, which holds all that a build needs, and of the checkout: the same wheel.
    const build =
      "import sys; sys.path.insert(0, 'backend'); import berth_build; berth_build.build_sdist(sys.argv[1])";
    await tests.passes(python, ["-c", build, place], env);
    const [archive = ""] = (await readdir(place)).filter((name) => name.endsWith(".tar.gz"));
    await pip("wheel", "--no-index", "--no-deps", "-w", path.join(place, "1"), path.join(place, archive));
    await pip("wheel", "--no-index", "--no-deps", "-w", path.join(place, "2"), PYTHON_CLIENT);
    const [wheel = ""] = await readdir(path.join(place, "1"));
    const [first, second] = await Promise.all(
      ["1", "2"].map((name) => readFile(path.join(place, name, wheel))),
    );
    expect(first?.equals(second ?? Buffer.alloc(0))).toBe(true);

    await pip("install", "--no-index", "--no-deps", path.join(place, "1", wheel));
    await pip("check");
    const readme = await readFile(path.join(PYTHON_CLIENT, "README.md"), "utf8");
    const blocks = [...readme.matchAll(/^```python\n(.*?)^```$/gms)].map(([, block = ""]) => block);
    expect(blocks.length).toBeGreaterThanOrEqual(7);
    const printed = await Promise.all(blocks.map((block) => tests.passes(python, ["-I", "-c", block], env)));
    // Lines that come at once may be one chunk.
    expect(printed[0]).toMatch(
      /^42\n 0\nstdout 1\n(\nstdout )?2\n(\nstdout )?3\n\nhello\n\n\['today.txt'\]\n$/,
    );
    expect(printed[2]).toBe("Unpacked(entry_count=1, size=30)\nhello\n\nnew.txt\n");
    expect(printed[3]).toMatch(/^cores: [\d.]+\nbytes: \d+ of 536870912\nprocesses: \d+ of 512\n$/);
    expect(printed[6]).toBe("Step 1: 1\nStep 2: 2\nStep 3: 3\n");
    const where = ["-I", "-c", "import berth, berth.v1.error_pb2; print(berth.__file__)"];
    expect(await tests.passes(python, where, env)).toContain(place);

    await pip("uninstall", "-y", "berth");
    await pip("install", "--no-index", "--no-deps", "-e", PYTHON_CLIENT);
    expect((await tests.passes(python, where, env)).trim()).toBe(
      path.join(PYTHON_CLIENT, "src/berth/__init__.py"),
    );
  });
});
