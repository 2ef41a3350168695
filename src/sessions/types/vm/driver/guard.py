"""The first process of a session. It forks the driver, and ends and removes everything that the driver leaves behind,
even after a crash.
"""

import ctypes
import os
import select
import shutil
import signal
import sys
import time

PR_SET_PDEATHSIG, PR_SET_CHILD_SUBREAPER = 1, 36
# How long the driver may take to end after EOF on stdin.
END_SECONDS = 0.7
# The same if it completes a recording first.
RECORDING_END_SECONDS = 10.5
RECORDING_MARKER = "recording"
KILL_ROUNDS = 100
MAX_DISPLAYS = 1000
POLLRDHUP = 0x2000

_libc = ctypes.CDLL(None)


def die_with_parent(number=signal.SIGKILL):
    _libc.prctl(PR_SET_PDEATHSIG, number)


def descendants():
    """Pids of all descendants of this process."""
    children = {}
    for name in os.listdir("/proc"):
        if name.isdigit():
            try:
                with open("/proc/%s/stat" % name, "rb") as file:
                    parent = int(file.read().rpartition(b")")[2].split()[1])
            except (OSError, IndexError, ValueError):
                continue
            children.setdefault(parent, []).append(int(name))
    found, at = [os.getpid()], 0
    while at < len(found):
        found += children.get(found[at], [])
        at += 1
    return found[1:]


def reap():
    """Reaps ended children. Returns (pid, status) of each."""
    ended = []
    while True:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return ended
        if pid == 0:
            return ended
        ended.append((pid, status))


def kill_all():
    for _ in range(KILL_ROUNDS):
        pids = descendants()
        if not pids:
            return
        for pid in pids:
            try:
                os.kill(pid, signal.SIGKILL)
            except OSError:
                pass
        time.sleep(0.002)
        reap()


def take_display(directory):
    """Reserves an unused display, with the lock file that X servers use. The lock names the guard, which outlives the
    server. Writes the display's number and the guard's pid to `directory`.
    """
    for number in range(MAX_DISPLAYS):
        lock, socket = "/tmp/.X%d-lock" % number, "/tmp/.X11-unix/X%d" % number
        try:
            file = os.open(lock, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o444)
        except OSError:
            continue
        os.write(file, b"%10d\n" % os.getpid())
        os.close(file)
        if not os.path.exists(socket):
            with open(os.path.join(directory, "display"), "w") as file:
                file.write("%d\n%d\n" % (number, os.getpid()))
            return
        os.unlink(lock)


def release_display(directory):
    """Removes the lock and the socket, in case the server could not. Only the lock's owner may use that socket."""
    try:
        with open(os.path.join(directory, "display")) as file:
            number = int(file.readline())
        if os.path.exists("/tmp/.X11-unix/X%d" % number):
            os.unlink("/tmp/.X11-unix/X%d" % number)
        os.unlink("/tmp/.X%d-lock" % number)
    except (OSError, ValueError):
        pass


def clean_up(directory):
    kill_all()
    release_display(directory)
    shutil.rmtree(directory, ignore_errors=True)


def wait_for(driver, wake, directory, stopped):
    """Waits for the driver's end, and returns its status. Kills it if the guard is stopped, or if it does not end in time
    after EOF on stdin.
    """
    poll = select.poll()
    poll.register(wake, select.POLLIN)
    # Not POLLIN: only the driver reads the requests.
    poll.register(0, POLLRDHUP)
    deadline = None
    while True:
        for pid, status in reap():
            if pid == driver:
                return status
        if stopped or deadline is not None and time.monotonic() > deadline:
            os.kill(driver, signal.SIGKILL)
        for fd, event in poll.poll(None if deadline is None else 50):
            if fd == wake:
                os.read(wake, 4096)
            else:
                poll.unregister(0)
                records = os.path.exists(os.path.join(directory, RECORDING_MARKER))
                deadline = time.monotonic() + (RECORDING_END_SECONDS if records else END_SECONDS)


def guard(directory, main):
    """Creates the directory, and runs `main(directory)` in a child. Does not return."""
    _libc.prctl(PR_SET_CHILD_SUBREAPER, 1)
    wake, waker = os.pipe()
    os.set_blocking(waker, False)
    stopped = []
    signal.signal(signal.SIGCHLD, lambda *_: None)
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        # Only a note: it may arrive before there is a driver, or when its pid is no longer the driver's.
        signal.signal(number, lambda *_: stopped.append(number))
    os.mkdir(directory, 0o700)
    take_display(directory)
    # Not earlier: the driver would inherit it.
    signal.set_wakeup_fd(waker)
    driver = os.fork()
    if driver == 0:
        try:
            signal.set_wakeup_fd(-1)
            for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGCHLD):
                signal.signal(number, signal.SIG_DFL)
            # If the guard dies, the driver cleans up itself.
            signal.signal(signal.SIGTERM, lambda *_: clean_up(directory) or os._exit(128 + signal.SIGTERM))
            die_with_parent(signal.SIGTERM)
            os.close(wake)
            os.close(waker)
            _libc.prctl(PR_SET_CHILD_SUBREAPER, 1)
            main(directory)
        except BaseException as error:
            if not isinstance(error, SystemExit):
                import traceback
                traceback.print_exc()
            sys.stderr.flush()
            os._exit(error.code if isinstance(error, SystemExit) and isinstance(error.code, int) else 1)
        os._exit(0)
    status = wait_for(driver, wake, directory, stopped)
    clean_up(directory)
    os._exit(os.WEXITSTATUS(status) if os.WIFEXITED(status) else 128 + os.WTERMSIG(status))
