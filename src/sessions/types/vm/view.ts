import type { ViewCommand } from "../../backend.ts";

/** How to reach an X server, inside its sandbox. */
export interface XServer {
  /** As `:1`. */
  readonly display: string;
  /** Absolute path of the file with its cookie. */
  readonly authority: string;
}

/**
 * Joins stdin and stdout to one socket, the only thing that x11vnc takes in
 * their place, and starts it there. The end of stdin ends it.
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

/** Shows a desktop by x11vnc, which speaks RFB on its own stdin and stdout and listens nowhere. */
export function viewOf(
  { display, authority }: XServer,
  size: Pick<ViewCommand, "width" | "height">,
  readOnly: boolean,
): ViewCommand {
  const viewer = [
    "x11vnc",
    ...["-inetd", "-rfbport", "0", "-no6", "-norc", "-nopw", "-safer", "-nolookup", "-quiet"],
    ...["-display", display, "-auth", authority, "-shared", "-xrandr", "newfbsize"],
    // While it naps, as it does at first, or measures how fast its client is, nothing that changes is shown.
    ...["-nonap", "-sb", "0", "-speeds", "lan", "-wait", "10", "-defer", "5"],
    // Windows that move or scroll are shown as they are.
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
