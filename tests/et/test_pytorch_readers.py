"""Execution traces and Kineto traces as they come: every layout, every unit, damaged ones too."""

from __future__ import annotations

import gzip
import importlib.util
import json
import signal
import sys
from pathlib import Path

import numpy as np
import pytest

import studio
from studio.errors import TraceFormatError
from studio.et import kineto, kineto_times, pytorch
from studio.et.damaged_json import find_last_item
from studio.et.format import Reading
from studio.et.recording import EventKind
from tests.et.pytorch_files import device_file, event, host_file, kernel, node, small_rank, tensor
from tests.waiting import PATIENCE_S

ROOT = Path(__file__).resolve().parent.parent.parent


def host(raw: bytes):
    [part] = pytorch.read(Reading("host.json", raw))
    return part


def device(raw: bytes):
    [part] = kineto.read(Reading("kineto.json", raw))
    return part


FLAT = {
    "schema": "1.0.1", "pid": 3,
    "nodes": [
        {
            "name": "aten::add", "id": 5, "rf_id": 4, "parent": 2, "fw_parent": 1, "seq_id": 9, "scope": 7, "tid": 2,
            "fw_tid": 1, "op_schema": "add()", "inputs": [tensor(1), 2.5, "<None>"], "input_shapes": [[4], [], []],
            "input_types": ["Tensor(float)", "Double", "None"], "outputs": [tensor(2)], "output_shapes": [[4]],
            "output_types": ["Tensor(float)"],
        }
    ],
    "finish_ts": 1,
}  # fmt: skip


def nested_layout(flat: dict) -> dict:
    """The same trace in the layout since 1.0.2."""
    node = dict(flat["nodes"][0])
    for side in ("input", "output"):
        node[f"{side}s"] = {
            "values": node.pop(f"{side}s"), "shapes": node.pop(f"{side}_shapes"), "types": node.pop(f"{side}_types"),
        }  # fmt: skip
    keys = ("rf_id", "fw_parent", "seq_id", "scope", "tid", "fw_tid", "op_schema")
    node["attrs"] = [{"name": key, "type": "uint64", "value": node.pop(key)} for key in keys]
    node["ctrl_deps"] = node.pop("parent")
    return flat | {"schema": "9.9.9-future", "nodes": [node]}


@pytest.mark.parametrize("content", [FLAT, nested_layout(FLAT)], ids=["flat", "nested, unknown version"])
def test_layouts_are_told_by_their_keys(content):
    trace = host(json.dumps(content).encode()).trace
    assert (trace.id.tolist(), trace.parent.tolist(), trace.names) == ([5], [2], ["aten::add"])
    assert {key: column.tolist() for key, column in trace.numbers.items()} == {
        "rf_id": [4], "fw_parent": [1], "seq_id": [9], "scope": [7], "tid": [2], "fw_tid": [1],
    }  # fmt: skip
    assert [trace.texts[code] for code in trace.io[0]] == [
        "[[1, 101, 0, 4, 4, 'cpu'], 2.5, '<None>']", "[[4], [], []]", "['Tensor(float)', 'Double', 'None']",
        "[[2, 102, 0, 4, 4, 'cpu']]", "[[4]]", "['Tensor(float)']",
    ]  # fmt: skip


def test_nodes_are_in_order_of_their_ids_whatever_the_file_says():
    trace = host(host_file([node(9, "b"), node(4, "a")])).trace
    assert trace.names[2:] == ["a", "b"]


@pytest.mark.parametrize("kept", [0.5, 0.8, 0.99])
def test_a_cut_execution_trace_keeps_what_is_whole(kept):
    raw = host_file([node(3 + at, f"op{at}", inputs=['a "quoted" \\ text', tensor(at)]) for at in range(50)])
    part = host(raw[: int(len(raw) * kept)])
    assert 20 < len(part.trace) < 52
    [finding] = [finding for finding in part.findings if finding.code == "damaged-file"]
    assert "cut off at byte" in finding.message
    assert part.trace.names == host(raw).trace.names[: len(part.trace)]


def test_damage_in_the_middle_keeps_what_comes_before():
    raw = host_file([node(3 + at, f"op{at}") for at in range(50)])
    at = raw.index(b'"op30"')
    part = host(raw[:at] + b"!" + raw[at:])
    assert part.trace.names[-1] == "op29"


