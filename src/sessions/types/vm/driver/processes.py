"""The processes that the driver starts and supervises."""

import os
import shutil
import signal
import subprocess
import time

import guard
from errors import Failure

# How often a window manager is started again at once. Later, what ended it may have passed, such as a lack of processes.
WM_RESTARTS = 5
WM_PAUSE_SECONDS = 60
# No process of the driver uses a descriptor above this.
MAX_FD = 1024
BACKGROUND = 0x2E3440
CURSOR_ARROW = 68

OPENBOX = """<openbox_config xmlns="http://openbox.org/3.4/rc">
<theme><name>Clearlooks</name><titleLayout>NLIMC</titleLayout></theme>
<desktops><number>1</number><popupTime>0</popupTime></desktops>
<focus><focusNew>yes</focusNew><focusLast>yes</focusLast><followMouse>no</followMouse></focus>
<placement><policy>Smart</policy></placement>
<resize><popupShow>Never</popupShow></resize>
<keyboard>
%(keys)s
</keyboard>
<mouse><dragThreshold>4</dragThreshold><doubleClickTime>400</doubleClickTime>
<context name="Client">%(raise)s</context>
<context name="Titlebar">%(raise)s
<mousebind button="Left" action="Drag"><action name="Move"/></mousebind>
<mousebind button="Left" action="DoubleClick"><action name="ToggleMaximize"/></mousebind></context>
%(edges)s
<context name="Close">%(raise)s<mousebind button="Left" action="Click"><action name="Close"/></mousebind></context>
<context name="Iconify">%(raise)s<mousebind button="Left" action="Click"><action name="Iconify"/></mousebind></context>
<context name="Maximize">%(raise)s<mousebind button="Left" action="Click"><action name="ToggleMaximize"/></mousebind></context>
</mouse>
<menu><file>%(menu)s</file></menu>
</openbox_config>
"""
_RAISE = "".join('<mousebind button="%s" action="Press"><action name="Focus"/><action name="Raise"/></mousebind>' % button
                 for button in ("Left", "Middle", "Right"))
_EDGES = "".join('<context name="%s"><mousebind button="Left" action="Drag"><action name="Resize"/></mousebind></context>' % edge
                 for edge in ("Top", "Left", "Right", "Bottom", "TLCorner", "TRCorner", "BLCorner", "BRCorner"))
_KEYS = ('<keybind key="A-F4"><action name="Close"/></keybind>'
         '<keybind key="A-Tab"><action name="NextWindow"/></keybind>'
         '<keybind key="A-S-Tab"><action name="PreviousWindow"/></keybind>')
_MENU = '<openbox_menu xmlns="http://openbox.org/3.4/menu"><menu id="root-menu" label="Menu"/></openbox_menu>\n'

# For programs that do not choose their own font, the look of an ordinary desktop.
RESOURCES = b"XTerm*faceName: Monospace\nXTerm*faceSize: 11\nXTerm*locale: true\nXft.dpi: %d\nXft.antialias: 1\nXft.hinting: 1\n"


