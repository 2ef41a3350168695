import type { ViewCommand } from "../../backend.ts";

/** How to reach an X server inside its sandbox. */
export interface XServer {
  /** For example `:1`. */
  readonly display: string;
  /** Absolute path of its authority file, which has the cookie. */
  readonly authority: string;
}

/**
 * Connects stdin and stdout to a socket and starts x11vnc on it, because x11vnc takes nothing but a socket. EOF on
 * stdin ends it.
 */
const BRIDGE = `
import os, socket, subprocess, sys, threading
ours, theirs = socket.socketpair()
try:
    viewer = subprocess.Popen(sys.argv[1:], stdin=theirs, stdout=subprocess.DEVNULL)
except OSError as error:
    sys.exit("the sandbox has no " + sys.argv[1] + " (" + error.strerror + "): use the image berth/desktop, or install it")
theirs.close()
def feed():
    try:
        while data := os.read(0, 65536):
            ours.sendall(data)
        ours.shutdown(socket.SHUT_WR)
    except OSError:
        pass
threading.Thread(target=feed, daemon=True).start()
try:
    while data := ours.recv(65536):
        while data:
            data = data[os.write(1, data):]
except OSError:
    pass
ours.close()
os._exit(viewer.wait() & 255)
`;

/** Shows a desktop through x11vnc, which speaks RFB on stdin and stdout and listens on no port. */
export function viewOf(
  { display, authority }: XServer,
  size: Pick<ViewCommand, "width" | "height">,
  readOnly: boolean,
): ViewCommand {
  const viewer = [
    "x11vnc",
    ...["-inetd", "-rfbport", "0", "-no6", "-norc", "-nopw", "-safer", "-nolookup", "-quiet"],
    ...["-display", display, "-auth", authority, "-shared", "-xrandr", "newfbsize"],
    // Otherwise x11vnc shows no changes while it naps, as it does at first, or while it measures its client's speed.
    ...["-nonap", "-sb", "0", "-speeds", "lan", "-wait", "10", "-defer", "5"],
    // Windows that move or scroll are sent as they are.
    ...["-nowf", "-noscr"],
    ...(readOnly ? ["-viewonly"] : []),
  ];
  return {
    argv: ["python3", "-I", "-S", "-c", BRIDGE, ...viewer],
    env: {},
    protocol: "rfb",
    ...size,
  };
}
