import type { Reporter, TestModule } from "vitest/node";

/** Reports the result of a run as one line of JSON on stdout, for the process that started it. */
export default class JsonLineReporter implements Reporter {
  onTestRunEnd(modules: readonly TestModule[], unhandled: readonly { readonly message: string }[]): void {
    let passed = 0;
    const failures = unhandled.map(({ message }) => message);
    for (const module of modules) {
      failures.push(...module.errors().map(({ message }) => message));
      for (const test of module.children.allTests()) {
        const result = test.result();
        if (result.state === "passed") passed++;
        else failures.push(`${test.fullName}: ${result.errors?.[0]?.message ?? result.state}`);
      }
    }
    console.log(JSON.stringify({ passed, failures }));
  }
}