def test_control_characters_and_bare_nan_are_replaced():
    raw = host_file([node(3, "a\u0001b", inputs=[1.5])]).replace(b"\\u0001", b"\x01").replace(b"1.5", b"nan")
    part = host(raw)
    assert part.trace.names[-1] == "a b"
    assert [finding.code for finding in part.findings] == ["mended-json"]


HUGE = pytest.mark.parametrize(
    "huge",
    [b"1e400", b"-1E+9999", b"9" * 401, b"9" * 5000, b"1" * 310 + b".5"],
    ids=lambda huge: huge[:9].decode(),
)


@HUGE
@pytest.mark.parametrize("field", ["External_id", "correlation", "stream", "ts"])
def test_numbers_that_no_type_can_hold_are_lost_alone(field, huge):
    """A text that reads like one stays as it is."""
    text = 'say "1e400", 1e400,'
    raw = device_file(
        [event(text, 1, 2), event("b", 3, 4) | {"ts": 3, "args": {field.replace("_", " "): 9.75}}]
    )
    raw = raw.replace(b'"ts": 3', b'"ts": %b' % huge) if field == "ts" else raw.replace(b"9.75", huge)
    part = device(raw)
    assert part.trace.names == ([text] if field == "ts" else [text, "b"])
    assert "mended-json" in [finding.code for finding in part.findings] or huge[:1] in b"91"


def test_what_begins_like_a_huge_number_and_is_none_is_said():
    raw = device_file([event("b", 3, 4) | {"ts": 3}]).replace(b'"ts": 3', b'"ts": 2e98306.0')
    with pytest.raises(TraceFormatError, match=r"or no number at all, at `\$\.traceEvents\[\d\]\.ts`"):
        device(raw)


@HUGE
def test_an_execution_trace_survives_numbers_that_no_type_can_hold(huge):
    raw = host_file([node(3, "good", inputs=[9.75]), node(4, "b", fw_tid=9.75)]).replace(b"9.75", huge)
    assert host(raw).trace.names[2:3] == ["good"]


def test_huge_numbers_and_wrong_types_lose_a_node_and_no_more():
    raw = host_file([node(3, "good"), node(2**70, "huge"), node("x", "text"), node(3, "again"), node(5, 17)])
    part = host(raw)
    assert part.trace.names[2:] == ["good", "17"]
    assert "left out: 3." in next(f.message for f in part.findings if f.code == "damaged-node")


@pytest.mark.parametrize("content", [b"{", b"[]", b'{"schema": "1", "nodes": 5}', b'{"schema": "1"}', b""])
def test_what_is_no_execution_trace_is_refused(content):
    with pytest.raises(TraceFormatError, match=r"host\.json"):
        host(content)


def test_times_whole_fractional_and_with_a_base():
    old = device(device_file([event("a", 1707417525512252, 29)])).trace
    assert (old.start_ns.tolist(), old.duration_ns.tolist()) == ([1707417525512252000], [29000])
    new = device(
        device_file([event("a", 4348927393528.336, 140.089)], baseTimeNanoseconds=1_790_857_026_000_000_000)
    ).trace
    assert new.start_ns.tolist() == [1_790_857_026_000_000_000 + 4348927393528336]
    assert new.duration_ns.tolist() == [140089]


def test_every_nanosecond_of_a_usual_time_survives():
    wanted = 4_348_927_393_528_000 + np.arange(5000)
    values = [float(f"{number / 1000:.3f}") for number in wanted.tolist()]
    assert kineto_times.convert_to_ns(values)[0].tolist() == wanted.tolist()


@pytest.mark.parametrize(
    ("category", "kind"),
    [
        ("Operator", EventKind.OPERATOR), ("cpu_op", EventKind.OPERATOR), ("user_annotation", EventKind.ANNOTATION),
        ("Kernel", EventKind.KERNEL), ("mtia_ccp_events", EventKind.KERNEL), ("Memcpy", EventKind.COPY),
        ("gpu_memset", EventKind.FILL), ("Runtime", EventKind.RUNTIME), ("mtia_runtime", EventKind.RUNTIME),
        ("cuda_driver", EventKind.RUNTIME), ("cuda_sync", EventKind.SYNC), ("xpu_driver", EventKind.RUNTIME),
        ("mlu_runtime", EventKind.RUNTIME), ("mlu_memcpy", EventKind.COPY), ("GCU_MEMSET", EventKind.FILL),
    ],
)  # fmt: skip
def test_categories_old_and_new(category, kind):
    assert device(device_file([event("a", 1, 1, category)])).trace.kind.tolist() == [kind]


