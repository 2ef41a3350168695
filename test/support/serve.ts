/**
 * A service as a process of its own, for tests that measure its memory or send
 * it signals. Its settings come as JSON in the first argument; it tells its
 * parent the address, ends in order on SIGTERM, and with its parent.
 */
import { startApp } from "../../src/app.ts";

const quiet = (): void => {};
const complain = (fields: object, message: string): void => console.error(message, fields);
const app = await startApp(JSON.parse(process.argv[2] ?? ""), {
  debug: quiet,
  info: quiet,
  warn: quiet,
  error: complain,
});

async function stop(): Promise<void> {
  const { left } = await app.stop();
  if (!process.connected) return;
  process.send?.({ left });
  process.disconnect();
}

process.once("SIGTERM", () => void stop());
process.once("disconnect", () => void stop());
process.send?.({ address: app.address });
