# Generated from berth._async by generate_sync.py. Do not edit.
"""Files of a sandbox."""

from __future__ import annotations

import functools
import io
import os
import stat
import tarfile
import tempfile
import uuid
from collections.abc import Iterator
from pathlib import Path as LocalPath
from typing import Protocol, TypedDict, Union

from berth import _convert
from berth._sync.reading import Reading
from berth._sync.subscription import Subscription
from berth._sync.transport import Transport, in_thread
from berth._retry import Pauses, is_broken
from berth.errors import AbortedError, BerthError, FileNotFoundError
from berth.types import Content, FileChange, FileInfo, Path, Unpacked
from berth.v1 import file_pb2

#: Size limit of the data in one message.
_MESSAGE_BYTES = 8 * 1024 * 1024
_CHUNK_BYTES = 1024 * 1024
_PAGE = 1000
#: An archive is kept in memory up to this size, beyond it on disk.
_SPOOL_BYTES = 16 * 1024 * 1024

Local = Union[str, "os.PathLike[str]"]


class Readable(Protocol):
    """A file opened for reading bytes, or a similar object."""

    def read(self, size: int, /) -> bytes: ...


class Writable(Protocol):
    """A file opened for writing bytes, or a similar object."""

    def write(self, data: bytes, /) -> object: ...


Source = Union[bytes, Readable]


class SandboxName(TypedDict):
    """How requests name a sandbox: its id alone may name a later one."""

    sandbox_id: str
    generation: int


class _Named(SandboxName):
    """How requests name a file and the user to act as."""

    path: str
    raw_path: bytes
    user: str


