import { beforeAll, describe, expect, test } from "vitest";
import { useApp } from "../../support/app.ts";
import { ENGINES, shareOf, testsInTurn } from "../../support/engines.ts";
import { eventually } from "../../support/eventually.ts";
import { type PythonData, Worker } from "../../support/worker.ts";

describe.each(ENGINES)("on $name", ({ name, settings }) => {
  const it = testsInTurn(name);
  const app = useApp(settings);
  let worker: Worker;

  beforeAll(async () => {
    worker = new Worker(app.client, "pythonista");
    const { status, failure } = await worker.create("python", { env: { GREETING: "hi" } });
    expect({ status, failure }).toEqual({ status: "SESSION_RESULT_STATUS_CREATED", failure: null });
  });

  function run(code: string, seconds?: number) {
    return worker.execute<PythonData>("python:run", {
      code,
      ...(seconds !== undefined && { timeout: seconds }),
    });
  }

  /** Runs endless code until it is interrupted as it must be: on a busy machine, it may be too early for that. */
  function expectInterrupted(code: string, seconds: number, data: Readonly<Record<string, unknown>>) {
    return expect
      .poll(() => run(code, seconds))
      .toMatchObject({ code: 5006, data: { timed_out: true, session_lost: false, ...data } });
  }

  test("the last expression is the result, and variables, imports and functions stay", async () => {
    expect(await run("import os, sys\nx = 20\ndef double(n):\n    return 2 * n\n")).toMatchObject({
      code: 0,
      message: "success",
      data: { stdout: "", stderr: "", result: null, error: null, session_restarted: false },
    });
    const { data } = await run("print('out'); print('err', file=sys.stderr); double(x) + 2");
    expect(data).toMatchObject({ stdout: "out\n", stderr: "err\n", result: "42", error: null });
    expect((await run("os.environ['GREETING']")).data.result).toBe("'hi'");
    expect((await run("_ + '!'")).data.result).toBe("'hi!'");
  });

  it("a result or an error that is cut counts as truncated", async () => {
    for (const [code, cut] of [
      ["'x' * 262_142", false],
      ["'x' * 262_143", true],
      ["raise ValueError('x' * 262_145)", true],
      ["raise ValueError('x')", false],
    ] as const) {
      const { data } = await run(code);
      expect(data.truncated, code).toBe(cut);
      if (cut) expect(data.result ?? data.error?.value).toMatch(/x\.\.\.$/);
    }
  });

  it("code may begin with a byte order mark, like a file", async () => {
    expect((await run("\ufeffmarked = 1\nmarked + 1")).data).toMatchObject({ result: "2", error: null });
    expect((await run("1\ufeff")).data.error?.name).toBe("SyntaxError");
  });

  it("a traceback shows the lines as Python counts them, whatever characters are in the code", async () => {
    for (const before of ["s = 'a\u2028b'", "\f", "# \x85 \x1c", "x = 1\r\ny = 2\rz = 3"]) {
      const { error } = (await run(`${before}\n1 / 0  # here\n'there'`)).data;
      expect(error?.traceback, JSON.stringify(before)).toContain("\n    1 / 0  # here\n");
    }
  });

  it("an exception is returned with its name, value and traceback, and the state stays", async () => {
    const { code, data } = await run("before = 1\ndef f():\n    return 1 / 0\nprint('started')\nf()");
    expect(code).toBe(0);
    expect(data).toMatchObject({
      stdout: "started\n",
      result: null,
      error: { name: "ZeroDivisionError", value: "division by zero" },
    });
    expect(data.error?.traceback).toMatch(/in f\n\s+return 1 \/ 0\n/);
    expect(data.error?.traceback).not.toContain("_turn_of");
    expect((await run("before")).data.result).toBe("1");
    const wrong = (await run("1 +")).data.error;
    expect(wrong).toMatchObject({ name: "SyntaxError" });
    expect(wrong?.traceback).toMatch(
      /^(Traceback \(most recent call last\):\n)? {2}File "<call \d+>", line 1\n/,
    );
    const own = (await run("import ast\nast.parse('2 +')")).data.error;
    expect(own?.traceback).toMatch(
      /^Traceback.*\n {2}File "<call \d+>", line 2, in <module>\n[\s\S]*ast\.py/,
    );
    expect((await run("sys.exit(3)")).data.error).toMatchObject({ name: "SystemExit", value: "3" });
    expect((await run("'still here'")).data.result).toBe("'still here'");
    expect((await run("exit()")).data.error).toMatchObject({ name: "SystemExit" });
    expect((await run("input()")).data.error).toMatchObject({ name: "EOFError" });
    const shown = `exec("class Bad:\\n    def __repr__(self): return 1 / 0")\nBad()`;
    expect((await run(shown)).data.error?.traceback).toMatch(
      /^Traceback.*\n {2}File "<string>", line 2, in __repr__\n/,
    );
    await run("class Lines:\n    def readline(self): return 'a line\\n'\nsys.stdin = Lines()");
    expect((await run("input()")).data.result).toBe("'a line'");
    await run("sys.stdin = None");
    expect((await run("input()")).data.error).toMatchObject({ name: "EOFError" });
  });

  it("await works outside of functions, in one event loop for all calls", async () => {
    const define = "import asyncio\nasync def twice(n):\n    await asyncio.sleep(0)\n    return 2 * n\n";
    expect((await run(`${define}y = await twice(20)\nprint(y)\nawait twice(y + 1)`)).data).toMatchObject({
      stdout: "40\n",
      result: "82",
      error: null,
    });
    expect((await run("_ + y")).data.result).toBe("122");
    await run(
      "async def count():\n    for i in range(3): yield i\nasync for i in count(): last = i\nloop = asyncio.get_running_loop()\nq = asyncio.Queue()\n",
    );
    expect(
      (await run("last, [i async for i in count()], loop is asyncio.get_event_loop()")).data.result,
    ).toBe("(2, [0, 1, 2], True)");
    // A task that is left behind goes on when another call awaits.
    await run("async def put():\n    print('late')\n    await q.put('kept')\ntask = loop.create_task(put())");
    expect((await run("task.done()")).data).toMatchObject({ stdout: "", result: "False" });
    expect((await run("await q.get()")).data).toMatchObject({ stdout: "late\n", result: "'kept'" });
    expect((await run("asyncio.run(twice(4))")).data.result).toBe("8");
    expect((await run("await twice(5)")).data.result).toBe("10");
  });

  it("all of the code runs in the event loop if a part of it awaits", async () => {
    const define = "import asyncio\nasync def twice(n):\n    await asyncio.sleep(0)\n    return 2 * n\n";
    // A loop that code made before anything was awaited.
    await run(`${define}task = asyncio.get_event_loop().create_task(twice(1))`);
    expect((await run("await task")).data).toMatchObject({ result: "2", error: null });
    expect((await run("task = asyncio.create_task(twice(2))\nawait task")).data).toMatchObject({
      result: "4",
      error: null,
    });
    expect((await run("await twice(2)\nasyncio.create_task(twice(3)).done()")).data).toMatchObject({
      result: "False",
      error: null,
    });
    await run("import contextvars, decimal\nvariable = contextvars.ContextVar('variable')");
    expect(
      (await run("await twice(3)\nvariable.set(None)\ndecimal.setcontext(decimal.Context(prec=3))")).data
        .error,
    ).toBeNull();
    expect((await run("variable.get(), decimal.Decimal(1) / 3")).data.result).toBe(
      "(None, Decimal('0.333'))",
    );
    await run("await twice(4)\nvariable.set(1)\n1 / 0");
    expect((await run("variable.get()")).data.result).toBe("1");
    for (const code of ["print('first')\nyield 2", "await twice(5)\nprint('first')\nyield 2"]) {
      expect((await run(code)).data).toMatchObject({ stdout: "first\n", error: { name: "SyntaxError" } });
    }
  });

  it("what fails, ends or hangs while it is awaited is reported as without await", async () => {
    await run("import asyncio, sys\nasync def fail():\n    await asyncio.sleep(0)\n    return 1 / 0\n");
    const { error } = (await run("await fail()")).data;
    expect(error).toMatchObject({ name: "ZeroDivisionError" });
    expect(error?.traceback).toMatch(
      /^Traceback.*\n {2}File "<call \d+>", line 1, in <module>\n[\s\S]*in fail\n/,
    );
    expect(error?.traceback).not.toMatch(/asyncio|_awaited/);
    expect((await run("await asyncio.sleep(0)\nsys.exit(3)")).data.error).toMatchObject({
      name: "SystemExit",
    });
    expect((await run("await 1")).data.error).toMatchObject({ name: "TypeError" });
    for (const wrong of [
      "def f():\n    await fail()",
      "await fail(",
      "return await fail()",
      "lambda: await f()",
    ])
      expect((await run(wrong)).data.error).toMatchObject({ name: "SyntaxError" });
    expect((await run("await fail()\nfrom __future__ import annotations")).data.error?.value).toMatch(
      /^from __future__ imports must occur/,
    );
    const sleeping = "async def hang():\n    try: await asyncio.sleep(1000)\n    finally: print('closed')\n";
    for (const code of [`${sleeping}await hang()`, "async def spin():\n    while True: pass\nawait spin()"]) {
      const traceback = expect.stringMatching(
        /^Traceback.*\n {2}File "<call \d+>", line \d, in <module>\n.*\n {2}File "<call \d+>", line 2, in (hang|spin)\n/,
      );
      await expectInterrupted(code, 0.5, { error: { name: "KeyboardInterrupt", traceback } });
    }
    await expectInterrupted("await hang()", 0.5, { stdout: "closed\n" });
    expect((await run("len(asyncio.all_tasks(asyncio.get_event_loop()))")).data.result).toBe("0");
    // One that catches its cancellation once. Nothing of it goes on in the next execution.
    await expectInterrupted(
      "async def clean():\n    try: await asyncio.sleep(1000)\n    except asyncio.CancelledError: await asyncio.sleep(1000)\n" +
        "    finally: print('cleaned')\nawait clean()",
      0.5,
      { stdout: "cleaned\n", error: { name: "KeyboardInterrupt" } },
    );
    expect((await run("len(asyncio.all_tasks(asyncio.get_event_loop()))")).data.result).toBe("0");
    await expectInterrupted(
      "async def leave():\n    try: await asyncio.sleep(1000)\n    finally: 1 / 0\nawait leave()",
      0.5,
      {
        error: {
          traceback: expect.stringMatching(
            /line 4, in <module>\n.*\n.*line 3, in leave\n[\s\S]*KeyboardInterrupt\n$/,
          ),
        },
      },
    );
    expect((await run("await asyncio.sleep(0, 'well')")).data.result).toBe("'well'");
    // One that does not let itself be canceled.
    const stay =
      "import asyncio\nasync def stay():\n    while True:\n        try: await asyncio.sleep(1000)\n        except BaseException: pass\nawait stay()";
    await expect.poll(() => run(stay, 0.5)).toMatchObject({ code: 5006, data: { session_lost: true } });
    expect((await run("import asyncio\nawait asyncio.sleep(0, 'well')")).data).toMatchObject({
      result: "'well'",
      session_restarted: true,
    });
  });

  it("code whose event loop runs in a thread awaits in another", async () => {
    await run("import asyncio, threading\nawait asyncio.sleep(0)\nloop = asyncio.get_event_loop()");
    await run("threading.Thread(target=loop.run_forever, daemon=True).start()");
    const code =
      "async def answer(): return 42\nfuture = asyncio.run_coroutine_threadsafe(answer(), loop)\nawait asyncio.wrap_future(future)";
    expect((await run(code, 5)).data).toMatchObject({ timed_out: false, result: "42", error: null });
    expect((await run("loop.is_running()")).data.result).toBe("True");
  });

  it("code whose event loop is closed by the interrupt is over, and the next code gets another loop", async () => {
    const worker = new Worker(app.client, "closed loop");
    await worker.create("python");
    // An interrupt may come at the moment when something closes the loop. This loop makes that sure.
    const define =
      "import asyncio\nclass Closing(asyncio.SelectorEventLoop):\n    def run_forever(self):\n" +
      "        try: super().run_forever()\n        except KeyboardInterrupt:\n            self.close()\n            raise\n" +
      "asyncio.set_event_loop(Closing())\nkept = 1";
    await worker.execute("python:run", { code: define });
    const { data } = await worker.execute("python:run", {
      code: "import signal\nasyncio.get_running_loop().call_soon(signal.raise_signal, signal.SIGINT)\nawait asyncio.sleep(1000)",
      // Against hangs only.
      timeout: 100,
    });
    expect(data).toMatchObject({
      timed_out: false,
      session_lost: false,
      error: { name: "KeyboardInterrupt" },
    });
    expect((await worker.execute("python:run", { code: "await asyncio.sleep(0, kept)" })).data).toMatchObject(
      {
        result: "1",
        session_restarted: false,
      },
    );
    await worker.destroy();
  });

  it("a timeout interrupts, and the state stays", async () => {
    await run("kept = 'yes'");
    await expectInterrupted("import time\nprint('started')\nwhile True: time.sleep(0.1)", 0.5, {
      stdout: "started\n",
      error: { name: "KeyboardInterrupt" },
    });
    const traceback = expect.stringMatching(
      /^Traceback.*\n {2}File "<call \d+>", line 1, in <module>\n.*\nKeyboardInterrupt\n$/,
    );
    await expectInterrupted("while True: pass", 0.3, { error: { traceback } });
    expect((await run("kept")).data.result).toBe("'yes'");
  });

  it("code that gets to its interrupt only later keeps its interpreter", async () => {
    await run(`
import signal, time
def busy():
    while not signal.sigpending(): pass
    end = time.monotonic() + 2
    while time.monotonic() < end: pass`);
    const late = await run(
      "kept = 'yes'\nsignal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])\ntry: busy()\nfinally: signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGINT])",
      0.3,
    );
    expect(late).toMatchObject({ code: 5006, data: { timed_out: true, session_lost: false } });
    expect((await run("kept")).data).toMatchObject({ result: "'yes'", session_restarted: false });
  });

  test("code that cannot be interrupted is killed with its interpreter, and the next call gets a new one", async () => {
    const stubborn = () =>
      run("import signal\nsignal.signal(signal.SIGINT, signal.SIG_IGN)\nwhile True: pass", 0.3);
    await expect.poll(stubborn).toMatchObject({ code: 5006, data: { timed_out: true, session_lost: true } });
    expect((await run("'kept' in globals()")).data).toMatchObject({
      result: "False",
      session_restarted: true,
    });
  });

  test("an interpreter that dies reports how, and the next call gets a new one", async () => {
    const died = await run("import os, sys\nprint('last words', flush=True)\nos._exit(7)");
    expect(died).toMatchObject({
      code: 4001,
      data: {
        stdout: "last words\n",
        session_lost: true,
        error: { value: expect.stringContaining("exit code 7") },
      },
    });
    expect((await run("1 + 1")).data).toMatchObject({ result: "2", session_restarted: true });
  });

  test("output of an earlier call's threads and processes never appears in the next", async () => {
    await run(
      "import threading, time, subprocess\ngo = True\n" +
        "def chatter():\n    while go: print('late'); time.sleep(0.005)\n" +
        "threading.Thread(target=chatter, daemon=True).start()\n" +
        "child = subprocess.Popen(['sh', '-c', 'while :; do echo late; sleep 0.01; done'])\n",
    );
    for (let i = 0; i < 5; i++) {
      const { data } = await run(`time.sleep(0.05); print(${i})`);
      expect(data).toMatchObject({ stdout: `${i}\n`, stderr: "" });
    }
    await run("go = False; child.kill(); child.wait()");
  });

  test("processes that write while a result is reported do not damage it", async () => {
    const noisy =
      "import os, subprocess, time\nif os.path.exists('/tmp/noise'): os.remove('/tmp/noise')\n" +
      "noisy = ['sh', '-c', 'while :; do echo noise; : >/tmp/noise; done']\n" +
      "children = [subprocess.Popen(noisy) for _ in range(3)]\n" +
      "while not os.path.exists('/tmp/noise'): time.sleep(0.01)\n'x' * 200_000";
    for (let round = 0; round < 5; round++) {
      const { data } = await run(noisy);
      await run("for child in children: child.kill(); child.wait()");
      expect(data.result).toBe(`'${"x".repeat(200_000)}'`);
    }
  });

  it("threads that print while later calls run do not crash the interpreter", async () => {
    const workers = Array.from({ length: 4 }, (_, index) => new Worker(app.client, `printer ${index}`));
    await Promise.all(
      workers.map(async (printer) => {
        expect((await printer.create("python")).failure).toBeNull();
        const start =
          "import sys, threading\nsys.setswitchinterval(1e-5)\n" +
          "def chatter():\n    while True: print('late')\n" +
          "for _ in range(2): threading.Thread(target=chatter, daemon=True).start()";
        await printer.execute<PythonData>("python:run", { code: start });
        for (let i = 0; i < 60; i++) {
          const { code, message, data } = await printer.execute<PythonData>("python:run", {
            code: `print(${i})`,
          });
          expect({ code, message }).toEqual({ code: 0, message: "success" });
          expect(data).toMatchObject({ stdout: `${i}\n`, session_lost: false, session_restarted: false });
        }
        await printer.destroy();
      }),
    );
  });

  test.each(
    shareOf<[string, string]>(name, [
      ["print is None", "import builtins; builtins.print = None"],
      ["builtins that the driver needs have gone", "import builtins; del builtins.len, builtins.isinstance"],
      [
        "builtins do something else",
        "import builtins; builtins.getattr = builtins.str = lambda *given: 1 / 0",
      ],
      ["the main module's builtins are empty", "__builtins__ = {}"],
      ["sys.stdout is None", "import sys; sys.stdout = sys.stderr = None"],
      ["sys.stdout is deleted", "import sys; del sys.stdout, sys.stderr"],
      ["sys.stdout is closed", "import sys; sys.stdout.close(); sys.stderr.close()"],
      ["sys.stdout is detached", "import sys; sys.stdout.detach(); sys.stderr.detach()"],
      ["its buffer is closed with a wrapper", "import io, sys; io.TextIOWrapper(sys.stdout.buffer); None"],
      [
        "sys.stdout cannot be flushed",
        "import sys\nclass No:\n    def flush(self): sys.exit(1)\nsys.stdout = No()",
      ],
      [
        "what the driver calls is None",
        "import json, os, traceback\njson.loads = json.dumps = os.open = os.getpid = traceback.format_exception = None",
      ],
    ]),
  )("if %s, the next call works", async (_, code) => {
    const breaker = new Worker(app.client, "breaker");
    const run = (text: string) => breaker.execute<PythonData>("python:run", { code: text });
    expect((await breaker.create("python")).failure).toBeNull();
    expect((await run(code)).data).toMatchObject({ error: null, session_lost: false });
    expect((await run("import sys; print('out'); print('err', file=sys.stderr); 6 * 7")).data).toMatchObject({
      stdout: "out\n",
      stderr: "err\n",
      result: "42",
      error: null,
      session_restarted: false,
    });
    expect((await run("1 / 0")).data.error).toMatchObject({
      name: "ZeroDivisionError",
      value: "division by zero",
    });
    await breaker.destroy();
  });

  it("stdin is empty, and a fork does not replace the interpreter", async () => {
    expect((await run("input()")).data.error?.name).toBe("EOFError");
    const { data } = await run("import os\npid = os.fork()\nif pid: os.waitpid(pid, 0)\npid > 0");
    expect(data).toMatchObject({ result: "True", error: null });
    expect((await run("'next'")).data.result).toBe("'next'");
  });

  it("a fork ends with the exit code of a program and says what was wrong; a pool outlives it", async () => {
    await run("import multiprocessing, os, sys\npool = multiprocessing.Pool(1)");
    const fork = (child: string) =>
      run(`pid = os.fork()\nif pid == 0: ${child}\ncode = pid and os.waitpid(pid, 0)[1] >> 8\ncode`);
    expect((await fork("sys.exit(3)")).data).toMatchObject({ result: "3", error: null, stderr: "" });
    expect((await fork("sys.exit()")).data).toMatchObject({ result: "0", stderr: "" });
    expect((await fork("sys.exit('bad')")).data).toMatchObject({ result: "1", stderr: "bad\n" });
    const { data } = await fork("1 / 0");
    expect(data).toMatchObject({
      result: "1",
      stderr: expect.stringContaining("ZeroDivisionError: division"),
    });
    expect((await run("pool.map(abs, [-7])")).data).toMatchObject({
      result: "[7]",
      session_restarted: false,
    });
    await run("pool.terminate()");
  });

  test.each([
    [
      "has a name that is none",
      "class Meta(type):\n    __name__ = 5\nclass Bad(Exception, metaclass=Meta): pass",
    ],
    ["raises more when it is shown", "class Bad(Exception):\n    def __str__(self): raise SystemExit(4)"],
  ])("an exception that %s is an error all the same", async (_, definition) => {
    const { data } = await run(`${definition}\nraise Bad`);
    expect(data).toMatchObject({ error: { name: "Bad" }, session_lost: false });
  });

  it("an exception from a signal handler between two calls does not change the interpreter", async () => {
    const start =
      "import os, signal, sys, threading, time\nsent = False\n" +
      "def late(*given): raise TimeoutError('late')\nsignal.signal(signal.SIGUSR1, late)\n" +
      "def names():\n    frame = sys._current_frames()[threading.main_thread().ident]\n" +
      "    while frame: yield frame.f_code.co_name; frame = frame.f_back\n" +
      "def send():\n    global sent\n    while '_serve' in names(): time.sleep(0.01)\n" +
      "    os.kill(os.getpid(), signal.SIGUSR1); sent = True\n" +
      "threading.Thread(target=send).start()";
    expect((await run(start)).data.error).toBeNull();
    await eventually(async () => {
      const { data } = await run("sent");
      expect(data).toMatchObject({ error: null, session_restarted: false });
      return data.result === "True";
    });
    expect((await run("'next'")).data).toMatchObject({ result: "'next'", session_restarted: false });
  });

  it("a timer whose handler raises at any moment does not change the interpreter", async () => {
    const start =
      "import signal\ncalls = 0\ndef late(*given): raise TimeoutError('late')\n" +
      "signal.signal(signal.SIGALRM, late)\nsignal.setitimer(signal.ITIMER_REAL, .002, .0007)";
    await run(start);
    for (let i = 0; i < 300; i++) {
      const { data } = await run("calls += 1");
      expect(data).toMatchObject({ session_lost: false, session_restarted: false });
    }
    await eventually(async () => (await run("signal.setitimer(signal.ITIMER_REAL, 0)")).data.error === null);
    expect((await run("calls > 0")).data.result).toBe("True");
    expect((await run("signal.getsignal(signal.SIGALRM) is late")).data.result).toBe("True");
    expect((await run("signal.signal(signal.SIGALRM, signal.SIG_DFL) is late")).data.result).toBe("True");
  });

  it("binary output arrives byte for byte", async () => {
    const answer = await run("import sys\nsys.stdout.buffer.write(bytes(range(256)))\nNone");
    expect(answer.attachments).toEqual([
      {
        name: "stdout",
        media_type: "application/octet-stream",
        content: Buffer.from(Array.from({ length: 256 }, (_, i) => i)),
      },
    ]);
  });

  it("hundreds of open files keep their descriptors in later calls", async () => {
    // In another interpreter: all of these descriptors are taken once sixteen calls have run.
    const young = new Worker(app.client, "young");
    expect((await young.create("python")).failure).toBeNull();
    const runs = async (code: string) => (await young.execute<PythonData>("python:run", { code })).data;
    await runs("import tempfile\nfiles = [tempfile.TemporaryFile() for _ in range(300)]");
    const write = "for at, file in enumerate(files): file.write(b'%d' % at); file.flush(); file.seek(0)";
    expect(await runs(write)).toMatchObject({ stdout: "", stderr: "", error: null });
    const { result } = await runs("[at for at, file in enumerate(files) if file.read() != b'%d' % at]");
    expect(result).toBe("[]");
    await young.destroy();
  });

  it("open figures are returned as PNG, and closed", async () => {
    // A stub with what the driver calls: matplotlib itself is larger than the rest of the image.
    await run(`
import sys, types
PNG = bytes.fromhex('89504e470d0a1a0a')
class Figure:
    def __init__(self, text): self.text = text
    def savefig(self, file, format): file.write(PNG + (format + self.text).encode())
pyplot = types.ModuleType('matplotlib.pyplot')
figures = {}
def plot(text): figures[len(figures) + 1] = Figure(text)
pyplot.plot, pyplot.figure, pyplot.get_fignums = plot, figures.get, lambda: sorted(figures)
pyplot.close = lambda which: figures.clear()
sys.modules['matplotlib'] = types.ModuleType('matplotlib')
sys.modules['matplotlib.pyplot'] = pyplot
`);
    const { attachments } = await run("pyplot.plot('one'); pyplot.plot('two')");
    expect(
      attachments.map(({ name, media_type, content }) => [name, media_type, content.subarray(8).toString()]),
    ).toEqual([
      ["plot_1", "image/png", "pngone"],
      ["plot_2", "image/png", "pngtwo"],
    ]);
    expect((await run("1")).attachments).toEqual([]);
    // Such as one with too many pixels.
    const drawn = await run("pyplot.plot('good'); pyplot.plot(5)");
    expect(drawn.data.error).toMatchObject({
      name: "TypeError",
      traceback: expect.stringContaining("savefig"),
    });
    expect(await run("2")).toMatchObject({ attachments: [], data: { result: "2", error: null } });
  });
});
