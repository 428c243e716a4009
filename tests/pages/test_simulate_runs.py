"""What the Simulate page tells of a run and of several."""

from __future__ import annotations

import html
import re
from dataclasses import replace

import pytest

import studio
from studio.analysis.job.completeness import infer_completeness
from studio.analysis.timeline.gantt import Gantt
from studio.comparing import build_lineup, build_simulated_side
from studio.jobs.simulations import Simulation
from studio.pages.compare.tables import show_summary
from studio.pages.simulate.believing import show_mark, show_warnings
from studio.pages.simulate.edits import with_text
from studio.pages.simulate.form import build_folds, build_form, collect_problem_texts
from studio.pages.simulate.live import _IDEAL, show_facts
from studio.pages.simulate.naming import name_run
from studio.pages.simulate.run_list import build_run_table
from studio.pages.simulate.runs import _build_dimension_table, _build_figures, describe_spread
from studio.pages.simulate.under_way import build_progress_list
from studio.reporting import build_report
from studio.sim.doubt import Cured
from studio.sim.doubts import apply_cures, format_cure_options
from studio.sim.load import compute_network_load
from studio.sim.parts import Parts, build_parts, interpret
from studio.sim.presets import preset
from studio.sim.problems import examine_parts
from studio.sim.result import compute_ledger
from studio.sim.setting_edits import with_settings
from studio.sim.setting_values import describe_differences
from studio.sim.settings import SETTINGS
from studio.store.drafts import Draft
from studio.store.run_infos import RunInfo, RunSummary
from studio.store.runs import Run
from studio.store.workspace import Workspace
from studio.units import format_ns
from tests.handmade import collective, node, trace_of
from tests.kernels import compiled

MIB = 1 << 20


def texts(part):
    """All words of a part of a page, in order."""
    if part is None:
        return ""
    if isinstance(part, str):
        return part
    if isinstance(part, list | tuple):
        return " ".join(texts(one) for one in part)
    return texts(getattr(part, "children", None))


def find_all(part, kind):
    """All components of a kind in a part of a page, in order."""
    if isinstance(part, list | tuple):
        return [found for one in part for found in find_all(one, kind)]
    inside = find_all(part.children, kind) if getattr(part, "children", None) is not None else []
    return [part, *inside] if type(part).__name__ == kind else inside


def simulated(graphs, congestion="unaware", **system):
    parts = preset("hgx-h100-8").under("astra-sim")
    parts = replace(parts, system={**parts.system, "roofline-enabled": 0, **system}, congestion=congestion)
    return studio.simulate(trace_of(graphs), studio.sim.parts.interpret(parts).config, native=compiled())


def test_shares_are_of_the_finish_and_those_ahead_wait_for_the_last():
    """Seven ranks work 10 us and one 40 us: 13.75 us in the mean are 34.4 % of the finish, 65.6 % are waiting."""
    found = simulated([[node(1, "COMP", micros=micros)] for micros in [10] * 7 + [40]])
    said = texts(_build_figures(found, compute_ledger(found).totals(), range(8)))
    assert "34.4 % of the finish" in said
    assert "after finish ? 26.2 us · 65.6 % of the finish" in said.replace("µ", "u")
    even = simulated([[node(1, "COMP", micros=10)]] * 8)
    assert "after finish" not in texts(_build_figures(even, compute_ledger(even).totals(), range(8)))


def test_what_runs_beside_communication_counts_once_so_that_the_shares_make_the_finish():
    """The CPU works 100 us while a collective is under way for less of that: only the rest is the CPU's alone."""
    nodes = [node(1, "COMP", micros=100, is_cpu_op=True), collective(2, "ALL_REDUCE", 8 * MIB)]
    found = simulated([nodes] * 7 + [[*nodes, node(3, "COMP", 1, 2, micros=60)]])
    times = compute_ledger(found).totals()
    assert times.exposed_ns.min() > 0
    said = texts(_build_figures(found, times, range(8)))
    shares = dict(re.findall(r"([a-z][a-zA-Z, ]*?) (?:\? )?[\d.]+ \S+ · ([\d.]+) % of the finish", said))
    assert sum(map(float, shares.values())) == pytest.approx(100, abs=0.2), said
    assert float(shares["idle"]) > 0, "the rest of what the CPU does is the host's, which is idle"


