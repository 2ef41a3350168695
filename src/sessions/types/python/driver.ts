import { ATOMIC_BYTES } from "../execution.ts";

/** Characters of a result, and of each part of an error; what is longer ends in {@link CUT} instead. */
export const MAX_TEXT = 256 * 1024;
export const CUT = "...";

/**
 * The first code that python3 runs. Uses only the standard library, of Python 3.8 and newer.
 *
 * It keeps its stdin and its pipes to itself and reads requests, one line of JSON each: `run`, with the code and the
 * channel for its output, or `end`. After each comes a line with the nonce, which is read when the code is done. Then
 * it prints `E` or the given tag on both streams, the result as JSON on stdout, in parts, and `P`.
 *
 * Threads and output: what a thread of an earlier execution prints is dropped, like the output of an earlier
 * execution's processes. Each execution prints to its own descriptors, which lead nowhere once it is over. So a thread
 * in the middle of `print` does not write into the next execution. `sys.stdout` and `sys.stderr` are two streams that
 * live as long as the interpreter and cannot be closed: CPython crashes if one is replaced while a thread is in
 * `print`. If code replaces one, the next execution gets the original back, and the replacement is kept alive for a
 * while.
 *
 * Signal handlers are called through a guard. It drops exceptions that they raise outside an execution, because those
 * would end the interpreter. A forked child ends with the exit code of a program but runs no exit handlers: they belong
 * to the interpreter, and those of multiprocessing would end its pools.
 *
 * Code may use `await` outside of functions. It then runs in an event loop of the interpreter, which stands still
 * between executions: tasks that are left behind go on in the next execution that awaits something.
 *
 * The driver has its own references to builtins and to what it calls, so that code that replaces them does not break
 * it. A builtin that was deleted or replaced by something that cannot be called is restored after the execution.
 */
