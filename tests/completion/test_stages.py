"""Pipeline stages of which no rank was recorded, built from those of which one was."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import studio
from studio.analysis.job.completeness import describe_assumed
from studio.completion import complete
from studio.doctor import examine
from studio.errors import TraceError
from studio.et.write import write_with_copies
from studio.trace import Trace, describe_assumed_stage, get_assumed_source
from tests.completion.pipelines import pipelined
from tests.completion.test_complete import exchanged, finish_ns
from tests.examples import examples
from tests.test_cli import run


def keep(trace: Trace, *numbers: int) -> Trace:
    return replace(trace, ranks=tuple(trace.ranks[number] for number in numbers))


def kinds(trace: Trace) -> list[Counter[int]]:
    """How many nodes of each type every rank has."""
    return [Counter(trace.graph_of(rank).type.tolist()) for rank in trace.ranks]


def errors(trace: Trace) -> list[str]:
    return [finding.message for finding in examine(trace) if finding.level == "error"]


@pytest.mark.parametrize("one_by_one", [False, True])
@pytest.mark.parametrize("known", [(0, 6), (0, 4, 6), (0, 2, 7)])
def test_middle_stages_are_built_from_the_first_without_its_embedding(known, one_by_one: bool):
    whole = pipelined(4, 3, dp=2, one_by_one=one_by_one)
    made = complete(keep(whole, *known), layout="dp=2,pp=4")
    assert kinds(made) == kinds(whole)
    assert exchanged(made) == exchanged(whole)
    assert finish_ns(made) == finish_ns(whole)
    assert not errors(made)


def test_a_job_of_stages_that_generators_write(shared):
    whole = studio.read(shared / "traces" / "stg" / "llama_16r_tp4pp4_recompute")
    made = complete(keep(whole, 0, 12))
    assert kinds(made) == kinds(whole)
    assert exchanged(made) == exchanged(whole)
    assert finish_ns(made) == finish_ns(whole)


def test_what_is_built_is_marked_and_counted_and_stays_so_in_files(tmp_path):
    known = keep(studio.read(studio.sample_path("transformer_8r")), 0)
    made = complete(known)
    built = "stage 1 is built from stage 0 without the embedding, and lacks the output layer and the loss"
    assert [describe_assumed_stage(rank) for rank in made.ranks] == [""] * 4 + [built] * 4
    words = "7 of 8 ranks assumed equal to rank 0, 4 of them in pipeline stages that were never recorded"
    [finding] = [finding for finding in made.findings if finding.code == "ranks-assumed"]
    assert (finding.level, built in finding.message) == ("warning", True)
    assert finding.hint.startswith("The time of the output layer and the loss is not in the job")
    write_with_copies(made, tmp_path, "job")
    for job in (made, studio.read(tmp_path)):
        assert describe_assumed(job) == words
        assert [get_assumed_source(rank) for rank in job.ranks] == [None, *[0] * 7]
        assert [bool(describe_assumed_stage(rank)) for rank in job.ranks] == [False] * 4 + [True] * 4
    assert not errors(made)


def test_the_command_says_what_it_built(tmp_path):
    studio.write(keep(studio.read(studio.sample_path("transformer_8r")), 0), tmp_path / "in", "job")
    done = run("complete", tmp_path / "in", "-o", tmp_path / "out")
    assert done.exit_code == 0, done.output
    assert "Warning: 7 of 8 ranks were not recorded" in done.output
    assert "lacks the output layer and the loss" in done.output


def renamed(trace: Trace, old: str, new: str) -> Trace:
    """A trace whose names have another word."""
    graphs = tuple(
        replace(graph, strings=type(graph.strings).of(text.replace(old, new) for text in graph.strings))
        for graph in trace.graphs
    )
    return replace(trace, graphs=graphs)


@pytest.mark.parametrize(
    ("old", "new", "known", "says"),
    [
        ("embedding", "start", (0,), "names of rank 0 do not tell the embedding from the layers"),
        ("layer", "part", (0,), "no node names the number of a layer"),
        ("loss", "stop", (2,), "names of rank 2 do not tell the output layer and the loss from the layers"),
        ("mb1.embedding", "mb1.start", (0,), "micro-batch 1 of rank 0 does not pass the embedding"),
    ],
)
def test_what_names_do_not_tell_is_refused_with_what_is_missing(old: str, new: str, known, says: str):
    whole = renamed(pipelined(3, 2), old, new)
    with pytest.raises(TraceError) as caught:
        complete(keep(whole, *known), layout="pp=3")
    assert says in caught.value.message
    assert "No rank of pipeline stage 1 of 3 is known" in str(caught.value) or "stage 0 of 3" in str(
        caught.value
    )
    assert caught.value.hint.startswith("Record one of its ranks too, such as rank ")


def test_messages_beside_the_pipeline_are_refused():
    ring = pipelined(4, 1)
    far = replace(ring.ranks[1], slots=tuple(3 if slot == 2 else slot for slot in ring.ranks[1].slots))
    with pytest.raises(TraceError, match="rank 1 exchanges messages with rank 3, in no neighbouring stage"):
        complete(replace(ring, ranks=(far,)), layout="pp=4")


@settings(max_examples=examples(12), deadline=None)
@given(
    stages=st.integers(2, 4),
    micro=st.integers(1, 3),
    dp=st.integers(1, 2),
    known=st.sets(st.integers(0, 7), min_size=1, max_size=3),
    one_by_one=st.booleans(),
)
def test_whatever_is_completed_passes_the_doctor_and_its_simulation_ends(
    stages, micro, dp, known, one_by_one
):
    whole = pipelined(stages, micro, dp=dp, one_by_one=one_by_one)
    kept = keep(whole, *sorted({number % (stages * dp) for number in known}))
    try:
        made = complete(kept, layout=f"dp={dp},pp={stages}")
    except TraceError:
        # Refused: what then is named is tested above.
        return
    assert len(made.ranks) == stages * dp
    assert not errors(made)
    assert 0 < finish_ns(made) <= 4 * finish_ns(whole)
