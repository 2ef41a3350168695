import { execFileSync } from "node:child_process";
import { expect, test } from "vitest";

const DRIVER = new URL("../../../../../src/sessions/types/vm/driver", import.meta.url).pathname;

/** Ends each window manager that has started, by a clock of its own, and prints how many there have been. */
const SCRIPT = `
import sys
sys.path.insert(0, sys.argv[1])
import processes

class Ending(processes.Processes):
    started = 0
    def start_window_manager(self):
        self.started += 1
        self.window_manager = "openbox"

ending, clock = Ending("/nowhere"), 1000
processes.time.monotonic = lambda: clock
ending.start_window_manager()
for clock in (1000, 1030, 1059, 1061, 1100, 1122):
    ending.restart_window_manager()
    while ending.window_manager == "openbox":
        ending._manager_ended("openbox", 0)
    print(ending.started)
`;

test("a window manager that has ended too often is started again after a pause, and after each end", () => {
  const printed = execFileSync("python3", ["-B", "-c", SCRIPT, DRIVER], { encoding: "utf8" });
  expect(printed.trim().split("\n").map(Number)).toEqual([6, 6, 6, 7, 7, 8]);
});
