/**
 * What python3 runs first: the standard library alone, of Python 3.8 and newer.
 *
 * It keeps its stdin and its pipes to itself and reads requests, a line of JSON
 * each: `run` with code and the channel for what that writes, or `end`. A line
 * with the nonce comes after each, and is read when the code is done. Then it
 * tells `E` or the asked tag on both streams, the result as JSON on stdout, `P`.
 *
 * Threads and output: what a thread of an earlier turn prints is dropped, as
 * what an earlier turn's processes write is.
 */
export const PYTHON_DRIVER = `
import ast, base64, io, json, linecache, os, signal, sys, threading, traceback, types
_control = os.fdopen(os.dup(0), 'rb')
os.dup2(1, 211, False); os.dup2(2, 212, False)
_null = os.open(os.devnull, os.O_RDWR)
for _fd in (0, 1, 2): os.dup2(_null, _fd)
MOST_TEXT, MOST_PLOTS, MOST_PLOT_BYTES = 256 * 1024, 16, 6 * 1024 * 1024
_turn, _answer = 0, {}
_pid = os.getpid()

def _interrupted(number, frame):
    while frame:
        if frame.f_code is _run.__code__: raise KeyboardInterrupt
        frame = frame.f_back

_start = threading.Thread.start
def _start_thread(self):
    self._berth_turn = _turn
    _start(self)
threading.Thread.start = _start_thread

class _Bytes(io.RawIOBase):
    def __init__(self, fd): self._fd = fd
    def writable(self): return True
    def fileno(self): return self._fd
    def write(self, data):
        if getattr(threading.current_thread(), '_berth_turn', _turn) == _turn: _write(self._fd, data)
        return len(data)

def _write(fd, data):
    view = memoryview(data).cast('B')
    while view: view = view[os.write(fd, view):]

def _stream(fd):
    return io.TextIOWrapper(_Bytes(fd), 'utf-8', 'backslashreplace', write_through=True)

_module = types.ModuleType('__main__')
_module.__builtins__ = __builtins__
sys.modules['__main__'] = _module
sys.argv = ['']

def _bounded(text):
    return text if len(text) <= MOST_TEXT else text[:MOST_TEXT] + '...'

def _told(text):
    return _bounded(text).encode('utf-8', 'backslashreplace').decode()

def _run(code):
    name = '<call %d>' % _turn
    linecache.cache[name] = (len(code), None, code.splitlines(True), name)
    linecache.cache.pop('<call %d>' % (_turn - 1000), None)
    tree = ast.parse(code, name)
    last = tree.body.pop() if tree.body and isinstance(tree.body[-1], ast.Expr) else None
    exec(compile(tree, name, 'exec'), _module.__dict__)
    value = last and eval(compile(ast.Expression(last.value), name, 'eval'), _module.__dict__)
    if value is not None: _module._ = value
    return {'result': None if value is None else _told(repr(value)), 'plots': _plots()}

def _error(error):
    try: text = str(error)
    except Exception: text = '<no message: str() failed>'
    trace = error.__traceback__
    while trace is not None and trace.tb_frame.f_code.co_filename == '<string>': trace = trace.tb_next
    lines = traceback.format_exception(type(error), error, trace)
    return {'name': type(error).__name__, 'value': _told(text), 'traceback': _told(''.join(lines))}

def _plots():
    pyplot = sys.modules.get('matplotlib.pyplot')
    plots, size = [], 0
    if pyplot is None: return plots
    for number in pyplot.get_fignums()[:MOST_PLOTS]:
        data = io.BytesIO()
        pyplot.figure(number).savefig(data, format='png')
        size += len(data.getvalue())
        if size > MOST_PLOT_BYTES: break
        plots.append(base64.b64encode(data.getvalue()).decode())
    pyplot.close('all')
    return plots

def _turn_of(code):
    signal.signal(signal.SIGINT, _interrupted)
    try: answer = _run(code)
    except BaseException as error: answer = {'error': _error(error)}
    if os.getpid() != _pid: os._exit(0)
    for stream in (sys.stdout, sys.stderr):
        try: stream.flush()
        except Exception: pass
    return answer

def _serve(request):
    global _turn, _answer
    out, err = [os.open(request[name], os.O_WRONLY) for name in ('stdout', 'stderr')]
    tag = request.get('tag', 'E')
    if 'code' in request:
        _turn += 1
        os.dup2(out, 1); os.dup2(err, 2)
        sys.stdout, sys.stderr = _stream(1), _stream(2)
        _answer = _turn_of(request['code'])
        for fd in (0, 1, 2): os.dup2(_null, fd)
    nonce = _control.readline().strip()
    pids = [int(name) for name in os.listdir('/proc') if name.isdigit()]
    answer = dict(_answer, pid=_pid, pids=pids)
    start, end = nonce + tag.encode() + b';', nonce + b'P;'
    _write(out, start + json.dumps(answer).encode() + end)
    _write(err, start)
    os.close(out); os.close(err)

signal.signal(signal.SIGINT, _interrupted)
while True:
    _line = _control.readline()
    if not _line: os._exit(0)
    _serve(json.loads(_line))
`;