class Processes:
    """Starts programs that die with the driver, and tracks which have ended."""

    def __init__(self, directory):
        self.directory = directory
        self.environment = dict(os.environ)
        # By name, so that programs start in what is mounted there later.
        self.working_directory = os.getcwd()
        self.window_manager = "none"
        self.running = {}
        self._restarts = 0
        # When it started last.
        self._restarted = 0

    def path(self, *names):
        return os.path.join(self.directory, *names)

    def start(self, name, argv, on_end=None, fds=(), niceness=0, **options):
        settings = dict(stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=self.environment,
                        pass_fds=fds, start_new_session=True, preexec_fn=lambda: guard.die_with_parent() or os.nice(niceness))
        settings.update(options)
        process = subprocess.Popen(argv, **settings)
        # The driver reaps all children itself: see reap().
        process.returncode = 0
        self.running[process.pid] = (name, on_end)
        return process

    def fork(self, name, work, fds):
        """Runs work in a child process that has only these descriptors."""
        pid = os.fork()
        if pid == 0:
            try:
                signal.set_wakeup_fd(-1)
                for number in (signal.SIGTERM, signal.SIGCHLD):
                    signal.signal(number, signal.SIG_DFL)
                guard.die_with_parent()
                os.environ.update(self.environment)
                at = 3
                for fd in sorted(fds):
                    os.closerange(at, fd)
                    at = fd + 1
                os.closerange(at, MAX_FD)
                work()
            except BaseException:
                import traceback
                traceback.print_exc()
            finally:
                os._exit(0)
        self.running[pid] = (name, None)

    def reap(self):
        for pid, status in guard.reap():
            name, on_end = self.running.pop(pid, ("", None))
            if on_end is not None:
                on_end(name, status)

    def count(self, name):
        return sum(1 for known, _ in self.running.values() if known == name)

    def start_server(self, width, height, dpi, seconds):
        """Starts the X server and returns its display."""
        authority = self.path("authority")
        cookie = os.urandom(16)
        with open(os.open(authority, os.O_WRONLY | os.O_CREAT, 0o600), "wb") as file:
            # Family 0xffff matches any host name; the empty number matches any display.
            file.write(b"\xff\xff\0\0\0\0\0\x12MIT-MAGIC-COOKIE-1\0\x10" + cookie)
        self.environment["XAUTHORITY"] = os.environ["XAUTHORITY"] = authority
        ready, display_fd = os.pipe()
        log = os.open(self.path("server.log"), os.O_WRONLY | os.O_CREAT, 0o600)
        try:
            with open(self.path("display")) as file:
                display = ":" + file.readline().strip()
        except OSError:
            raise Failure("all displays are taken: /tmp holds too many X locks")
        argv = ["Xvfb", display, "-displayfd", str(display_fd), "-screen", "0", "%dx%dx24" % (width, height), "-dpi", str(dpi),
                "-nolisten", "tcp", "-nolisten", "local", "-auth", authority, "-noreset", "-background", "none"]
        server = self.start("Xvfb", argv, fds=(display_fd,), stderr=log)
        os.close(display_fd)
        os.close(log)
        if not _line_of(ready, seconds):
            with open(self.path("server.log"), errors="replace") as file:
                said = file.read(2000).strip()
            raise Failure("Xvfb did not start: %s" % (said or "it said nothing within %d s" % seconds))
        self.environment["DISPLAY"] = display
        self.running[server.pid] = ("Xvfb", server_ended)
        return display

    def start_window_manager(self):
        if shutil.which("openbox", path=self.environment.get("PATH")) is None:
            return
        if not os.path.exists(self.path("openbox.xml")):
            with open(self.path("menu.xml"), "w") as file:
                file.write(_MENU)
            with open(self.path("openbox.xml"), "w") as file:
                file.write(OPENBOX % {"raise": _RAISE, "edges": _EDGES, "keys": _KEYS, "menu": self.path("menu.xml")})
        self.start("openbox", ["openbox", "--sm-disable", "--config-file", self.path("openbox.xml")], self._manager_ended)
        self.window_manager = "openbox"

    def _manager_ended(self, _name, _status):
        self.window_manager = "lost"
        self.restart_window_manager()

    def restart_window_manager(self):
        """Starts the window manager if it is lost. One that has ended too often gets a pause. If the sandbox has no process
        or memory left for it, the next call tries again.
        """
        pauses = self._restarts >= WM_RESTARTS and time.monotonic() < self._restarted + WM_PAUSE_SECONDS
        if self.window_manager != "lost" or pauses:
            return
        try:
            self.start_window_manager()
            self._restarts += 1
            self._restarted = time.monotonic()
        except OSError:
            pass

    def start_bus(self):
        """Starts the session's bus. It starts the accessibility bus when something asks for it."""
        os.mkdir(self.path("run"), 0o700)
        address = "unix:path=" + self.path("bus")
        self.environment.update(
            XDG_RUNTIME_DIR=self.path("run"), LANG=self.environment.get("LANG") or "C.UTF-8", NO_AT_BRIDGE="0",
            ACCESSIBILITY_ENABLED="1", GNOME_ACCESSIBILITY="1", QT_ACCESSIBILITY="1", QT_LINUX_ACCESSIBILITY_ALWAYS_ON="1")
        if shutil.which("dbus-daemon", path=self.environment.get("PATH")) is None:
            return False
        self.environment["DBUS_SESSION_BUS_ADDRESS"] = address
        argv = ["dbus-daemon", "--session", "--nofork", "--nopidfile", "--address=" + address]
        self.start("dbus-daemon", argv)
        return True


def server_ended(_name, status):
    how = "signal %d" % os.WTERMSIG(status) if os.WIFSIGNALED(status) else "exit code %d" % os.WEXITSTATUS(status)
    raise Failure("The X server ended (%s)." % how)


def _line_of(fd, seconds):
    """Reads the first line from a descriptor, and closes it. Returns what there is at EOF or at the timeout."""
    import select
    text, deadline = b"", time.monotonic() + seconds
    while not text.endswith(b"\n"):
        if not select.select([fd], [], [], max(0, deadline - time.monotonic()))[0]:
            break
        read = os.read(fd, 64)
        if not read:
            break
        text += read
    os.close(fd)
    return text.decode("ascii", "replace").strip()
