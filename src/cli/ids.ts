/** Whether an id has the form of the service's process ids. Other ids may have any form. */
export function isProcessId(id: string): boolean {
  return /^prc_[a-z2-7]{20}$/.test(id);
}