@pytest.mark.parametrize("long", [False, True])
def test_events_of_unknown_categories_are_counted_and_named(long):
    """They were left out without a word, and the job seemed to have run on its processor."""
    beside = [event("x", 9, 1, cat) for cat in ("Trace", "overhead", "gpu_user_annotation", "cuda_event")]
    silent = [{key: value for key, value in event("npu", 5, 1, pid=66).items() if key != "cat"}]
    called = {"ph": "M", "name": "process_name", "pid": 66, "tid": 0, "args": {"name": "Ascend Hardware"}}
    some = [event("mm", 1, 1), event("gemm", 2, 1, "hpu_op"), event("gemm", 4, 1, "hpu_op"), *silent, *beside]
    part = device(device_file([*(some * (20_000 if long else 1)), called]))
    assert part.trace.names == ["mm"]
    [finding] = part.findings
    assert (finding.level, finding.code) == ("warning", "left-out")
    times = 20_000 if long else 1
    assert f"hpu_op ({2 * times:,}), Ascend Hardware ({times:,})." in finding.message
    assert device(device_file([event("mm", 1, 1), *beside])).findings == ()


def test_pytorchs_first_profiler_tells_by_processes_what_its_events_are():
    """It said that nothing was recorded."""
    places = ("CPU functions", "CUDA functions")
    some = [event(place, at, 1, pid=place) for at, place in enumerate(places)]
    part = device(
        json.dumps([{key: value for key, value in one.items() if key != "cat"} for one in some]).encode()
    )
    assert part.trace.kind.tolist() == [EventKind.OPERATOR, EventKind.KERNEL]
    assert part.findings == ()


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (device_file([event("a", 1, 1, "hpu_op")]), "what else it holds is of kinds that are not read"),
        (device_file([event("a", 1, 1) | {"ph": "b"}]), "what else it holds is of kinds that are not read"),
        (device_file([event("a", 1, 1, "overhead")])[:-1], "lies behind the damage"),
        (device_file([]), "nothing was recorded while the program ran"),
    ],
)
def test_a_file_without_operations_says_why_it_has_none(tmp_path, content, said):
    path = tmp_path / "device_0.json"
    path.write_bytes(content)
    [finding] = [one for one in studio.read(path).findings if one.code == "no-events"]
    assert said in finding.message


def test_a_bare_list_of_events():
    raw = json.dumps([event("a", 1, 1), kernel("k", 2, 1, 5)]).encode()
    assert kineto.sniff(raw)
    assert device(raw).trace.correlation.tolist() == [-1, 5]


@pytest.mark.parametrize("named", [True, False])
def test_beginnings_and_ends_are_events_where_there_are_no_complete_ones(named):
    """Nested on one thread beside a kernel; an end without a beginning is none, a beginning without an end is said."""
    complete = [event("outer", 10, 100, rf=1), event("inner", 20, 5), kernel("k", 22.5, 50.25, 3)]
    marks = []
    for each in complete:
        begin = {key: value for key, value in each.items() if key != "dur"} | {"ph": "B"}
        end = {"ph": "E", "pid": each["pid"], "tid": each["tid"], "ts": each["ts"] + each["dur"]}
        marks += [(each["ts"], begin), (end["ts"], end | ({"name": each["name"]} if named else {}))]
    pairs = [mark for _, mark in sorted(marks, key=lambda mark: mark[0])]
    odd = [{"ph": "E", "pid": 7, "tid": 7, "ts": 1}, event("open", 900, 0) | {"ph": "B"}, {"ph": [], "ts": 2}]
    want = device(device_file(complete)).trace
    for events in (pairs, pairs[::-1]):
        part = device(device_file([*events, *odd]))
        for column in ("kind", "start_ns", "duration_ns", "correlation", "record_function"):
            assert getattr(part.trace, column).tolist() == getattr(want, column).tolist()
        assert [finding.code for finding in part.findings] == ["damaged-event"]


def test_a_file_without_operations_says_which_phases_it_holds():
    """Asynchronous events are none of a thread; names and marks are beside operations in every trace."""
    phases = ["b", "b", "e", "M", "i"]
    part = device(device_file([event("a", 1, 1) | {"ph": phase} for phase in phases]))
    assert [finding.code for finding in part.findings] == ["left-out"]
    assert "b (2), e (1)." in part.findings[0].message
    assert device(device_file([event("a", 1, 1), event("a", 1, 1) | {"ph": "b"}])).findings == ()


