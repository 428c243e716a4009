"""Small files of profilers and small exported timelines, for `fuzz_readers.py`."""

from __future__ import annotations

import json
import pickle
import sqlite3
import tempfile
from pathlib import Path

from studio.commands.base.timelines import write_timeline
from studio.et import perfetto, xla, xplane
from studio.et.build import build_graph
from studio.trace import Rank, Trace
from tests.rocpd_files import write_rocpd


def rocprof() -> bytes:
    """A launch, its kernel, a call of RCCL and a copy, as rocprof v3 writes them in JSON."""
    times = {"thread_id": 4, "start_timestamp": 10, "end_timestamp": 30, "correlation_id": {"internal": 1}}
    process = {
        "metadata": {"pid": 4, "node": {"hostname": "h"}},
        "agents": [{"id": {"handle": 9}, "type": 2, "name": "gfx950"}],
        "strings": {
            "buffer_records": [
                {"kind": "HIP", "operations": ["hipLaunchKernel"]},
                {"kind": "RCCL", "operations": ["ncclAllReduce"]},
            ]
        },
        "kernel_symbols": [{"kernel_id": 1, "formatted_kernel_name": "ncclDevKernel_Generic"}],
        "buffer_records": {
            "kernel_dispatch": [
                {
                    **times,
                    "dispatch_info": {"agent_id": {"handle": 9}, "queue_id": {"handle": 1}, "kernel_id": 1},
                }
            ],
            "hip_api": [{**times, "kind": 0, "operation": 0}],
            "rccl_api": [{**times, "kind": 1, "operation": 0}],
            "memory_copy": [{**times, "dst_agent_id": {"handle": 9}, "bytes": 8}],
        },
    }
    return json.dumps({"rocprofiler-sdk-tool": [process]}).encode()


def rocprof_perfetto() -> bytes:
    """A kernel and a copy, as rocprof v3 writes them for Perfetto."""
    trace = perfetto.load_messages()["Trace"]()
    track = perfetto.load_messages()["Track"](uuid=8, name=b"COMPUTE AGENT [2] STREAM [3] (GPU)")
    trace.packet.add(sequence=1).track.CopyFrom(track)
    for name, category, begin in ((b"gemm", b"kernel_dispatch", 100), (b"MEMORY_COPY", b"memory_copy", 400)):
        packet = trace.packet.add(sequence=1, timestamp=begin)
        packet.event.type, packet.event.track_uuid, packet.event.name = perfetto.BEGIN, 8, name
        packet.event.categories.append(category)
        for key, value in (("begin_ns", begin), ("end_ns", begin + 50), ("corr_id", 7), ("copy_bytes", 64)):
            packet.event.annotations.add(name=key.encode(), uint_value=value)
    whole: bytes = trace.SerializeToString()
    return whole


def xspace() -> bytes:
    """A kernel that is an all-reduce, with its program, and a thread of the host."""
    made, program = xplane.load_messages()["XSpace"](), xla.load_messages()["HloProto"]()
    program.hlo_module.name = b"jit"
    instructions = program.hlo_module.computations.add().instructions
    operand = instructions.add(name=b"x", opcode=b"parameter", id=1)
    operand.shape.element_type = 11
    operand.shape.dimensions.append(16)
    instructions.add(name=b"all-reduce.1", opcode=b"all-reduce", id=2, operand_ids=[1])
    meta = made.planes.add(name="/host:metadata")
    meta.stat_metadata.add(key=1).value.name = b"Hlo Proto"
    meta.event_metadata.add(key=1).value.stats.add(metadata_id=1, bytes_value=program.SerializeToString())
    for plane, line in (("/device:GPU:0", "Stream #7(Kernel)"), ("/host:CPU", "python")):
        one = made.planes.add(name=plane)
        for number, name in enumerate((b"correlation_id", b"hlo_op", b"hlo_module"), 1):
            one.stat_metadata.add(key=number).value.name = name
        one.event_metadata.add(key=1).value.name = b"cuLaunchKernel"
        event = one.lines.add(id=7, name=line, timestamp_ns=5).events.add(
            metadata_id=1, offset_ps=7, duration_ps=900
        )
        event.stats.add(metadata_id=1, uint64_value=3)
        event.stats.add(metadata_id=2, str_value=b"all-reduce.1")
        event.stats.add(metadata_id=3, str_value=b"jit")
    whole: bytes = made.SerializeToString()
    return whole


