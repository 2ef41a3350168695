import type { RunMessage } from "./run.ts";

/** How many messages a run keeps: the newest. */
export const MAX_MESSAGES = 100;

const WARNING =
  "Observed duplicate responses. Consider new strategies and avoid repeating ineffective paths already attempted.";

/** The conversation after more was said, cut to the newest {@link MAX_MESSAGES}. */
export function extended(
  messages: readonly RunMessage[],
  more: readonly RunMessage[],
): readonly RunMessage[] {
  return [...messages, ...more].slice(-MAX_MESSAGES);
}

/**
 * Whether an agent goes round in circles: the last message, from whomever, says
 * exactly what at least `threshold` earlier messages of the assistant said.
 */
export function isStuck(messages: readonly RunMessage[], threshold: number): boolean {
  const last = messages.at(-1);
  if (messages.length < 2 || last === undefined || last.content === "") return false;
  const same = messages
    .slice(0, -1)
    .filter(({ role, content }) => role === "ASSISTANT" && content === last.content);
  return same.length >= threshold;
}

/** What to ask an agent: the prompt of every step, below a warning where the last step left it stuck. */
export function promptOf(nextStepPrompt: string, stuck: boolean): string {
  return stuck ? `${WARNING}\n${nextStepPrompt}` : nextStepPrompt;
}
