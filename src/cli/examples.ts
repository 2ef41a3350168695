/**
 * The end of a command's help, for `addHelpText("after", …)`: examples, one command line each. Tests parse every one
 * of them.
 */
export function examples(...lines: readonly string[]): string {
  return `\nExamples:\n${lines.map((line) => `  ${line}`).join("\n")}`;
}
