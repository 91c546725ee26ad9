"""The steps of a record's way, for the tests that kill a relay at each of them. Without the two variables: nothing.

RELAY_FAULT=STEP:N[:SIGNAL] sends the process a signal, KILL or STOP, when it comes to that step for the N-th time.
RELAY_TRACE=FILE appends a line a step, written at once, so that it outlives the process.
"""

import os
import signal

NAMES = ("connected", "received", "judged", "committed", "settled", "retrying", "burying", "buried", "acknowledging",
         "acknowledged", "leaving")

_step, _count, _signal = (os.environ.get("RELAY_FAULT", "::").split(":") + ["KILL"])[:3]
_left = int(_count or 0)
_trace = None
if "RELAY_TRACE" in os.environ:
    _trace = os.open(os.environ["RELAY_TRACE"], os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)


def at(step, *words):
    global _left
    if _trace is not None:
        os.write(_trace, (" ".join((step,) + tuple(map(str, words))) + "\n").encode())
    if step == _step:
        _left -= 1
        if _left == 0:
            os.kill(os.getpid(), signal.SIGSTOP if _signal == "STOP" else signal.SIGKILL)
