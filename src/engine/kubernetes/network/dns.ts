/**
 * Resolvers of sandboxes with EGRESS. Public ones, as on Docker, because a cluster's own resolver has a private
 * address.
 */
export const DEFAULT_DNS: readonly string[] = ["1.1.1.1", "8.8.8.8"];