def test_a_cut_kineto_trace_keeps_what_is_whole():
    raw = device_file([event(f"op{at}", at, 1, rf=at, dims="]}") for at in range(50)])
    part = device(raw[: len(raw) // 2])
    assert 20 < len(part.trace) < 30
    assert [finding.code for finding in part.findings] == ["damaged-file"]


@pytest.mark.parametrize(
    ("behind", "level", "says"),
    [
        (b"rubbish", "warning", "7 bytes behind the end of its JSON, ignored."),
        (b"\n\n}\n", "warning", "2 bytes behind the end of its JSON, ignored."),
        (b'{"traceEvents": []}', "error", "and more follows; what comes before was read, the rest is lost."),
        (b', {"ph": "X"}]}', "error", "and more follows; what comes before was read, the rest is lost."),
    ],
)
def test_what_comes_behind_the_end_of_a_file_costs_nothing_of_it(behind, level, says):
    """Its metadata, which stands behind the events, was lost for that."""
    raw = device_file([event("a", 1, 1)], distributedInfo={"rank": 3, "world_size": 4})
    part = device(raw + behind)
    assert (part.trace.names, part.trace.head.rank) == (["a"], 3)
    [finding] = part.findings
    assert finding.level == level
    assert finding.message.endswith(says)


def test_commas_behind_the_last_of_a_list_lose_nothing():
    """The rest was lost, the head with the rank among it, and the file damaged."""
    raw = device_file([event("a,]", 1, 1), event("b,}", 3, 1)], distributedInfo={"rank": 3, "world_size": 4})
    ends = raw.replace(b'], "distributedInfo"', b',\n], "distributedInfo"').removesuffix(b"}") + b",}"
    assert len(ends) == len(raw) + 3
    part = device(ends)
    assert part.trace.names == ["a,]", "b,}"]
    assert part.trace.head.rank == 3
    assert [(finding.level, finding.code) for finding in part.findings] == [("warning", "mended-json")]


@pytest.mark.parametrize("end", [b"", b",\n"])
def test_a_list_of_events_may_lack_its_end(end):
    raw = json.dumps([event("a", 1, 1), event("b", 3, 1)]).encode()
    part = device(raw.removesuffix(b"]") + end)
    assert part.trace.names == ["a", "b"]
    assert [(finding.level, finding.code) for finding in part.findings] == [("warning", "mended-json")]
    assert "has no end" in part.findings[0].message
    assert [finding.code for finding in device(raw[:-20]).findings] == ["damaged-file"]


def test_device_operations_are_correlated_by_arrows_where_nothing_else_does():
    job = {
        "ph": "X",
        "cat": "mtia_ccp_events",
        "name": "job",
        "pid": 9,
        "tid": 4,
        "ts": 5.5,
        "dur": 1,
        "args": {},
    }
    arrow = {"ph": "f", "cat": "ac2g", "name": "ac2g", "pid": 9, "tid": 4, "ts": 5.5, "id": 18}
    assert device(device_file([job, arrow])).trace.correlation.tolist() == [18]


def test_calls_without_a_correlation_have_that_of_the_arrow_beginning_on_them():
    call = event("cudaLaunchKernel", 2, 1, "cuda_runtime")
    kernel = event("gemm", 5.5, 1, "kernel", pid=0, tid=7, stream=7, device=0)
    arrows = [
        {"ph": "s", "cat": "ac2g", "name": "ac2g", "pid": call["pid"], "tid": call["tid"], "ts": 2, "id": 18},
        {"ph": "f", "cat": "ac2g", "name": "ac2g", "pid": 0, "tid": 7, "ts": 5.5, "id": 18, "bp": "e"},
    ]
    assert device(device_file([call, kernel, *arrows])).trace.correlation.tolist() == [18, 18]


def test_where_no_call_has_a_correlation_external_ids_join_calls_and_kernels():
    """Tools that write Kineto's form themselves leave correlations out, and draw the arrow at the kernel alone."""
    events = []
    for at, number in ((2, 100), (30, 101)):
        arrow = {"cat": "ac2g", "name": "ac2g", "pid": 0, "tid": 7, "ts": at + 5, "id": number}
        events += [
            event("cudaLaunchKernel", at, 1, "cuda_runtime", **{"External id": number}),
            event("gemm", at + 5, 3, "kernel", pid=0, tid=7, stream=7, device=0, **{"External id": number}),
            {"ph": "s", **arrow},
            {"ph": "f", **arrow},
        ]
    assert device(device_file(events)).trace.correlation.tolist() == [100, 100, 101, 101]
    # One call that has one says that the others are no launches.
    events.append(event("cudaLaunchKernel", 50, 1, "cuda_runtime", correlation=7))
    assert device(device_file(events)).trace.correlation.tolist() == [-1, 100, -1, 101, 7]


def test_events_of_impossible_shape_are_counted():
    raw = device_file(
        [event("good", 1, 1), {"ph": "X", "cat": "cpu_op", "name": "bad", "ts": "soon", "args": 3}]
    )
    part = device(raw)
    assert part.trace.names == ["good"]
    assert "left out: 1." in part.findings[0].message


ODD_DURATIONS = [-3, -0.001, 1e300, 4_700_000_000_000_000, "long", [1]]


def test_durations_that_cannot_be_are_counted_and_said_once():
    """Below zero, longer than anybody has recorded, or no number; one that is not written is that of a mark."""
    usual = [event("a", 1, 5), event("a", 2, 0), event("a", 3, 4_600_000_000_000_000), event("a", 4, None)]
    untold = {key: value for key, value in event("a", 5, 1).items() if key != "dur"}
    odd = [event("odd", 10 + place, dur) for place, dur in enumerate(ODD_DURATIONS)]
    lost = event("lost", None, -1)
    part = device(device_file([*usual, untold, *odd, lost]))
    assert part.trace.duration_ns.tolist() == [5000, 0, 4_600_000_000_000_000_000, 0, 0, *[0] * len(odd)]
    assert [(finding.code, finding.level) for finding in part.findings] == [
        ("damaged-event", "warning"),
        ("damaged-duration", "warning"),
    ]
    assert part.findings[1].message.endswith(
        ": events whose duration is below zero, longer than 146 years or no number, taken as 0: 6."
    )
    assert not device(device_file([*usual, untold])).findings


def test_durations_that_cannot_be_are_notes_of_the_job(tmp_path):
    """The Doctor repeats them, with what to do."""
    host, device_side = small_rank()
    told = json.loads(device_side)
    first = next(one for one in told["traceEvents"] if one.get("cat") == "kernel")
    first["dur"] = -first["dur"]
    (tmp_path / "host_0.json").write_bytes(host)
    (tmp_path / "device_0.json").write_bytes(json.dumps(told).encode())
    trace = studio.read(tmp_path)
    [said] = [finding for finding in trace.findings if finding.code == "damaged-duration"]
    assert "device_0.json: events whose duration" in said.message
    [diagnosis] = [one for one in studio.examine(trace) if one.code == "damaged-duration"]
    assert "Record anew" in diagnosis.advice


def test_both_formats_may_be_packed_and_are_told_by_content(tmp_path):
    for index, raw in enumerate(small_rank()):
        (tmp_path / f"{'ab'[index]}_0.json.gz").write_bytes(gzip.compress(raw))
    assert studio.read(tmp_path).ranks[0].number == 0


@pytest.mark.parametrize("cut", range(1, 60, 7))
def test_the_last_whole_item_is_found_wherever_the_file_ends(cut):
    """Braces in texts and escaped quotes do not count."""
    raw = rb'{"a": "}]\\", "nodes": [{"t": "\"}{"}, {"u": [1, {"v": 2}]}, {"w": 3}]}'
    ends = [raw.index(b"}, {") + 1, raw.index(b"]}, {") + 2, len(raw) - 2]
    assert find_last_item(raw[:cut]) == max([end for end in ends if end <= cut], default=0)


@pytest.fixture
def impatient():
    def stop(*_):
        raise AssertionError("reading hangs")

    before = signal.signal(signal.SIGALRM, stop)
    signal.alarm(int(PATIENCE_S))
    yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, before)


def test_mutated_files_give_a_trace_or_an_error(impatient, tmp_path, monkeypatch):
    """A sample; `benchmarks/fuzz_json.py` is the long version."""
    monkeypatch.setattr(sys, "path", [str(ROOT), *sys.path])
    spec = importlib.util.spec_from_file_location("fuzz_json", ROOT / "benchmarks" / "fuzz_json.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    outcomes = module.run([small_rank()], 200, 5, tmp_path)
    assert outcomes["trace"] > 100
    assert outcomes["TraceFormatError"] + outcomes["damaged trace"] > 10