export const PYTHON_DRIVER = `
import _signal, ast, base64, builtins, collections, io, json, os, signal, sys, threading, traceback, types
_builtins = {name: value for name, value in vars(builtins).items() if callable(value)}
globals().update((name, value) for name, value in _builtins.items() if name[0] != '_')
from ast import Expr, Expression, parse, PyCF_ALLOW_TOP_LEVEL_AWAIT
from base64 import b64encode
from contextvars import copy_context
from io import StringIO
from json.encoder import encode_basestring_ascii as _quoted
from linecache import cache as _lines
from os import _exit, close as _close, dup2, getpid, listdir, open as _open, write as _os_write, O_WRONLY
from signal import SIGINT
from threading import current_thread
from traceback import format_exception
from warnings import catch_warnings, simplefilter
_scan = json.JSONDecoder().scan_once
_own, _parse_code = globals(), parse.__code__
_name_of = type.__dict__['__name__'].__get__
_control = os.fdopen(os.dup(0), 'rb')
dup2(1, 211, False); dup2(2, 212, False)
_null = os.open(os.devnull, os.O_RDWR)
for _fd in (0, 1, 2): dup2(_null, _fd)
MAX_TEXT, MAX_PLOTS, MAX_PLOT_BYTES, MAX_REPLACED = ${MAX_TEXT}, 16, 6 * 1024 * 1024, 16
TARGETS = 16
# Before code can open so many files that it gets these.
for _fd in range(213, 213 + 2 * TARGETS): dup2(_null, _fd, False)
PART = ${ATOMIC_BYTES - 100}
CO_COROUTINE = 128
_execution, _answer, _loop = 0, {}, None
_pid = getpid()

def _is_running(frame):
    while frame:
        if frame.f_code is _run.__code__: return True
        frame = frame.f_back
    return False

def _interrupted(number, frame):
    if _is_running(frame): raise KeyboardInterrupt

_set_handler, _handler_of = _signal.signal, _signal.getsignal
def _guarded(handler):
    if not callable(handler): return handler
    def _guard(number, frame):
        if _is_running(frame): return handler(number, frame)
        try: handler(number, frame)
        except BaseException: pass
    _guard._handler = handler
    return _guard
def _unguarded(handler):
    return getattr(handler, '_handler', handler)
_signal.signal = lambda number, handler: _unguarded(_set_handler(number, _guarded(handler)))
_signal.getsignal = lambda number: _unguarded(_handler_of(number))

_start = threading.Thread.start
def _start_thread(self):
    self._berth_execution = _execution
    _start(self)
threading.Thread.start = _start_thread

def _target(execution, fd):
    return 211 + execution % TARGETS * 2 + fd + 1

class _Bytes(io.RawIOBase):
    def __init__(self, fd): self._fd = fd
    def writable(self): return True
    def fileno(self): return self._fd
    def close(self): pass
    def write(self, data):
        execution = getattr(current_thread(), '_berth_execution', _execution)
        if execution == _execution: _write(_target(execution, self._fd), data)
        return len(data)

class _Stream(io.TextIOWrapper):
    def __init__(self, fd):
        super().__init__(_Bytes(fd), 'utf-8', 'backslashreplace', write_through=True)
    def detach(self): return self.buffer

def _write(fd, data):
    view = memoryview(data).cast('B')
    while view: view = view[_os_write(fd, view):]

_streams = {'stdout': _Stream(1), 'stderr': _Stream(2)}
sys.stdout, sys.stderr = _streams.values()
_sys = vars(sys)
_replaced = collections.deque(maxlen=MAX_REPLACED)

def _own_streams():
    for name, stream in _streams.items():
        if _sys.get(name) is not stream:
            _replaced.append(_sys.get(name))
            _sys[name] = stream
    stdin = _sys.get('stdin')
    # exit() closes it. One that code put there instead may have no such attribute, or any other value.
    try: closed = stdin.closed is True
    except BaseException: closed = stdin is None
    if closed: _sys['stdin'] = open(0, closefd=False)

def _usable_builtins():
    for name, value in _builtins.items():
        if not callable(getattr(builtins, name, None)): setattr(builtins, name, value)

_module = types.ModuleType('__main__')
sys.modules['__main__'] = _module
sys.argv = ['']

def _bounded(text):
    return text if len(text) <= MAX_TEXT else text[:MAX_TEXT] + '${CUT}'

def _told(text):
    return _bounded(text).encode('utf-8', 'backslashreplace').decode()

# Returns an error instead of raising it: what comes before wrong code runs.
def _compiled(tree, name, mode):
    try: return compile(tree, name, mode)
    except SyntaxError as error: first = error
    # Not at once: older versions would accept await in a function that is not async.
    try: code = compile(tree, name, mode, PyCF_ALLOW_TOP_LEVEL_AWAIT)
    except SyntaxError as error: return error
    return code if _awaits(code) else first

def _awaits(code):
    return not isinstance(code, SyntaxError) and code.co_flags & CO_COROUTINE

def _evaluated(code):
    if isinstance(code, SyntaxError): raise code
    return eval(code, _module.__dict__)

def _current_loop(asyncio):
    # Tasks that were created in it must not wait for another. If there is none, some versions make one and warn.
    with catch_warnings():
        simplefilter('ignore')
        try: loop = asyncio.get_event_loop()
        except RuntimeError: return asyncio.new_event_loop()
    return loop if _is_free(loop) else asyncio.new_event_loop()

# A loop that a thread runs cannot run here too, and goes on with its tasks by itself.
def _is_free(loop): return not (loop.is_closed() or loop.is_running())

def _awaited(codes):
    global _loop
    import asyncio
    if _loop is None or not _is_free(_loop): _loop = _current_loop(asyncio)
    # asyncio.run() leaves none.
    asyncio.set_event_loop(_loop)
    context, failure = {}, None
    async def run():
        nonlocal context
        try:
            for code in codes:
                value = _evaluated(code)
                if _awaits(code): value = await value
            return value
        finally: context = copy_context()
    task = _loop.create_task(run())
    task.add_done_callback(lambda _: _loop.stop())
    try: _finish(task)
    except BaseException as error:
        # An interrupt hits the loop, not the task. Its traceback is to show what was awaited.
        failure, trace = error, error.__traceback__
        # Each interrupt cancels it again. Code that nothing ends must not go on in the next execution. In a closed loop
        # nothing goes on.
        while not (task.done() or _loop.is_closed()):
            try:
                task.cancel()
                _finish(task)
            except BaseException: pass
        try: task.result()
        except BaseException as end: trace = end.__traceback__
    # The task has its own context. What code sets there is to stay, as without await.
    for variable, value in context.items(): variable.set(value)
    if failure is not None: raise failure.with_traceback(_from_code(trace))
    # As the loop would raise it, the traceback would begin with the loop's frames.
    return task.result()

def _from_code(trace):
    start = trace
    while start is not None and not start.tb_frame.f_code.co_filename.startswith('<call '): start = start.tb_next
    return start or trace

def _finish(task):
    while not task.done(): _loop.run_forever()

def _run(code):
    # As at the start of a file.
    if code[:1] == '\\ufeff': code = code[1:]
    name = '<call %d>' % _execution
    _module.__builtins__ = builtins
    # Python's lines. splitlines() would also split at a form feed, or at U+2028 in a string.
    _lines[name] = (len(code), None, StringIO(code, None).readlines(), name)
    _lines.pop('<call %d>' % (_execution - 1000), None)
    tree = parse(code, name)
    last = tree.body.pop() if tree.body and isinstance(tree.body[-1], Expr) else None
    parts = [(tree, 'exec')] + ([(Expression(last.value), 'eval')] if last else [])
    codes = (_compiled(part, name, mode) for part, mode in parts)
    # All of it runs in the loop if any of it awaits. Other code is compiled part by part, as it runs.
    if 'await' in code or 'async' in code: codes = list(codes)
    if isinstance(codes, list) and any(map(_awaits, codes)): value = _awaited(codes)
    else:
        for part in codes: value = _evaluated(part)
    if value is not None: _module._ = value
    return {'result': None if value is None else _told(repr(value)), 'plots': _plots()}

# Code that exec() runs has the driver's file name as well.
def _is_own(frame):
    return frame.f_globals is _own or frame.f_code is _parse_code

def _error(error):
    name = _told(_name_of(type(error)))
    try: text = str(error)
    except BaseException: text = '<no message: str() failed>'
    trace = error.__traceback__
    while trace is not None and _is_own(trace.tb_frame): trace = trace.tb_next
    last = trace
    while last is not None:
        if last.tb_next is not None and last.tb_next.tb_frame.f_code is _interrupted.__code__: last.tb_next = None
        last = last.tb_next
    try: lines = format_exception(type(error), error, trace)
    except BaseException: lines = [name, ': ', text]
    return {'name': name, 'value': _told(text), 'traceback': _told(''.join(lines))}

def _plots():
    pyplot = sys.modules.get('matplotlib.pyplot')
    plots, size = [], 0
    if pyplot is None: return plots
    try:
        for number in pyplot.get_fignums()[:MAX_PLOTS]:
            data = io.BytesIO()
            pyplot.figure(number).savefig(data, format='png')
            size += len(data.getvalue())
            if size > MAX_PLOT_BYTES: break
            plots.append(b64encode(data.getvalue()).decode())
    # One that cannot be drawn would fail each later execution too.
    finally: pyplot.close('all')
    return plots

def _leave_fork(error):
    code = error.code if isinstance(error, SystemExit) else 1
    try:
        if not isinstance(error, SystemExit): _sys['stderr'].write(_error(error)['traceback'])
        elif not isinstance(code, (int, type(None))): _sys['stderr'].write(str(code) + '\\n')
        for name in _streams: _sys[name].flush()
    finally:
        _exit(0 if code is None else code & 255 if isinstance(code, int) else 1)

def _execution_of(code):
    _set_handler(SIGINT, _interrupted)
    _own_streams()
    try: answer = _run(code)
    except BaseException as error:
        if getpid() != _pid: _leave_fork(error)
        _usable_builtins()
        answer = {'error': _error(error)}
    if getpid() != _pid: _leave_fork(SystemExit())
    _usable_builtins()
    for name in _streams:
        try: _sys[name].flush()
        except BaseException: pass
    return answer

def _encoded(value):
    if value is None: return 'null'
    if isinstance(value, str): return _quoted(value)
    if isinstance(value, list): return '[' + ','.join(map(_encoded, value)) + ']'
    if isinstance(value, dict):
        return '{' + ','.join(_quoted(key) + ':' + _encoded(item) for key, item in value.items()) + '}'
    return str(value)

def _serve(request):
    global _execution, _answer
    out, err = [_open(request[name], O_WRONLY) for name in _streams]
    tag = request.get('tag', 'E')
    if 'code' in request:
        _execution += 1
        for fd, pipe in ((1, out), (2, err)):
            dup2(pipe, fd); dup2(pipe, _target(_execution, fd), False)
        _answer = _execution_of(request['code'])
        for fd in (0, 1, 2): dup2(_null, fd)
        for fd in (1, 2): dup2(_null, _target(_execution, fd), False)
    nonce = _control.readline().strip()
    pids = [int(name) for name in listdir('/proc') if name.isdigit()]
    answer = dict(_answer, pid=_pid, pids=pids)
    start, text = nonce + tag.encode() + b';', _encoded(answer).encode()
    _write(out, start)
    for at in range(0, len(text), PART): _write(out, nonce + b'D;' + text[at:at + PART] + nonce + b'G;')
    _write(out, nonce + b'P;')
    _write(err, start)
    _close(out); _close(err)

_set_handler(SIGINT, _interrupted)
while True:
    _line = _control.readline()
    if not _line: _exit(0)
    _serve(_scan(_line.decode(), 0)[0])
`;