def viewer() -> bytes:
    """The same for the trace viewer."""
    text = "%all-reduce.1 = f32[16]{0} all-reduce(f32[16]{0} %x), replica_groups={{0,1}}"
    names = [
        {"ph": "M", "pid": 1, "tid": tid, "name": name, "args": {"name": value}}
        for tid, name, value in (
            (0, "process_name", "/device:GPU:0"),
            (2, "thread_name", "Stream #7(Kernel)"),
        )
    ]
    event = {"ph": "X", "pid": 1, "tid": 2, "ts": 5.5, "dur": 2, "name": "k", "args": {"long_name": text}}
    return json.dumps({"displayTimeUnit": "ns", "traceEvents": [*names, event]}).encode()


def exported(suffix: str) -> bytes:
    """A timeline of two ranks with a collective, a message and a dependency, as the studio exports it."""
    ranks = []
    graphs = []
    for number, (kind, peer) in enumerate((("COMM_SEND_NODE", "comm_dst"), ("COMM_RECV_NODE", "comm_src"))):
        graph, slots = build_graph(
            [
                {"id": 1, "type": "COMP_NODE", "start_micros": 0, "duration_micros": 5},
                {"id": 2, "type": "COMM_COLL_NODE", "start_micros": 5, "duration_micros": 5, "data_deps": [1],
                 "attrs": {"comm_type": 0, "comm_size": 8, "pg_name": "g"}},
                {"id": 3, "type": kind, "start_micros": 10, "duration_micros": 5, "ctrl_deps": [2],
                 "attrs": {peer: 1 - number, "comm_size": 8, "comm_tag": 0}},
            ]
        )  # fmt: skip
        graphs.append(graph)
        ranks.append(Rank(number, number, slots))
    with tempfile.TemporaryDirectory() as folder:
        return write_timeline(Trace(tuple(graphs), tuple(ranks)), Path(folder, f"x{suffix}")).read_bytes()


FLIGHT = {
    "version": "2.10",
    "pg_config": {"0": {"name": "0", "desc": "default_pg", "ranks": "[0, 1]"}, "3": {"name": "3", "desc": "pp", "ranks": "[0, 1]"}},
    "pg_status": {"0": {"last_enqueued_collective": 2, "last_started_collective": 2, "last_completed_collective": 1}},
    "entries": [
        {
            "frames": [{"name": "step", "filename": "train.py", "line": 41}], "record_id": number, "pg_id": 0, "process_group": group,
            "collective_seq_id": number, "p2p_seq_id": number, "op_id": number, "profiling_name": name, "time_created_ns": 10**18 + number,
            "input_sizes": [[16, 4]], "input_dtypes": ["BFloat16"], "output_sizes": [[16, 4]], "output_dtypes": ["BFloat16"],
            "state": state, "time_discovered_started_ns": 10**18 + 9, "time_discovered_completed_ns": 10**18 + 99, "retired": True,
            "timeout_ms": 600000, "is_p2p": name != "nccl:all_reduce",
        }
        for number, (name, group, state) in enumerate(
            (
                ("nccl:all_reduce", ("0", "default_pg"), "completed"), ("nccl:send 0->1", ("3", "pp"), "scheduled"),
                ("nccl:recv 0<-1", ("3", "pp"), "scheduled"), ("nccl:coalesced", ("3", "pp"), "completed"),
                ("nccl:all_reduce", ("0", "default_pg"), "started"),
            )
        )
    ],
}  # fmt: skip

MSCCL = b"""<algo name="ring" proto="Simple" nchannels="1" nchunksperloop="2" ngpus="2" coll="allreduce" inplace="1">
 <gpu id="0" i_chunks="2" o_chunks="0" s_chunks="1">
  <tb id="0" send="1" recv="1" chan="0">
   <step s="0" type="s" srcbuf="i" srcoff="0" dstbuf="i" dstoff="0" cnt="1" depid="-1" deps="-1" hasdep="0"/>
   <step s="1" type="rrcs" srcbuf="i" srcoff="1" dstbuf="i" dstoff="1" cnt="1" depid="-1" deps="-1" hasdep="0"/>
   <step s="2" type="r" srcbuf="i" srcoff="0" dstbuf="i" dstoff="0" cnt="1" depid="1" deps="0" hasdep="0"/>
  </tb>
  <tb id="1" send="-1" recv="-1" chan="0"><step s="0" type="nop"/></tb>
 </gpu>
 <gpu id="1" i_chunks="2" o_chunks="0" s_chunks="1">
  <tb id="0" send="0" recv="0" chan="0">
   <step s="0" type="s" srcbuf="i" srcoff="1" dstbuf="i" dstoff="1" cnt="1" depid="-1" deps="-1" hasdep="0"/>
   <step s="1" type="rrcs" srcbuf="i" srcoff="0" dstbuf="i" dstoff="0" cnt="1" depid="-1" deps="-1" hasdep="0"/>
   <step s="2" type="r" srcbuf="i" srcoff="1" dstbuf="i" dstoff="1" cnt="1" depid="-1" deps="-1" hasdep="0"/>
  </tb>
 </gpu>
</algo>
"""

