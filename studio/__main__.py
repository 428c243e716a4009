"""`python -m studio` is `chakra-studio`."""

# The module `signal` loads others first. This one is part of the interpreter, and until it is asked Ctrl+C raises.
import _signal  # type: ignore[import-not-found]  # typeshed knows it by the name of signal alone
import atexit
import os
import sys

_RAISES = _signal.getsignal(_signal.SIGINT) is _signal.default_int_handler
if _RAISES and __name__ == "__main__":
    _signal.signal(_signal.SIGINT, _signal.SIG_DFL)


def main() -> None:
    """Run the command line. Ctrl+C ends it without a traceback at every moment, whatever it was doing.

    While modules are loaded, and once the command has ended, there is nothing to tidy up, so the system ends the
    process. In between an exception lets the command remove what it has half made.
    """
    if not _RAISES:
        # Started in the background, where Ctrl+C is meant for others.
        _run()
        return
    _signal.signal(_signal.SIGINT, _signal.SIG_DFL)
    import studio.cli  # noqa: F401 (loaded while there is nothing to tidy up)

    interrupted = False

    def interrupt(_number: int, _frame: object) -> None:
        nonlocal interrupted
        interrupted = True
        raise KeyboardInterrupt

    def ignore_ours(unraisable: "sys.UnraisableHookArgs") -> None:
        # Raised in the middle of a destructor, say; the next Ctrl+C gets through.
        if not issubclass(unraisable.exc_type, KeyboardInterrupt):
            sys.__unraisablehook__(unraisable)

    sys.unraisablehook = ignore_ours
    _signal.signal(_signal.SIGINT, interrupt)
    try:
        _run()
    except Exception:
        # A module that was half loaded, or a library that makes an error of its own of it.
        if not interrupted:
            raise
        sys.stderr.write("Aborted!\n")
        sys.exit(1)
    finally:
        _signal.signal(_signal.SIGINT, _signal.SIG_DFL)


def _run() -> None:
    from studio.cli import main as command

    status = 1

    def leave_threads() -> None:
        """End the process here if threads go on that nothing waits for, such as those that answer requests.

        Python ends such a thread when it next needs the interpreter. Where that happens inside a library of C++, the whole
        process is aborted: https://github.com/python/cpython/issues/87135, mended in Python 3.14.
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
        raise


if __name__ == "__main__":
    main()