def test_among_single_links_a_dimension_has_no_time_to_compare():
    """Its ports are links, of which each has a time: 0 ns would be compared as if nothing had been sent."""
    made = []
    for name in ("hgx-h100-32", "hgx-h100-32-rails"):
        parts = preset(name).under("astra-sim")
        trace = trace_of([[collective(1, "ALL_REDUCE", MIB)]] * 32)
        result = studio.simulate(trace, studio.sim.parts.interpret(parts).config, native=compiled())
        made.append(build_simulated_side(Run(name, result, parts), info(name, parts, result.makespan_ns)))
    figures = build_lineup(made).comparisons[0].dimensions
    assert [(one.a is None, one.b, one.difference, one.share) for one in figures if one.unit == "ns"] == [
        (False, None, None, None)
    ] * 2
    assert all(one.b for one in figures if one.unit == "bytes")
    # One has single links, the other none: none of them differs from anything.
    said = texts(show_summary(build_lineup(made)))
    assert "Links that send longest; none is in both" in said
    assert "Links that differ most" in texts(show_summary(build_lineup([made[1], made[1]])))


def test_links_that_carried_the_same_share_a_row_and_nothing_is_a_share_of_the_difference():
    """Eight links up and eight down a switch: sixteen links, of which there is but one thing to say."""
    trace = trace_of([[collective(1, "ALL_REDUCE", MIB)]] * 8)
    made = []
    for rate in (400, 800):
        parts = preset("hgx-h100-8").parts
        # Without a cost model, messages go over links.
        network = {key: value for key, value in parts.network.items() if key != "costs"}
        parts = replace(parts, network={**network, "bandwidth": [rate]}, congestion="aware")
        result = studio.simulate(trace, studio.sim.parts.interpret(parts).config, native=compiled())
        made.append(
            build_simulated_side(Run(f"{rate}", result, parts), info(f"{rate}", parts, result.makespan_ns))
        )
    shown = show_summary(build_lineup(made))
    tables = find_all(shown, "Table")
    [head, *links] = find_all(tables[2], "Tr")
    assert texts(head).split() == [
        "Link",
        "A,",
        "time",
        "sending",
        "B",
        "B",
        "−",
        "A,",
        "time",
        "A,",
        "bytes",
        "B",
    ]
    assert len(links) == 1
    assert "and 15 more links alike" in texts(links[0])
    loads = [float(load) for load in re.findall(r"([\d.]+) %", texts(shown))]
    assert loads
    assert max(loads) <= 100


def test_a_run_beyond_its_ports_carries_the_mark_and_one_button_that_runs_it_properly(tmp_path):
    """The cured run says what the cure changed."""
    nodes = [collective(at, "ALL_REDUCE", 64 * MIB) for at in range(1, 9)]
    many = {"active-chunks-per-dimension": 8, "preferred-dataset-splits": 8}
    keeper = Workspace(tmp_path)

    def kept(result, cures=None):
        job = keeper.save(result.trace, "a")
        run = keeper.save_run(job, Run("a", result, build_parts(result.config), cures=cures))
        return keeper.run_info(job, run)

    wrong = kept(simulated([nodes] * 8, **many))
    said = texts(show_warnings(wrong))
    assert said.count("impossible") == len(wrong.doubts) == 2
    [button] = find_all(show_warnings(wrong), "Button")
    assert texts(button) == "Run with --model full"
    assert getattr(show_mark(wrong), "aria-label").startswith("impossible: More was sent")
    right = studio.simulate(
        trace_of([nodes] * 8), interpret(apply_cures(wrong.tables, wrong.doubts)).config, native=compiled()
    )
    cures = Cured(format_cure_options(wrong.doubts), wrong.makespan_ns, wrong.id)
    cured = kept(right, cures)
    assert cured.doubts == ()
    assert show_mark(cured) is None
    assert re.fullmatch(r"With --model full: \S+ \S+ instead of \S+ \S+\.", texts(show_warnings(cured)))
    assert "congestion aware" in _IDEAL


