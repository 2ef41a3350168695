"""The recording of a session: a video of the screen, and a timeline of its calls with pictures."""

import collections
import json
import os
import re
import select
import signal
import time

import guard
from errors import Failure

FRAMES_A_SECOND = 10
# 250 MB per hour if the screen changes all the time. Beyond this rate, frames are dropped.
BITS_A_SECOND = "560000"
BUFFER_BITS = "2240000"
SECONDS_A_KEY_FRAME = 30
MAX_VIDEO_BYTES = 2 << 30
MAX_TIMELINE_BYTES = 256 << 20
MAX_PICTURES = 5_000
MAX_PICTURE_BYTES = 2 << 30
# A recorder that lacks processor time may start late, and complete its video late.
START_SECONDS, STOP_SECONDS = 40, 10
# By then programs have usually drawn what a call caused. The next call does not wait for it.
SETTLE_SECONDS = 0.15
SAID_BYTES = 8_192
# Calls have priority over the recording.
NICE = 5


class Recorder:
    """Writes into a directory that may already have a recording of the session; that continues in another video. Only
    the start can fail: the reason of any later problem is in `stopped`.
    """

    def __init__(self, processes, screen, directory):
        self._processes, self._screen = processes, screen
        self._directory = directory
        self._picture = self._waiting = None
        self._shown = None
        self._last_start = 0
        self._said = b""
        self._log = None
        self._ending = False
        self.stopped = None
        try:
            os.makedirs(directory, exist_ok=True)
            self._count_pictures()
            self._timeline = os.open(self._path("timeline.jsonl"), os.O_RDWR | os.O_APPEND | os.O_CREAT, 0o644)
            self._start_line()
            self._video = self._new_video()
        except OSError as error:
            raise Failure("the recording cannot be written into %s: %s" % (directory, error.strerror))

    def _path(self, name):
        return os.path.join(self._directory, name)

    def _count_pictures(self):
        self._number = self._pictures = self._picture_bytes = 0
        for entry in os.scandir(self._directory):
            if entry.name.endswith(".png"):
                number = entry.name.partition("-")[0]
                self._number = max(self._number, int(number) if number.isdecimal() else 0)
                self._pictures += 1
                self._picture_bytes += entry.stat(follow_symlinks=False).st_size

    def _start_line(self):
        """Completes a line that a lost driver left unfinished."""
        self._timeline_bytes = os.fstat(self._timeline).st_size
        if self._timeline_bytes and os.pread(self._timeline, 1, self._timeline_bytes - 1) != b"\n":
            os.write(self._timeline, b"\n")

    def _new_video(self):
        for number in range(1, 1_000):
            name = "video.webm" if number == 1 else "video-%d.webm" % number
            try:
                os.close(os.open(self._path(name), os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o644))
                return name
            except FileExistsError:
                continue
        raise OSError(0, "it has 999 videos", self._directory)

    def start(self, display):
        """Starts the video. Returns when its first frame is recorded. @throws Failure."""
        self._log, log = os.pipe()
        argv = ["ffmpeg", "-hide_banner", "-nostdin", "-nostats", "-loglevel", "info", "-y",
                "-f", "x11grab", "-framerate", str(FRAMES_A_SECOND), "-draw_mouse", "1",
                "-video_size", "%dx%d" % (self._screen.width, self._screen.height), "-i", display,
                "-an", "-c:v", "libvpx", "-pix_fmt", "yuv420p", "-deadline", "realtime", "-cpu-used", "8", "-threads", "1",
                "-static-thresh", "100", "-g", str(SECONDS_A_KEY_FRAME * FRAMES_A_SECOND), "-qmin", "10", "-qmax", "63",
                "-b:v", BITS_A_SECOND, "-minrate", BITS_A_SECOND, "-maxrate", BITS_A_SECOND, "-bufsize", BUFFER_BITS,
                "-drop-threshold", "30", "-fs", str(MAX_VIDEO_BYTES),
                # Makes the file playable however the recording ends.
                "-cluster_time_limit", "1000", "-flush_packets", "1", "-f", "webm", "file:" + self._path(self._video)]
        try:
            # Makes the guard wait until the video is complete.
            os.close(os.open(self._processes.path(guard.RECORDING_MARKER), os.O_WRONLY | os.O_CREAT, 0o600))
            self._pid = self._processes.start("ffmpeg", argv, self._ended, niceness=NICE, stderr=log).pid
        finally:
            os.close(log)
        os.set_blocking(self._log, False)
        deadline = time.monotonic() + START_SECONDS
        while (began := re.search(rb", start: (\d{1,12}\.\d+)", self._said)) is None:
            if not self._hear(deadline):
                raise Failure("ffmpeg did not start: %s" % (self._last_words() or "it said nothing within %d s" % START_SECONDS))
        self._began = float(began[1])

    @property
    def log(self):
        """The descriptor with ffmpeg's messages. None once it has ended."""
        return self._log

    def _hear(self, deadline):
        """Reads ffmpeg's messages, up to a deadline. Returns whether there may be more."""
        if not select.select([self._log], [], [], max(0, deadline - time.monotonic()))[0]:
            return False
        return self.read_log()

    def read_log(self):
        read = os.read(self._log, 4096)
        self._said = (self._said + read)[-SAID_BYTES:]
        return bool(read)

    def _last_words(self):
        lines = collections.deque(self._said.decode("utf-8", "replace").strip().splitlines(), 3)
        return "; ".join(line.strip() for line in lines)[-800:]

    def _ended(self, _name, status):
        if self._ending:
            return
        if os.WIFSIGNALED(status):
            why = "ffmpeg ended by signal %d" % os.WTERMSIG(status)
        elif status == 0:
            why = "the video reached its limit of %d MiB" % (MAX_VIDEO_BYTES >> 20)
        else:
            while self._hear(0):
                pass
            why = "ffmpeg ended: %s" % self._last_words()
        self._stop(why)

    def _stop(self, why):
        if self.stopped is None:
            self.stopped = why
            self._write({"time": _iso(time.time()), "recording": "stopped", "reason": why})

    @property
    def due(self):
        """When flush() must be called, in monotonic seconds. None: not needed."""
        return self._waiting and self._waiting[0]

    def show(self, png):
        """Keeps the picture that the current call returns, for its line in the timeline."""
        self._shown = png

    def note(self, tool, duration_ms, **call):
        """Adds an ended call."""
        self.flush()
        # The start is computed from when the note arrives, which may be late. The max keeps the calls in order.
        at = self._last_start = max(self._last_start, time.time() - duration_ms / 1000)
        line = {"time": _iso(at), "seconds": round(at - self._began, 3), "video": self._video, "tool": tool, **call,
                "duration_ms": duration_ms}
        if self._shown is not None:
            self._finish_line(line, self._shown)
            self._shown = None
        else:
            self._waiting = (time.monotonic() + SETTLE_SECONDS, line)

    def flush(self, draws=True):
        """Takes the picture for the last call, and writes its line. @param draws whether the screen still exists."""
        if self._waiting is not None:
            _, line = self._waiting
            self._waiting = None
            try:
                png = self._screen.picture() if draws else None
            except OSError:
                png = None
            self._finish_line(line, png)

    def _finish_line(self, line, png):
        name = png and self._keep(line["tool"], png)
        line["screenshot"] = name
        if png and name is None:
            line["screenshot_omitted"] = "a recording keeps at most %d pictures and %d MiB of them, and its disk may be full" % (
                MAX_PICTURES, MAX_PICTURE_BYTES >> 20)
        if self.stopped is not None:
            line["recording"] = "stopped"
        self._write(line)

    def _keep(self, tool, png):
        """Writes a picture and returns its name. Reuses the previous file if the picture is the same. None if it cannot
        be kept.
        """
        if self._picture is not None and self._picture[0] == png:
            return self._picture[1]
        if self._pictures >= MAX_PICTURES or self._picture_bytes + len(png) > MAX_PICTURE_BYTES:
            return None
        self._number += 1
        name = "%04d-%s.png" % (self._number, tool)
        try:
            with open(self._path(name), "wb") as file:
                file.write(png)
        except OSError as error:
            self._stop("%s cannot be written: %s" % (name, error.strerror))
            _remove(self._path(name))
            return None
        self._pictures += 1
        self._picture_bytes += len(png)
        self._picture = (png, name)
        return name

    def _write(self, line):
        if self._timeline is None:
            return
        text = json.dumps(line, ensure_ascii=False).encode("utf-8", "replace") + b"\n"
        self._timeline_bytes += len(text)
        try:
            if self._timeline_bytes > MAX_TIMELINE_BYTES:
                raise OSError(0, "it reached its limit of %d MiB" % (MAX_TIMELINE_BYTES >> 20))
            if os.write(self._timeline, text) < len(text):
                raise OSError(0, "its disk is full")
        except OSError as error:
            os.close(self._timeline)
            self._timeline = None
            self.stopped = self.stopped or "the timeline cannot be written: %s" % error.strerror

    def finish(self, draws=True):
        """Completes all files. Takes no longer than STOP_SECONDS."""
        self._ending = True
        if self._pid in self._processes.running:
            try:
                os.kill(self._pid, signal.SIGINT)
            except ProcessLookupError:
                pass
        self.flush(draws)
        deadline = time.monotonic() + STOP_SECONDS
        while self._hear(deadline):
            pass


def _remove(path):
    try:
        os.unlink(path)
    except OSError:
        pass


def _iso(seconds):
    return time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(seconds)) + ".%03dZ" % (seconds % 1 * 1000)
