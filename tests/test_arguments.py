"""Errors of functions that are taken from `studio` speak of their arguments, those of the command line of options."""

from __future__ import annotations

import contextlib
import inspect
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

import studio
from studio.arguments import map_options, replace_options
from studio.cli import main
from studio.et.job import read
from studio.generation.llm import generate


def refused(call: Callable[[], Any]) -> studio.StudioError:
    with pytest.raises(studio.StudioError) as caught:
        call()
    return caught.value


@pytest.mark.parametrize(
    ("call", "message", "hint"),
    [
        (lambda: studio.generate("llama3-8b", ranks=8, tp=3), "tp is 3, which does", "2 or 4"),
        (
            lambda: studio.generate("llama3-8b", ranks=8, tp=8, sequence=100),
            "sequence is 100, which tp=8 does not divide.",
            "sequence=96 or 104; or sequence_parallel=False.",
        ),
        (
            lambda: studio.generate("llama3-8b", ranks=8, zero=3, grad_overlap=False),
            "grad_overlap=False is given, but zero=3 sums",
            "use zero=0, 1 or 2.",
        ),
        (
            lambda: studio.generate("llama", ranks=8),
            "model is 'llama'; allowed",
            "The nearest is llama3-8b.",
        ),
        (
            lambda: studio.generate_inference("llama3-8b", ranks=8, phase="x"),
            "phase is x; allowed: prefill, decode",
            "",
        ),
        (lambda: studio.plan("llama3-8b", ranks=8), "Neither gpu nor preset is given.", 'gpu="h100"'),
        (
            lambda: studio.preset("hgx-h100", settings="bandwidth"),
            "settings 'bandwidth' is no setting",
            "bandwidth[1]=50",
        ),
        (
            lambda: studio.retarget(studio.read(studio.sample_path("transformer_8r")), "h1000"),
            "gpu is 'h1000'; allowed",
            "The nearest is h100.",
        ),
        (
            lambda: studio.read(studio.sample_path("transformer_8r"), ranks={"no.et": 3}),
            'ranks={"no.et": 3}: no such file among those opened.',
            "",
        ),
    ],
)
def test_an_error_of_the_library_names_arguments(call: Callable[[], Any], message: str, hint: str) -> None:
    error = refused(call)
    assert message in error.message
    assert hint in error.hint
    assert "--" not in str(error)
    assert error.args == (error.message,)


def test_the_command_line_names_options() -> None:
    """The same function, called by the command, says what can be typed there."""
    error = refused(lambda: generate("llama3-8b", ranks=8, tp=8, sequence=100))
    assert "--seq is 100, which --tp 8 does not divide." in error.message
    said = CliRunner().invoke(
        main,
        ["generate", "llm", "--model", "llama3-8b", "--ranks", "8", "--tp", "8", "--seq", "100", "-o", "x"],
    )
    assert "--seq is 100, which --tp 8 does not divide." in said.output


def test_a_workload_without_npus_says_which_argument_tells_them(tmp_path) -> None:
    file = tmp_path / "data.txt"
    file.write_text("DATA\n1\nlayer -1 1 NONE 0 1 NONE 0 1 ALLREDUCE 8 1\n")
    assert refused(lambda: studio.read(file)).hint == "Give npus=NUMBER."
    assert refused(lambda: read(file)).hint == "Give --npus NUMBER."


def test_options_of_other_programs_and_without_an_argument_stay() -> None:
    known = map_options("read", read)
    for words in (
        "Record with rocprofv3 --sys-trace --output-format json.",
        "Use chakra-studio read --npus 8 in a shell.",
        "Choose another disk with --workspace DIR.",
    ):
        assert replace_options(words, known) == words
    assert replace_options("Run rocprofv3 once. Give --npus 8.", known) == "Run rocprofv3 once. Give npus=8."


def test_what_belongs_to_a_command_goes_with_its_option() -> None:
    words = "--limit-memory of the command sql allows more memory."
    assert replace_options(words, {"limit-memory": "memory_bytes"}) == "memory_bytes allows more memory."
    assert replace_options(words, {}) == words


