/** Addresses of a test's internet, which no packet outside its namespaces ever has, and the names in its DNS. */
export const INTERNET = {
  echoPort: 7007,
  /** The DNS server's address, as seen by the service. */
  resolver: "198.51.100.2",
  service: "198.51.100.1",
  public: ["11.22.33.44", "11.22.33.45"],
  public6: "2600::5",
  unreachable: "11.22.33.99",
  /** Addresses of servers that also answer, but that no sandbox may reach. */
  closed: ["10.9.9.9", "172.16.9.9", "192.168.9.9", "100.64.9.9", "169.254.169.254"],
  closed6: "fd00::9",
  names: {
    "allowed.example": ["11.22.33.44"],
    "www.allowed.example": ["11.22.33.45"],
    "six.example": ["2600::5"],
    "other.example": ["11.22.33.45"],
    "private.example": ["10.9.9.9"],
    "metadata.example": ["169.254.169.254"],
    "loopback.example": ["127.0.0.1"],
    "private6.example": ["fd00::9"],
    "loopback6.example": ["::1"],
    "mapped.example": ["::ffff:a09:909"],
    "mixed.example": ["10.9.9.9", "11.22.33.44"],
    "rebind.example": ["11.22.33.44", "10.9.9.9"],
    "rebind-between.example": ["11.22.33.44", "10.9.9.9"],
    // The HTTPS server's certificate does not include it.
    "not-vouched-for.example": ["11.22.33.45"],
    "unreachable.example": ["11.22.33.99"],
  } as Readonly<Record<string, readonly string[]>>,
} as const;
