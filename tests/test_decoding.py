"""Decoders that many threads can share from the first moment on."""

from __future__ import annotations

import subprocess
import sys
import textwrap

import pytest

# In a process of its own: where it goes wrong there is no exception, the process is gone.
PROGRAM = textwrap.dedent(
    """
    import dataclasses, sys, threading
    from studio.decoding import convert_value, build_decoder
    sys.setswitchinterval(1e-6)
    for turn in range(200):
        inner = dataclasses.make_dataclass("Inner", [(f"a{i}", dict[str, int] | None, None) for i in range(12)])
        outer = dataclasses.make_dataclass("Outer", [("x", inner), ("y", list[inner]), ("z", tuple[inner, ...])])
        together, found = threading.Barrier(4), []
        def decode(at):
            together.wait()
            if at % 2:
                made = build_decoder(outer)(b'{"x": {"a1": {"q": 1}}, "y": [{"a2": null}], "z": []}')
            else:
                made = convert_value({"x": {"a1": {"q": 1}}, "y": [{"a2": None}], "z": []}, outer)
            found.append(made.x.a1)
        threads = [threading.Thread(target=decode, args=(at,)) for at in range(4)]
        [one.start() for one in threads]
        [one.join() for one in threads]
        assert found == [{"q": 1}] * 4
    """
)


@pytest.mark.integration
def test_threads_that_meet_in_the_first_use_of_a_type_do_no_harm():
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