def test_a_run_says_which_collectives_take_a_slower_way_on_its_page_and_in_its_report(tmp_path):
    """On one node of MI300X RCCL takes 1 MiB twice as long over ports of 500 GB/s as over such of 448."""
    keeper = Workspace(tmp_path)
    job = keeper.save(trace_of([[collective(1, "BROADCAST", MIB)]] * 8), "a")

    def kept(rate):
        parts = with_settings(studio.preset("mi300x", npus=8).parts, (f"bandwidth=[{rate}]",))
        result = studio.simulate(keeper.load(job), interpret(parts).config, native=compiled())
        return keeper.run_info(job, keeper.save_run(job, Run("a", result, parts)))

    assert "quickest way" not in texts(show_warnings(kept(448)))
    slow = kept(500)
    assert (
        "1 of 1 collective is not carried out in the quickest way: BROADCAST of 1.00 MiB by 8 ranks"
        in texts(show_warnings(slow))
    )
    side = build_simulated_side(keeper.load_run(job, slow.id), slow)
    assert slow.slower_way in html.unescape(build_report([side]))


@pytest.mark.parametrize("congestion", ["unaware", "aware"])
def test_the_load_of_a_dimension_is_one_number_everywhere(congestion):
    """A ring has two ports: 100 % is what both can send. Without congestion many chunks offer more than that."""
    system = {
        "scheduling-policy": "LIFO",
        "collective-optimization": "baseline",
        "preferred-dataset-splits": 8,
        "active-chunks-per-dimension": 8,
        "all-reduce-implementation": ["ring"],
    }
    network = {"topology": ["Ring"], "npus_count": [4], "bandwidth": [50], "latency": [500]}
    parts = Parts(network, system, congestion=congestion)
    trace = trace_of([[collective(1, "ALL_REDUCE", 64 * MIB)]] * 4)
    result = studio.simulate(trace, studio.sim.parts.interpret(parts).config, native=compiled())
    carried = result.dimensions[0]
    room = carried.capacity_bytes_per_ns * 4 * result.makespan_ns
    assert carried.capacity_bytes_per_ns == 2 * result.config.topology.dims[0].bytes_per_ns
    load = int(carried.bytes.sum()) / room
    assert (load > 1) == (congestion == "unaware")
    side = build_simulated_side(Run("ring", result, parts), info("ring", parts, result.makespan_ns))
    told = build_report([side])
    shown = f"{100 * load:.1f} %"
    assert f">{shown}</span>" in told.split("Dimensions of the network</h3>")[1].split("</table>")[0]
    assert ("can be more than 100 %" in told) == (congestion == "unaware")
    assert shown in texts(_build_dimension_table(result))
    compared = build_lineup([side, side])
    [figure] = [one for one in compared.comparisons[0].dimensions if one.unit == "share"]
    assert (figure.a, figure.b) == (load, load)
    assert f"{shown} {shown} 0 ns" in texts(show_summary(compared))
    gantt = Gantt(result.trace, result.timeline())
    [series, *_] = compute_network_load(result, gantt)
    assert (series.title, series.steps.bins(0, result.makespan_ns, 1)[0][0]) == (
        "offered load of dimension 0",
        pytest.approx(load),
    )
    assert ("not what a network could carry" in series.about) == (congestion == "unaware")


def test_ranks_that_finish_at_times_that_read_the_same_are_told_once():
    one = simulated([[node(1, "COMP", micros=10)]] * 8)
    level = f"All 8 ranks finish at {format_ns(one.makespan_ns)}"
    assert describe_spread(one, range(8)) == f"{level}."
    near = simulated([[node(1, "COMP", micros=10_000_001 - (at > 0))] for at in range(8)])
    assert describe_spread(near, range(8)) == "All 8 ranks finish at 10.0 s, 1.00 µs apart."
    far = simulated([[node(1, "COMP", micros=10 + 10 * (at > 0))] for at in range(8)])
    assert describe_spread(far, range(8)).startswith(
        "Ranks finish from 10.0 µs (rank 0) to 20.0 µs (7 ranks)"
    )


