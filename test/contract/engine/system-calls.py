"""Makes system calls that reach deep into a kernel, harmless where they succeed, and prints what became of each.

A line a call: its name and the name of its error, or "done". Arguments are such that a kernel which looks at them
refuses them as wrong (EINVAL, EFAULT, EBADF) where they would do harm; a filter refuses before that, with EPERM or
ENOSYS.
"""

import ctypes
import errno
import os
import socket

COLUMN = {"x86_64": 0, "aarch64": 1}[os.uname().machine]
# Numbers on x86-64 and on arm64: arch/x86/entry/syscalls/syscall_64.tbl and include/uapi/asm-generic/unistd.h of Linux.
NUMBERS = {
    "acct": (163, 89),
    "add_key": (248, 217),
    "adjtimex": (159, 171),
    "bpf": (321, 280),
    "chroot": (161, 51),
    "clock_settime": (227, 112),
    "clone": (56, 220),
    "clone3": (435, 435),
    "delete_module": (176, 106),
    "fanotify_init": (300, 262),
    "finit_module": (313, 273),
    "fsopen": (430, 430),
    "init_module": (175, 105),
    "io_uring_enter": (426, 426),
    "io_uring_register": (427, 427),
    "io_uring_setup": (425, 425),
    "ioperm": (173, None),
    "iopl": (172, None),
    "kcmp": (312, 272),
    "kexec_file_load": (320, 294),
    "kexec_load": (246, 104),
    "keyctl": (250, 219),
    "mount": (165, 40),
    "mount_setattr": (442, 442),
    "move_mount": (429, 429),
    "move_pages": (279, 239),
    "open_by_handle_at": (304, 265),
    "open_tree": (428, 428),
    "perf_event_open": (298, 241),
    "personality": (135, 92),
    "pivot_root": (155, 41),
    "quotactl": (179, 60),
    "reboot": (169, 142),
    "request_key": (249, 218),
    "setdomainname": (171, 162),
    "sethostname": (170, 161),
    "setns": (308, 268),
    "swapoff": (168, 225),
    "swapon": (167, 224),
    "syslog": (103, 116),
    "umount2": (166, 39),
    "unshare": (272, 97),
    "userfaultfd": (323, 282),
    "vhangup": (153, 58),
}
libc = ctypes.CDLL(None, use_errno=True)
libc.syscall.restype = ctypes.c_long


def call(name, *args):
    number = NUMBERS[name][COLUMN]
    if number is None:
        return
    passed = [ctypes.c_char_p(a) if isinstance(a, bytes) else ctypes.c_ulong(a & (2**64 - 1)) for a in args]
    pid = os.getpid()
    result = libc.syscall(ctypes.c_long(number), *passed)
    if os.getpid() != pid or (name.startswith("clone") and result == 0):
        os._exit(0)
    report(name, ctypes.get_errno() if result < 0 else 0)


def report(name, error):
    print(name, errno.errorcode.get(error, error) if error else "done", flush=True)


def attempt(name, action):
    try:
        action()
    except OSError as error:
        report(name, error.errno)
    else:
        report(name, 0)


NEW_USER, NEW_NS, NEW_NET = 0x10000000, 0x00020000, 0x40000000
SIGCHLD = 17
nothing = ctypes.addressof(ctypes.create_string_buffer(4096))

call("acct", b"/tmp/acct")
call("add_key", b"user", b"berth", b"x", 1, -3)
call("request_key", b"user", b"berth", 0, -3)
call("keyctl", 0, -3, 0)
call("bpf", 0, nothing, 32)
call("chroot", b"/tmp")
call("clock_settime", 0, 0)
for flags in (NEW_USER, NEW_NS, NEW_NET):
    call("unshare", flags)
call("clone", NEW_USER | SIGCHLD, 0, 0, 0, 0)
arguments = ctypes.create_string_buffer((NEW_USER).to_bytes(8, "little") + bytes(24) + SIGCHLD.to_bytes(8, "little") + bytes(24))
call("clone3", ctypes.addressof(arguments), 64)
own = os.open("/proc/self/ns/mnt", os.O_RDONLY)
call("setns", own, 0)
call("mount", b"none", b"/tmp", b"tmpfs", 0, 0)
call("umount2", b"/proc", 2)
call("pivot_root", b"/tmp", b"/tmp")
call("fsopen", b"tmpfs", 0)
call("open_tree", -100, b"/tmp", 1)
call("move_mount", -1, b"", -1, b"", 0)
call("mount_setattr", -1, b"", 0, nothing, 32)
attempt("mknod", lambda: os.mknod("/tmp/berth-disk", 0o60600, os.makedev(8, 0)))
call("open_by_handle_at", own, nothing, 0)
call("quotactl", 0, 0, 0, 0)
call("swapon", b"/tmp/none", 0)
call("swapoff", b"/tmp/none")
call("reboot", 0, 0, 0, 0)
call("kexec_load", 0, 0, 0, 1 << 31)
call("kexec_file_load", -1, -1, 0, 0, 1 << 31)
call("init_module", 0, 0, b"")
call("finit_module", -1, b"", 0)
call("delete_module", b"berth", 0)
call("ioperm", 0x80, 1, 1)
call("iopl", 3)
call("sethostname", b"other", 5)
call("setdomainname", b"other", 5)
call("syslog", 10, 0, 0)
call("vhangup")
call("fanotify_init", 0, 0)
call("perf_event_open", nothing, 0, -1, -1, 0)
call("userfaultfd", 1)
call("io_uring_setup", 1, nothing)
call("io_uring_enter", -1, 0, 0, 0, 0, 0)
call("io_uring_register", -1, 0, 0, 0)
call("personality", 0x0040000)
call("kcmp", os.getpid(), 1, 0, 0, 0)
call("move_pages", 1, 0, 0, 0, 0, 0)
attempt("socket packet", lambda: socket.socket(socket.AF_PACKET, socket.SOCK_RAW))
attempt("socket raw", lambda: socket.socket(socket.AF_INET, socket.SOCK_RAW, 1))
attempt("socket alg", lambda: socket.socket(38, socket.SOCK_SEQPACKET))
attempt("socket vsock", lambda: socket.socket(40, socket.SOCK_STREAM))
attempt("socket key", lambda: socket.socket(15, socket.SOCK_RAW, 2))
