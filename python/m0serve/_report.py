"""What is said on stderr by the Python side: sentences of ours, and tracebacks of the application's."""

from __future__ import annotations

import asyncio
import os
import select
import sys
import traceback
from contextlib import suppress
from typing import TextIO

_OURS = os.path.dirname(os.path.abspath(__file__)) + os.sep
_ASYNCIO = os.path.dirname(os.path.abspath(asyncio.__file__)) + os.sep
#: Bytes of a character that the stream's encoding has not: `\U0001f600`.
_LONGEST_CHARACTER = 10


def say(sentence: str) -> None:
    """Writes one line of ours."""
    _write(sys.stderr, f"m0serve: {sentence}\n")


def say_plain(line: str) -> None:
    """Writes a line that needs no name in front of it."""
    _write(sys.stderr, f"{line}\n")


def answer(text: str) -> None:
    """Writes what was asked for to stdout. Whoever reads it (a pager, `head`) may have had enough: that is no error."""
    try:
        print(text, flush=True)
    except BrokenPipeError:
        # What is still buffered has to go somewhere, or the interpreter complains of it at its end.
        null = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, sys.stdout.fileno())
        os.close(null)


def show(error: BaseException) -> None:
    """Writes the application's traceback: every frame of it, and none of ours or of the import machinery's."""
    try:
        lines = list(_trimmed(error).format())
    except Exception as why:
        # An error may have properties of the application's for what Python asks it; its frames are Python's own.
        frames = traceback.format_tb(error.__traceback__)
        lines = [*frames, f"{type(error).__name__}, of which no more can be shown: {type(why).__name__}: {why}\n"]
    _write(sys.stderr, "".join(lines))


def hide_machinery(error: BaseException) -> None:
    """Cuts the frames of ours and of asyncio from the start of an error's traceback, for whoever prints it later."""
    trace = error.__traceback__
    while trace is not None and trace.tb_frame.f_code.co_filename.startswith((_OURS, _ASYNCIO)):
        trace = trace.tb_next
    if trace is not None:
        error.__traceback__ = trace


def flush() -> None:
    """Hands on what Python still buffers, before an end that would lose it."""
    for stream in (sys.stdout, sys.stderr):
        if stream is not None and _takes_bytes(stream):
            with suppress(OSError, ValueError):
                stream.flush()


def _trimmed(error: BaseException) -> traceback.TracebackException:
    whole = traceback.TracebackException.from_exception(error)
    waiting = [whole]
    seen: set[int] = set()
    while waiting:
        part = waiting.pop()
        if id(part) in seen:
            continue
        seen.add(id(part))
        frames = [frame for frame in part.stack or () if not _is_ours(frame.filename)]
        # Without any frame of the application's own (a syntax error in its module) the bare error says it all.
        part.stack = traceback.StackSummary.from_list(frames) if frames else None  # type: ignore[assignment]
        waiting += [other for other in (part.__cause__, part.__context__, *(part.exceptions or ())) if other]
    return whole


def _is_ours(filename: str) -> bool:
    return filename.startswith((_OURS, "<frozen importlib")) or filename.endswith(f"importlib{os.sep}__init__.py")


def _write(stream: TextIO | None, text: str) -> None:
    # A closed stderr has nobody to tell; one whose reader does not read must not hold a drain up (R11). A pipe that
    # takes bytes takes so many at once, however the text is encoded, without waiting: a longer text goes in pieces.
    most = select.PIPE_BUF // (1 if text.isascii() else _LONGEST_CHARACTER)
    for start in range(0, len(text), most):
        if stream is None or not _takes_bytes(stream):
            return
        # RuntimeError: a signal came while the application was writing to the same stream.
        with suppress(OSError, ValueError, RuntimeError):
            stream.write(text[start : start + most])
            stream.flush()


def _takes_bytes(stream: TextIO) -> bool:
    try:
        descriptor = stream.fileno()
        poll = select.poll()
        poll.register(descriptor, select.POLLOUT)
        return bool(poll.poll(0))
    except (AttributeError, OSError, ValueError):
        return True  # not a descriptor: an object of a test or a notebook