def test_runs_of_a_job_stand_in_a_line_each_with_their_model_and_what_differs():
    """Only runs of one model are ranked; a cell that is cut has all of it in its title."""
    tables = preset("hgx-h100-8").under("astra-sim")
    system = {**tables.system, "boost-mode": 7, "L": 11, "o": 12, "g": 13, "G": 14}
    other = replace(tables, system=system, options={"comm-scale": 3}, congestion="aware", groups={"1": [0]})
    assert describe_differences(other, tables) == ["L 11 ns", "o 12 ns", "g 13 ns", "G 14 ns/B",
        "congestion aware", "comm groups 1 given"]  # fmt: skip
    one = info("one", tables, 10)
    rows = [
        texts(row).split()
        for row in find_all(
            build_run_table([one, info("two", other, 9), info("three", tables, 12)], "one", None, "job"), "Tr"
        )
    ]
    model = ["astra-sim", "unaware"]
    assert rows[1][:6] == ["one", *model, "10", "ns", "fastest"]
    assert rows[1][6] == "shown"
    # The only run of its model, though it finishes first.
    assert rows[2][:7] == ["two", "astra-sim", "aware", "9", "ns", "6", "settings:"]
    assert " ".join(rows[3]).startswith("three astra-sim unaware 12 ns +20.0 % the same system")
    assert "boost-mode" not in str(rows)
    assert "comm-scale" not in str(rows)


def test_the_name_of_a_run_says_first_what_tells_it_from_the_others():
    tables = preset("hgx-h100-8").under("astra-sim")
    first = name_run(tables)
    assert first == "400 GiB/s · Switch 8"
    runs = [info(first, tables, 10)]
    later = replace(tables, network={**tables.network, "latency": [3333]})
    assert name_run(later, [first], runs) == "latency 3.33 µs · 400 GiB/s · Switch 8"
    assert name_run(tables, [first], runs) == "400 GiB/s · Switch 8 · 2nd run"
    odd = replace(tables, network={**tables.network, "bandwidth": [1000 / 7]})
    assert name_run(odd, [first], runs) == "142.9 GiB/s · Switch 8"


def info(name, tables, makespan):
    summary = RunSummary(makespan, 1)
    return RunInfo(
        name,
        "job",
        name,
        1.0,
        tables,
        "compatible",
        "unaware",
        8,
        1,
        makespan,
        summary,
        1.0,
        1,
        "",
        "",
        "",
        (),
    )


def test_lines_that_say_the_same_are_shown_once():
    def one(at, status, name="a system"):
        return Simulation(f"{at}", "job", name, Parts({}, {}), created=at, status=status)

    lines = build_progress_list(
        [one(3, "cancelled"), one(2, "cancelled"), one(1, "interrupted"), one(0, "done")], 9
    )
    assert [texts(line).split(" Dismiss")[0].strip() for line in lines] == [
        "a system was interrupted: the studio was closed.",
        "a system was cancelled.",
    ]
    assert len(build_progress_list([one(1, "cancelled"), one(2, "cancelled", "another")], 9)) == 2
    assert len(build_progress_list([one(1, "queued"), one(2, "queued")], 9)) == 2


_TYPED = [setting for setting in SETTINGS if setting.type not in ("flag", "choice")]


@pytest.mark.parametrize("setting", _TYPED, ids=lambda setting: setting.path)
def test_a_number_far_beyond_every_limit_breaks_no_line(setting):
    """Whatever field 1e99 is typed into, nothing that is shown of it is a hundred digits long."""
    key = f"{setting.key}[0]" if setting.per_dimension or setting.type == "algorithms" else setting.key
    tables = with_text(preset("hgx-h100-8").parts, key, "1e99")
    examined = examine_parts(tables)
    job = infer_completeness(trace_of([[collective(1, "ALL_REDUCE", MIB)]] * 8))
    shown = [name_run(tables), texts(build_form(Draft(tables, ""))), texts(build_folds(Draft(tables, "")))]
    shown += describe_differences(tables, preset("hgx-h100-8").parts)
    shown += [
        texts(message)
        for messages in collect_problem_texts(examined.problems).values()
        for message in messages
    ]
    if examined.config:
        shown.append(texts(show_facts(examined.config, job, "job", recorded=False)))
    assert not re.search(r"[0-9,]{25}", " ".join(shown))
