import { afterAll } from "vitest";
import { tuneMemory } from "../../src/base/memory.ts";
import { keepThreadPoolAwake } from "../../src/base/thread-pool.ts";
import { trimMemory } from "./trim-memory.ts";

// For this process alone: see vitest.config.ts.
delete process.env.GLIBC_TUNABLES;
// As in the program, since many tests run the service in their own process.
tuneMemory();
// Tests wait for files too.
keepThreadPoolAwake();
// Starting a program copies the page tables of all memory that the test's process holds, whether free or in use.
afterAll(trimMemory);
