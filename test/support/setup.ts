import { afterAll } from "vitest";
import { mallocTrimmer } from "../../src/base/malloc-trim.ts";
import { tuneMemory } from "../../src/base/memory.ts";
import { keepThreadPoolAwake } from "../../src/base/thread-pool.ts";

// As in the program, since many tests run the service in their own process.
tuneMemory();
// Tests wait for files too.
keepThreadPoolAwake();
// Each program that a test starts costs a copy of the tables of all memory that its process has, free or not.
afterAll(mallocTrimmer());
