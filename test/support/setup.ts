import { keepThreadPoolAwake } from "../../src/base/thread-pool.ts";

// Tests wait for files too.
keepThreadPoolAwake();