class Files:
    """The files of a sandbox. `sandbox.files`.

    A path is absolute, or relative to the sandbox's working directory; bytes if it is not UTF-8. `user` is the user
    to act as: a name or "uid[:gid]"; by default the sandbox's user.

    All methods may raise: FileNotFoundError, FileKindError for something of another kind, such as a directory,
    FilePermissionError, InvalidArgumentError for a bad path, SandboxNotFoundError, SandboxNotRunningError.
    """

    def __init__(self, transport: Transport, sandbox: SandboxName) -> None:
        self._transport = transport
        self._sandbox = sandbox

    def read(self, path: Path, *, offset: int = 0, limit: int | None = None, user: str = "") -> bytes:
        """Bytes of a file, from `offset`, at most `limit`. Default: all of it.

        Raises OffsetOutOfRangeError for an offset beyond the end.
        """
        first = file_pb2.ReadFileRequest(
            **self._named(path, user), offset=offset, limit=min(limit or _MESSAGE_BYTES, _MESSAGE_BYTES)
        )
        if limit == 0:
            return b""
        answer = self._transport.read(self._transport.stubs.files.ReadFile, first)
        if answer.end_of_file or len(answer.data) == limit:
            return answer.data
        # Start again: another file may have replaced it, and both halves must be from the same file.
        parts: list[bytes] = []
        size = 0
        for chunk in self.download_chunks(path, offset=offset, user=user):
            parts.append(chunk)
            size += len(chunk)
            if limit is not None and size >= limit:
                break
        return b"".join(parts)[:limit]

    def read_text(self, path: Path, *, user: str = "") -> str:
        """A file as UTF-8 text. Raises UnicodeDecodeError if it is not UTF-8."""
        return (self.read(path, user=user)).decode()

    def write(
        self,
        path: Path,
        data: Content,
        *,
        mode: int | None = None,
        append: bool = False,
        create_parents: bool = True,
        user: str = "",
    ) -> FileInfo:
        """Writes a file of any size, replacing any existing content: a reader sees the old content or the new.

        `append` adds to the end instead. `mode`: permission bits; by default those of the existing file, or 0o644.
        Returns the metadata of the file after the write.
        """
        content = _convert.content(data)
        if len(content) > _MESSAGE_BYTES and not append:
            return self._upload(path, pieces_of(content), len(content), mode, create_parents, user)
        if len(content) > _MESSAGE_BYTES:
            for start in range(0, len(content) - _MESSAGE_BYTES, _MESSAGE_BYTES):
                piece = content[start : start + _MESSAGE_BYTES]
                self.write(path, piece, mode=mode, append=True, create_parents=create_parents, user=user)
            content = content[(len(content) - 1) // _MESSAGE_BYTES * _MESSAGE_BYTES :]
        request = file_pb2.WriteFileRequest(
            **self._named(path, user), data=content, mode=mode, append=append, create_parents=create_parents
        )
        answer = self._transport.retried(self._transport.stubs.files.WriteFile, request)
        return self._file(path, answer.file)

    def upload(
        self,
        source: Local | Readable,
        path: Path,
        *,
        mode: int | None = None,
        create_parents: bool = True,
        user: str = "",
    ) -> FileInfo:
        """Copies a local file, or the rest of an open one, to a file in the sandbox.

        The new content replaces the old at the end, in one step: a failure keeps the old content. If a local file
        grows meanwhile, only its size at the start is copied.
        """
        if not isinstance(source, (str, os.PathLike)):
            return self._upload(path, pieces_of(source), None, mode, create_parents, user)
        # To open a pipe waits for its writer. Without a buffer, to close it does not wait for a read that goes on.
        with in_thread(lambda: LocalPath(source).open("rb", buffering=0)) as opened:
            known = os.fstat(opened.fileno())
            # A pipe has no size, and a file in /proc does not report its size.
            size = known.st_size if stat.S_ISREG(known.st_mode) and known.st_size > 0 else None
            return self._upload(path, pieces_of(opened, size), size, mode, create_parents, user)

    def download(self, path: Path, target: Local | Writable, *, user: str = "") -> int:
        """Copies a file of the sandbox to a local one, or into an open one. Returns its bytes.

        A local file appears complete or not at all; an existing one keeps its mode. A link is followed. An existing
        target that is not a file, such as a pipe or /dev/stdout, is written to.
        """
        if not isinstance(target, (str, os.PathLike)):
            return self._download(path, target, user)
        place = LocalPath(os.path.realpath(target))
        if place.exists() and not place.is_file():
            # By the given name: /dev/stdout may resolve to a pipe, which has no path.
            with in_thread(lambda: LocalPath(target).open("wb", buffering=0)) as opened:
                return self._download(path, _Whole(opened), user)
        part = place.with_name(f".{uuid.uuid4().hex[:16]}.part")
        try:
            with part.open("xb") as opened:
                if place.exists():
                    # Before anything is in it: the file may be closed to others.
                    part.chmod(stat.S_IMODE(place.stat().st_mode))
                size = self._download(path, opened, user)
            part.replace(place)
            return size
        except BaseException:
            part.unlink(missing_ok=True)
            raise

    def download_chunks(
        self, path: Path, *, offset: int = 0, user: str = ""
    ) -> Iterator[bytes]:
        """The bytes of a file, in pieces of at most 1 MiB. If the connection breaks, it continues where it stopped.

        Raises BerthError if the file changed while the connection was broken.
        """
        known: file_pb2.FileInfo | None = None
        lost: Pauses | None = None
        changed = False
        while not changed:
            request = file_pb2.DownloadFileRequest(**self._named(path, user), offset=offset)
            stream = self._transport.stream(self._transport.stubs.files.DownloadFile, request)
            try:
                while (answer := stream.read()) is not None:
                    # Old versions of gRPC let calls go on when their channel is closed.
                    self._transport.check_open()
                    if answer.HasField("header"):
                        file = answer.header.file
                        changed = known is not None and (known.size_bytes, known.modify_time) != (
                            file.size_bytes,
                            file.modify_time,
                        )
                        if changed:
                            break
                        known = file
                    elif answer.chunk:
                        lost = None
                        offset += len(answer.chunk)
                        yield answer.chunk
                if not changed:
                    return
                continue
            except BerthError as error:
                lost = lost or Pauses(self._transport.retry_for)
                wait = lost.next(error) if is_broken(error) and not self._transport.closed else None
                if wait is None:
                    raise
            finally:
                stream.cancel()
            self._transport.pause(wait)
        raise AbortedError(
            f"{path!r} changed while the connection was broken, after {offset} bytes: download it again", code="ABORTED"
        )

    def upload_dir(
        self, source: Local, path: Path = ".", *, create_parents: bool = True, user: str = ""
    ) -> Unpacked:
        """Copies the content of a local directory into one of the sandbox. Files of the same name are replaced.

        Named pipes, sockets and devices are left out.
        """
        with tempfile.SpooledTemporaryFile(_SPOOL_BYTES) as spool:
            in_thread(lambda: _pack(LocalPath(source), spool))
            spool.seek(0)
            return self.upload_archive(spool, path, create_parents=create_parents, user=user)

    def download_dir(self, path: Path, target: Local, *, user: str = "") -> None:
        """Copies the content of a directory of the sandbox into a local directory, which is created if missing.

        Nothing is written outside `target`: the sandbox's archive is not trusted (tarfile's filter "data"). Named pipes,
        sockets and devices are left out.
        """
        place = LocalPath(target)
        with tempfile.SpooledTemporaryFile(_SPOOL_BYTES) as spool:
            for chunk in self.download_archive(path, user=user):
                spool.write(chunk)
            spool.seek(0)
            in_thread(lambda: _unpack(spool, place))

    def upload_archive(
        self, source: Source, path: Path = ".", *, create_parents: bool = True, user: str = ""
    ) -> Unpacked:
        """Unpacks an uncompressed tar into a directory. Raises ArchiveRejectedError for an entry that leaves it."""
        header = file_pb2.UploadArchiveHeader(**self._named(path, user), create_parents=create_parents)
        pieces = pieces_of(source)

        def requests() -> Iterator[file_pb2.UploadArchiveRequest]:
            yield file_pb2.UploadArchiveRequest(header=header)
            for piece in pieces:
                yield file_pb2.UploadArchiveRequest(chunk=piece)

        answer = self._transport.upload(self._transport.stubs.files.UploadArchive, requests())
        return Unpacked(answer.entry_count, answer.size_bytes)

    def download_archive(self, path: Path, *, user: str = "") -> Iterator[bytes]:
        """A directory, or one file, as an uncompressed tar, in pieces. It is complete once the last has arrived."""
        request = file_pb2.DownloadArchiveRequest(**self._named(path, user))
        stream = Reading(
            self._transport,
            lambda: self._transport.stream(self._transport.stubs.files.DownloadArchive, request),
        )
        try:
            while (answer := stream.read()) is not None:
                yield answer.chunk
        finally:
            stream.cancel()

    def stat(self, path: Path, *, follow_symlink: bool = True, user: str = "") -> FileInfo:
        """The metadata of a file; its name is its absolute path."""
        request = file_pb2.StatFileRequest(**self._named(path, user), follow_symlink=follow_symlink)
        answer = self._transport.read(self._transport.stubs.files.StatFile, request)
        return _convert.file(answer.path, answer.raw_path, answer.file)

    def exists(self, path: Path, *, user: str = "") -> bool:
        """Whether something exists at the path."""
        try:
            self.stat(path, follow_symlink=False, user=user)
        except FileNotFoundError:
            return False
        return True

    def list(self, path: Path = ".", *, user: str = "") -> list[FileInfo]:
        """The entries of a directory, in byte order of their names."""
        found: list[FileInfo] = []
        request = file_pb2.ListDirectoryRequest(**self._named(path, user), page_size=_PAGE)
        while True:
            page = self._transport.read(self._transport.stubs.files.ListDirectory, request)
            found += [_convert.file(entry.name, entry.raw_name, entry.file) for entry in page.entries]
            if not page.next_page_token:
                return found
            request.page_token = page.next_page_token

    def mkdir(
        self, path: Path, *, mode: int | None = None, create_parents: bool = True, user: str = ""
    ) -> FileInfo:
        """Creates a directory. With `create_parents`, an existing one is not an error."""
        request = file_pb2.MakeDirectoryRequest(
            **self._named(path, user), mode=mode, create_parents=create_parents
        )
        answer = self._transport.retried(self._transport.stubs.files.MakeDirectory, request)
        return self._file(path, answer.file)

    def remove(
        self, path: Path, *, recursive: bool = False, allow_missing: bool = False, user: str = ""
    ) -> None:
        """Removes a file, an empty directory or, with `recursive`, a tree."""
        request = file_pb2.RemoveFileRequest(
            **self._named(path, user), recursive=recursive, allow_missing=allow_missing
        )
        self._transport.retried(self._transport.stubs.files.RemoveFile, request)

    def move(
        self,
        source: Path,
        target: Path,
        *,
        overwrite: bool = False,
        create_parents: bool = False,
        user: str = "",
    ) -> FileInfo:
        """Moves a file or directory to another path."""
        source, target = _convert.path(source), _convert.path(target)
        request = file_pb2.MoveFileRequest(
            **self._sandbox,
            user=user,
            overwrite=overwrite,
            create_parents=create_parents,
            source_path=source if isinstance(source, str) else "",
            raw_source_path=source if isinstance(source, bytes) else b"",
            target_path=target if isinstance(target, str) else "",
            raw_target_path=target if isinstance(target, bytes) else b"",
        )
        answer = self._transport.retried(self._transport.stubs.files.MoveFile, request)
        return self._file(target, answer.file)

    def watch(
        self, path: Path = ".", *, recursive: bool = False, interval: float | None = None, user: str = ""
    ) -> Subscription[FileChange]:
        """The changes in a directory, which is scanned every `interval` seconds (default 1, at least 0.1).

        Fails if the connection breaks: a new watch would not see what changed meanwhile.
        """
        request = file_pb2.WatchDirectoryRequest(
            **self._named(path, user), recursive=recursive, interval=_convert.duration(interval)
        )

        def convert(answer: file_pb2.WatchDirectoryResponse) -> FileChange | None:
            return _convert.file_change(answer.change) if answer.HasField("change") else None

        return Subscription(
            self._transport,
            # A new call would not see what changed before it.
            lambda _: self._transport.stream(
                self._transport.stubs.files.WatchDirectory, request, outlives_reads=True
            ),
            convert,
            announced=True,
            resumes=False,
        )

    def _named(self, path: Path, user: str) -> _Named:
        plain = _convert.path(path)
        return {
            **self._sandbox,
            "path": plain if isinstance(plain, str) else "",
            "raw_path": plain if isinstance(plain, bytes) else b"",
            "user": user,
        }

    def _file(self, path: Path, file: file_pb2.FileInfo) -> FileInfo:
        plain = _convert.path(path)
        raw = plain.encode() if isinstance(plain, str) else plain
        # "dir/" is the directory "dir".
        raw = raw.rstrip(b"/") or b"/"
        return _convert.file(raw.decode(errors="replace"), raw, file)

    def _upload(
        self,
        path: Path,
        pieces: Iterator[bytes],
        size: int | None,
        mode: int | None,
        create_parents: bool,
        user: str,
    ) -> FileInfo:
        header = file_pb2.UploadFileHeader(
            **self._named(path, user), size_bytes=size, mode=mode, create_parents=create_parents
        )

        def requests() -> Iterator[file_pb2.UploadFileRequest]:
            yield file_pb2.UploadFileRequest(header=header)
            for piece in pieces:
                yield file_pb2.UploadFileRequest(chunk=piece)

        answer = self._transport.upload(self._transport.stubs.files.UploadFile, requests())
        return self._file(path, answer.file)

    def _download(self, path: Path, target: Writable, user: str) -> int:
        size = 0
        for chunk in self.download_chunks(path, user=user):
            in_thread(functools.partial(target.write, chunk))
            size += len(chunk)
        return size


class _Whole:
    """Writes all of the data to a file without a buffer, which may take less at once."""

    def __init__(self, file: io.FileIO) -> None:
        self._file = file

    def write(self, data: bytes) -> None:
        left = memoryview(data)
        while left:
            left = left[self._file.write(left) :]


def pieces_of(source: Source, most: int | None = None) -> Iterator[bytes]:
    """The data to send, in pieces that fit into a message: at most `most` bytes of a readable source."""
    if isinstance(source, bytes):
        for start in range(0, len(source), _CHUNK_BYTES):
            yield source[start : start + _CHUNK_BYTES]
        return
    left = _CHUNK_BYTES if most is None else most
    while piece := in_thread(functools.partial(source.read, min(left, _CHUNK_BYTES))):
        left -= 0 if most is None else len(piece)
        yield piece


def _pack(source: LocalPath, target: tempfile.SpooledTemporaryFile[bytes]) -> None:
    with tarfile.open(fileobj=target, mode="w", format=tarfile.PAX_FORMAT) as tar:
        for entry in sorted(source.iterdir()):
            tar.add(entry, entry.name, filter=_without_special)


def _without_special(member: tarfile.TarInfo) -> tarfile.TarInfo | None:
    # The service would refuse the whole archive because of one. Devices include pipes; tarfile itself leaves out sockets.
    return None if member.isdev() else member


def _unpack(source: tempfile.SpooledTemporaryFile[bytes], target: LocalPath) -> None:
    if not hasattr(tarfile, "data_filter"):
        raise RuntimeError("this Python's tarfile has no filter for what is not trusted: update to 3.11.4")
    target.mkdir(parents=True, exist_ok=True)
    with _TarWithoutSpecial.open(fileobj=source, mode="r:") as tar:
        tar.extractall(target, filter=_data_without_special)


def _data_without_special(member: tarfile.TarInfo, target: str) -> tarfile.TarInfo | None:
    # They have no content, and the filter "data" would refuse the whole archive because of one. Devices include pipes.
    return None if member.isdev() else tarfile.data_filter(member, target)


class _TarWithoutSpecial(tarfile.TarFile):
    """Makes no pipes and devices. For a link that it cannot make, tarfile unpacks the target, which no filter has seen."""

    def makefifo(self, tarinfo: tarfile.TarInfo, targetpath: object) -> None:
        pass

    makedev = makefifo
