"""The demo's job: draws the Mandelbrot set, row by row as they are computed."""

import os
import platform
import resource
import socket
import time

COLUMNS, ROWS, SAMPLES, LIMIT = 76, 22, 5, 3000
SHADES = " .:-=+*#%@"


def escape_time(point: complex) -> int:
    value = 0j
    for step in range(LIMIT):
        value = value * value + point
        if value.real * value.real + value.imag * value.imag > 4:
            return step
    return LIMIT


def cell(row: int, column: int) -> str:
    """One character: the mean of several points within it."""
    total = 0
    for i in range(SAMPLES):
        for j in range(SAMPLES):
            x = -2.2 + 3.2 * (column + i / SAMPLES) / COLUMNS
            y = -1.2 + 2.4 * (row + j / SAMPLES) / ROWS
            total += min(escape_time(complex(x, y)), 60)
    share = total / (60 * SAMPLES * SAMPLES)
    return SHADES[min(int(share**0.6 * len(SHADES)), len(SHADES) - 1)]


def network() -> str:
    try:
        socket.create_connection(("192.0.2.1", 80), timeout=1).close()
        return "there"
    except OSError as error:
        return f"none ({error.strerror or error})"


started = time.monotonic()
for row in range(ROWS):
    print("  " + "".join(cell(row, column) for column in range(COLUMNS)), flush=True)
print()
print(f"  Python {platform.python_version()}, user {os.getuid()}, in {os.getcwd()}, on {platform.system()} {platform.release()}")
print(f"  network: {network()}")
print(f"  {COLUMNS * ROWS * SAMPLES**2:,} points in {time.monotonic() - started:.1f} s, CPU {resource.getrusage(resource.RUSAGE_SELF).ru_utime:.1f} s")