def test_a_function_stays_itself() -> None:
    """It is the same each time it is taken, other processes get it, and it tells its arguments."""
    assert studio.read is studio.read
    assert pickle.loads(pickle.dumps(studio.read)) is studio.read
    assert inspect.signature(studio.read) == inspect.signature(read)
    assert inspect.unwrap(studio.read) is read
    assert studio.read.__doc__ == read.__doc__


def test_the_key_of_an_error_stays() -> None:
    error = refused(lambda: studio.generate("llama3-8b", ranks=8, tp=3))
    assert isinstance(error, studio.ConfigError)
    assert error.key == "tp"


@pytest.mark.parametrize(
    ("call", "message", "hint"),
    [
        (lambda _: studio.examine("traces/"), "examine() takes a Trace as trace, not 'traces/'.", "Read it first: studio.read('traces/')."),
        (lambda _: studio.to_pandas(None), "to_pandas() takes a Trace as trace, not None.", "studio.read(paths) returns a Trace."),
        (lambda trace: studio.simulate(trace, "hgx-h100-8"), "takes a SystemConfig or a preset as config", "studio.preset('hgx-h100-8')."),
        (studio.doubts_of, "takes a result of studio.simulate as result, not a Trace.", "studio.simulate(trace, system)"),
        (lambda trace: studio.compare(trace, 5), "as b, not 5.", ""),
        (lambda trace: studio.query(trace, "select 1"), "takes a text as question", ""),
        (lambda _: studio.read(5), "takes a path or a text or several of these as paths, not 5.", ""),
        (lambda _: studio.read(b"job"), "takes a path or a text or several of these as paths, not a bytes.", ""),
        (lambda _: studio.generate("llama3-8b", ranks="8"), "takes a whole number as ranks, not '8'.", ""),
        (lambda trace: studio.simulate(trace, studio.preset("hgx-h100-8"), model="x"), "model is 'x'; allowed: full, astra-sim", ""),
        (lambda _: studio.figures.timeline("traces/"), "figures.timeline() takes a Trace or a result", "studio.read('traces/')"),
        (lambda trace: studio.figures.activity(trace, bins=0), "bins is 0; allowed: 1 to 100,000", ""),
        (lambda _: studio.figures.topology("hgx-h100-8"), "a Topology as system, not 'hgx-h100-8'", "studio.preset('hgx-h100-8')"),
        (lambda trace: studio.query("select 1", trace, time_s=float("nan")), "time_s is nan; allowed: a number above 0", ""),
        (lambda _: studio.plan("llama3-8b", ranks=8, gpu="h100", tp=10), "what is fixed does not divide the ranks", "fix fewer"),
        (lambda _: studio.presets["hgx-h101"], "There is no preset 'hgx-h101'.", "The nearest is 'hgx-h100'."),
    ],
)  # fmt: skip
def test_what_is_of_another_kind_is_said_before_it_is_looked_into(
    call: Callable[[studio.Trace], Any], message: str, hint: str
) -> None:
    trace = studio.read(studio.sample_path("transformer_8r"))
    error = refused(lambda: call(trace))
    assert message in error.message
    assert hint in error.hint


def test_no_function_refuses_the_kinds_that_it_names() -> None:
    """Every annotation is understood, or left alone; a missing argument is Python's own error."""
    trace = studio.read(studio.sample_path("transformer_8r"))
    result = studio.simulate(trace, studio.preset("hgx-h100-8"))
    for model in ("full", "astra-sim"):
        with contextlib.suppress(studio.TraceError):
            studio.simulate(trace, studio.preset(Path("hgx-h100-8")), model=model)
    assert len(studio.read((studio.sample_path("transformer_8r"),), ranks=None).ranks) == 8
    assert studio.compare(result, trace).a.trace is trace
    with pytest.raises(TypeError, match="required positional argument"):
        studio.to_pandas()
    assert "nowhere" not in studio.presets
    with pytest.raises(KeyError):
        studio.presets["nowhere"]


def test_numbers_of_numpy_are_numbers() -> None:
    eight, two, one = np.arange(9)[8], np.int32(2), np.uint8(1)
    assert (
        studio.generate("gpt3-125m", ranks=two, tp=two).essence()
        == studio.generate("gpt3-125m", ranks=2, tp=2).essence()
    )
    assert studio.preset("hgx-h100", npus=eight).npus == 8
    assert studio.plan("gpt3-125m", ranks=one, gpu="h100", batch=one, top=two).top == 2
