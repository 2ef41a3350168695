/**
 * The end of a command's help, for `addHelpText("after", …)`: one example command line per line. Tests parse every
 * example.
 */
export function examples(...lines: readonly string[]): string {
  return `\nExamples:\n${lines.map((line) => `  ${line}`).join("\n")}`;
}
