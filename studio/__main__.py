"""`python -m studio` is `chakra-studio`."""

# The module `signal` loads others first. This one is part of the interpreter, and until it is asked Ctrl+C raises.
import _signal  # type: ignore[import-not-found]  # typeshed knows it by the name of signal alone
import atexit
import os
import sys

_RAISES = _signal.getsignal(_signal.SIGINT) is _signal.default_int_handler
if _RAISES and __name__ == "__main__":
    _signal.signal(_signal.SIGINT, _signal.SIG_DFL)


# What asks a process to end: the system, and a terminal that is closed. Windows has no SIGHUP.
_ENDING = [
    number
    for name in ("SIGTERM", "SIGHUP")
    if (number := getattr(_signal, name, None)) is not None and _signal.getsignal(number) == _signal.SIG_DFL
]
_HANDLED = [*([_signal.SIGINT] if _RAISES else ()), *_ENDING]
"""Signals that end the command. In the background Ctrl+C is meant for others, and `nohup` keeps SIGHUP away."""


def main() -> None:
    """Run the command line. Ctrl+C, SIGTERM and SIGHUP end it without a traceback at every moment, whatever it was doing.

    While modules are loaded, and once the command has ended, there is nothing to tidy up, so the system ends the
    process. In between an exception lets the command remove what it has half made.
    """
    _end_by_system()
    import studio.cli  # noqa: F401 (loaded while there is nothing to tidy up)

    came: list[int] = []

    def interrupt(number: int, _frame: object) -> None:
        came.append(number)
        raise KeyboardInterrupt

    def ignore_ours(unraisable: "sys.UnraisableHookArgs") -> None:
        # Raised in the middle of a destructor, say; the next Ctrl+C gets through.
        if not issubclass(unraisable.exc_type, KeyboardInterrupt):
            sys.__unraisablehook__(unraisable)

    sys.unraisablehook = ignore_ours
    for number in _HANDLED:
        _signal.signal(number, interrupt)
    try:
        _run(came)
    except Exception:
        # A module that was half loaded, or a library that makes an error of its own of it.
        if not came:
            raise
        sys.stderr.write("Aborted!\n")
        sys.exit(_choose_status(1, came))
    finally:
        _end_by_system()


def _end_by_system() -> None:
    """Let the system end the process where one of the signals comes."""
    for number in _HANDLED:
        _signal.signal(number, _signal.SIG_DFL)


def _choose_status(status: int, came: list[int]) -> int:
    """Return the status of a command that was ended: what shells have for SIGTERM and SIGHUP, its own after Ctrl+C."""
    return 128 + came[0] if status and came and came[0] in _ENDING else status


def _run(came: list[int]) -> None:
    """Run the command; `came` lists the signals that came meanwhile."""
    from studio.cli import main as command

    status = 1

    def leave_threads() -> None:
        """End the process here if threads go on that nothing waits for, such as those that answer requests.

        Python ends such a thread when it next needs the interpreter. Where that happens inside a library of C++, the whole
        process is aborted: https://github.com/python/cpython/issues/87135, fixed in Python 3.14.
        """
        threading = sys.modules.get("threading")
        if threading is None or len(threading.enumerate()) < 2:
            return
        for stream in (sys.stdout, sys.stderr):
            try:
                stream.flush()
            except (OSError, ValueError):
                # Nobody reads any more, or it is closed.
                continue
        os._exit(status)

    # What is registered first is done last, after all that libraries have to do at the end.
    atexit.register(leave_threads)
    try:
        command()
        status = 0
    except SystemExit as ended:
        status = ended.code if isinstance(ended.code, int) else int(ended.code is not None)
        if _choose_status(status, came) == status:
            raise
        status = _choose_status(status, came)
        sys.exit(status)


if __name__ == "__main__":
    main()
