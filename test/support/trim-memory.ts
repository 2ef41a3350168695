import { mallocTrimmer } from "../../src/base/malloc-trim.ts";

/** Returns the C library's free memory to the system. One for all test files of a process: it keeps a file open. */
export const trimMemory = mallocTrimmer();
