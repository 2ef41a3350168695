/** Whether an id is one that the service gives to processes; what else there is may have an id of any form. */
export function isProcessId(id: string): boolean {
  return /^prc_[a-z2-7]{20}$/.test(id);
}