INSPECTOR = tuple(
    json.dumps(
        {
            "header": {"id": "0x7f8c", "rank": rank, "n_ranks": 2, "nnodes": 1},
            "metadata": {"inspector_output_format_version": "v4.0", "dump_timestamp_us": 10**15, "hostname": "h", "pid": 7 + rank},
            "coll_perf": {"coll": coll, "coll_sn": serial, "coll_msg_size_bytes": 1024, "coll_exec_time_us": 40, "coll_algo": "RING",
                          "event_trace_ts": {"coll_start_ts": 10**15 - 90, "coll_stop_ts": 10**15 - 50}},
        }
    ).encode()
    for rank in (0, 1)
    for serial, coll in enumerate(("AllReduce", "AllGather", "ReduceScatter"))
)  # fmt: skip


PLAN = {
    "name": "gather", "collective": "allgather", "inplace": True, "protocol": "Simple",
    "gpus": [
        {
            "id": rank, "input_chunks": 1, "output_chunks": 2, "scratch_chunks": 0,
            "threadblocks": [
                {
                    "id": 0,
                    "ops": [
                        {"name": "put", "src_buff": [{"type": "o", "index": rank, "size": 1}],
                         "dst_buff": [{"buffer_id": 0, "index": rank, "size": 1}], "channel_ids": [0], "channel_type": "memory"},
                        {"name": "signal", "channel_ids": [0], "channel_type": "memory"},
                        {"name": "wait", "channel_ids": [0], "channel_type": "memory"},
                    ],
                    "channels": [{"channel_type": "memory", "channel_ids": [0]}],
                    "remote_buffer_refs": [{"access_channel_type": "memory", "remote_buffer_ids": [0]}],
                }
            ],
            "channels": [{"channel_type": "memory", "connected_to": [1 - rank]}],
            "remote_buffers": [{"rank": 1 - rank, "type": "o", "access_channel_types": ["memory"]}],
        }
        for rank in (0, 1)
    ],
}  # fmt: skip


def nsight() -> bytes:
    """A launch, its kernel, a collective and a range, as Nsight Systems exports them."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "report.sqlite")
        database = sqlite3.connect(path)
        database.executescript(
            """
            PRAGMA page_size=512;
            CREATE TABLE StringIds (id INTEGER PRIMARY KEY, value TEXT);
            CREATE TABLE CUPTI_ACTIVITY_KIND_RUNTIME (start INTEGER, end INTEGER, globalTid INTEGER, correlationId INTEGER, nameId INTEGER);
            CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL (start INTEGER, end INTEGER, deviceId INTEGER, streamId INTEGER,
              correlationId INTEGER, globalPid INTEGER, demangledName INTEGER);
            CREATE TABLE NVTX_EVENTS (start INTEGER, end INTEGER, eventType INTEGER, text TEXT, globalTid INTEGER);
            INSERT INTO StringIds VALUES (1, 'cudaLaunchKernel_v7000'), (2, 'gemm'), (3, 'ncclDevKernel_AllReduce_Sum_f32_RING_LL');
            INSERT INTO CUPTI_ACTIVITY_KIND_RUNTIME VALUES (10, 20, 77, 1, 1), (30, 40, 77, 2, 1);
            INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL VALUES (50, 90, 0, 7, 1, 0, 2), (95, 99, 0, 9, 2, 0, 3);
            INSERT INTO NVTX_EVENTS VALUES (5, 200, 59, 'step', 77);
            """
        )
        for start in range(1000, 9000, 10):
            database.execute(
                "INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL VALUES (?, ?, 0, 7, 3, 0, 2)", (start, start + 5)
            )
        database.commit()
        database.close()
        return path.read_bytes()


def rocpd() -> bytes:
    """A gemm, an all-reduce and copies, as rocprofv3 writes them into a database."""
    with tempfile.TemporaryDirectory() as folder:
        return write_rocpd(Path(folder, "42_results.db"), more=800).read_bytes()


PROFILES: dict[str, tuple[bytes, ...]] = {
    "mscclpp": (json.dumps(PLAN).encode(),),
    "nsight": (nsight(),),
    "rocpd": (rocpd(),),
    "inspector": INSPECTOR,
    "msccl": (MSCCL,),
    "flight": (pickle.dumps(FLIGHT, 2), pickle.dumps(FLIGHT, 5), json.dumps(FLIGHT).encode()),
    "rocprof": (rocprof(),),
    "rocprof-perfetto": (rocprof_perfetto(),),
    "xplane": (xspace(),),
    "xplane-json": (viewer(),),
    "exported-chrome": (exported(".json"),),
    "exported-perfetto": (exported(".pftrace"),),
}
"""Small files by the name of their format."""
