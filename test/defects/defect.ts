/** A replacement in a file of the repository. */
export interface Change {
  readonly file: string;
  /** Found in the file exactly once. */
  readonly from: string;
  readonly to: string;
}

/**
 * A defect that Berth is not to have, how it would come back, and the test that
 * would notice. `npm run test:defects` puts each one back into a copy of the
 * repository and sees its test fail there, and pass without it.
 */
export interface Defect {
  /** What would be wrong. */
  readonly name: string;
  /** The smallest changes that make it so. */
  readonly changes: readonly Change[];
  readonly test: {
    readonly file: string;
    /** Its title, as it stands in the file. Of a suite that runs on each engine, it has to fail on all. */
    readonly title: string;
    /** What stands for the title's `%s` in the row of `test.each` that would notice. */
    readonly row?: string;
    /** A part of its full name, where it has to fail in some of the suites that have it alone. */
    readonly suite?: string;
  };
}

/** The title of a defect's test, as vitest reports it. */
export function reportedTitle({ title, row }: Defect["test"]): string {
  return row === undefined ? title : title.replace("%s", () => row);
}
