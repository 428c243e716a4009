"""The search for the best layout: what it leaves out is never better than what it finds."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from typing import Any

import pytest
from click.testing import CliRunner

import studio
from studio.cli import load_command
from studio.generation.layout import OFFLOADS
from studio.generation.models import Model
from studio.layout_search.layout_plan import LayoutPlan
from studio.layout_search.memory import compute_peak_memory
from studio.layout_search.running import simulate_layout
from studio.layout_search.search import Item, build_item_key, select_front
from studio.layout_search.space import build_frame, list_candidates
from studio.layout_search.unfit import describe_layout
from studio.layout_search.why import list_part_times, list_reasons
from studio.sim.parts import interpret

TINY = Model("tiny", 4, 64, 4, 2, 16, 128, 96, 64)
# As many parameters as llama3-70b, in a tenth of the nodes.
BROAD = Model("broad", 8, 25_600, 200, 8, 128, 86_016, 128_256, 8_192)


def tiny_plan(**options: Any) -> LayoutPlan:
    return studio.plan(TINY, **{"ranks": 4, "gpu": "h100", "batch": 4, "recompute": "none", **options})


@pytest.fixture(scope="module")
def found() -> LayoutPlan:
    return tiny_plan(top=3, micro_batch=1, sequence_parallel=True)


@pytest.fixture(scope="module")
def every(found: LayoutPlan) -> list[Item]:
    """All layouts that fit, each simulated."""
    items = []
    for item in found.items:
        answer = simulate_layout(found.setting, item.candidate.options)
        assert not isinstance(answer, str)
        items.append(replace(item, answer=answer))
    return items


def numbers(items: list[Item]) -> list[tuple[int, int]]:
    return [(item.candidate.number, item.finish_ns) for item in items]


def test_the_fastest_are_those_of_simulating_all(found: LayoutPlan, every: list[Item]) -> None:
    assert len(found.simulated) < len(every)
    assert numbers(found.ranked) == numbers(sorted(every, key=build_item_key)[:3])


def test_the_front_is_that_of_simulating_all(found: LayoutPlan, every: list[Item]) -> None:
    assert numbers(found.front) == numbers(select_front(every))


def test_a_layout_of_every_kind_is_simulated_and_none_of_it_comes_under_what_is_said(
    found: LayoutPlan, every: list[Item]
) -> None:
    assert {item.candidate.kind for item in found.kinds} == {item.candidate.kind for item in every}
    assert all(found.least_of_kind_ns(item.candidate.kind) <= found.step_ns(item) for item in every)


def test_no_layout_is_faster_than_its_bound(found: LayoutPlan, every: list[Item]) -> None:
    assert all(0 < item.bound_ns <= item.finish_ns for item in every if item.is_close)
    assert all(item.bound_ns <= item.finish_ns for item in every)


def test_parts_of_every_layout_add_up_to_its_step(found: LayoutPlan) -> None:
    names, rows = list_part_times(found)
    assert names[0] == "compute"
    assert all(sum(parts) == pytest.approx(step) for _, step, parts in rows)
    assert len(list_reasons(found)) == len(rows) - 1


def test_the_job_of_a_layout_takes_the_time_that_the_plan_says(found: LayoutPlan) -> None:
    trace = studio.generate(TINY, ranks=4, **found.best.candidate.options)
    result = studio.simulate(trace, interpret(found.setting.system).config)
    assert result.makespan_ns == found.best.finish_ns


@pytest.mark.parametrize(
    ("model", "ranks", "given"), [("llama3-70b", 64, {}), ("mixtral-8x7b", 16, {"sequence": 131_072})]
)
def test_words_tell_all_layouts_apart(model: str, ranks: int, given: dict[str, Any]) -> None:
    listed, _ = list_candidates(build_frame(model, ranks, {"batch": ranks, **given}, 8))
    words = [describe_layout(one) for one in listed]
    assert len(set(words)) == len(words)
    assert any("schedule interleaved, virtual-stages 4" in one for one in words)


def test_options_that_are_given_are_not_varied() -> None:
    frame = build_frame(TINY, 8, {"tp": 2, "zero": 1, "batch": 8}, 8)
    assert {(one.layout.tp, one.layout.zero) for one in list_candidates(frame)[0]} == {(2, 1)}


def test_a_prime_number_of_ranks_has_no_tensor_parallel_layout_across_nodes() -> None:
    found = tiny_plan(ranks=3, batch=3, micro_batch=1)
    assert [(item.candidate.layout.dp, item.candidate.layout.pp) for item in found.kinds] != []
    assert {item.candidate.layout.tp for item in found.items} == {1}


def test_one_rank_has_one_layout_for_each_micro_batch() -> None:
    found = tiny_plan(ranks=1, batch=2)
    assert [item.candidate.kind for item in found.items] == ["one rank"] * 2


def test_the_mfu_counts_what_the_published_formula_counts() -> None:
    found = studio.plan("gpt3-125m", ranks=1, gpu="h100", batch=1)
    seconds, layers, hidden, tokens = found.best.finish_ns / 1e9, 12, 768, 2_048
    flop = 72 * tokens * layers * hidden**2 * (1 + tokens / (6 * hidden) + 50_257 / (12 * layers * hidden))
    assert found.mfu(found.best) == pytest.approx(flop / (seconds * 989.4e12), rel=1e-3)
    assert found.tokens_per_s(found.best) == pytest.approx(tokens / seconds)


def test_a_model_that_fits_nowhere_says_what_would() -> None:
    with pytest.raises(studio.ConfigError, match="fits in the 80 GB") as error:
        studio.plan("llama3-70b", ranks=8, gpu="h100", zero=0, offload="none")
    # 70.6 billion parameters of 16 bytes on 8 ranks, and activations.
    assert "holds 143 GB: parameters 17.6 GB, gradients 17.6 GB, optimizer 106 GB" in error.value.message
    assert "Without --zero" not in error.value.hint
    ranks = int(re.search(r"With (\d+) ranks", error.value.hint)[1])
    assert ranks == 16
    assert least_held(ranks) <= 80e9 < least_held(ranks - 8)


def test_host_memory_is_tried_where_a_layout_does_not_fit_without() -> None:
    """ZeRO-Offload keeps 12 of 16 bytes of a parameter on the host; of the layouts that fit none has needed it without saying so."""
    given = {
        "zero": 0,
        "micro_batch": 1,
        "sequence_parallel": True,
        "schedule": "1f1b",
        "recompute": "selective",
    }
    found = studio.plan(BROAD, ranks=8, gpu="h100", top=2, **given)
    assert found.without_host.startswith("With 16 ranks")
    assert {item.candidate.layout.offload for item in found.items} == {"optimizer", "all"}
    every = []
    for item in found.items:
        layout = item.candidate.layout
        assert layout.offload != "none"
        for less in OFFLOADS[: OFFLOADS.index(layout.offload)]:
            assert (
                compute_peak_memory(found.frame.model, replace(layout, offload=less)).total
                > 80e9
                >= item.held.total
            )
        answer = simulate_layout(found.setting, item.candidate.options)
        assert not isinstance(answer, str)
        assert item.bound_ns <= answer.finish_ns
        every.append(replace(item, answer=answer))
    assert numbers(found.ranked) == numbers(sorted(every, key=build_item_key)[:2])
    assert {row["offload"] for row in found.rows()} == {item.candidate.layout.offload for item in found.items}
    # On a rank that holds all that it needs nothing goes to the host.
    assert tiny_plan(ranks=1, batch=2).without_host == ""


def least_held(ranks: int) -> int:
    frame = build_frame("llama3-70b", ranks, {"zero": 0, "recompute": "full", "schedule": "1f1b"}, 8)
    return min(compute_peak_memory(frame.model, one.layout).total for one in list_candidates(frame)[0])


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"gpu": None}, "Neither gpu nor preset"),
        ({"preset": "hgx-h100-16"}, "the system has 16 NPUs"),
        ({"top": 0}, "^top is 0; allowed: a whole number from 1 to 1,000"),
        ({"top": 5_000_000}, "^top is 5000000; allowed: a whole number from 1 to 1,000"),
        ({"batch": 7, "dp": 4}, "No layout of tiny divides on 4 ranks"),
        ({"tensor": 2}, "no option 'tensor'"),
    ],
)
def test_bad_input_names_value_and_what_is_allowed(options: dict[str, Any], words: str) -> None:
    with pytest.raises(studio.ConfigError, match=words):
        tiny_plan(**options)


def test_the_command_writes_results_and_a_job_that_simulates(tmp_path: Any) -> None:
    shape = "--model custom --layers 2 --hidden 64 --heads 4 --feed-forward 128 --vocabulary 96 --seq 64"
    more = f"--ranks 2 --gpu h100 --global-batch 2 --json -o {tmp_path}/l.parquet --jobs {tmp_path}/jobs"
    done = CliRunner().invoke(load_command("plan"), f"{shape} {more}".split())
    assert done.exit_code == 0, done.output
    told = json.loads(done.output)
    assert told["fit"] == len(told["layouts"]) > told["simulated"] - 1
    import pyarrow.parquet as parquet

    assert parquet.read_table(tmp_path / "l.parquet").num_rows == told["fit"]
    job = studio.read(told["files"][1])
    assert len(job.ranks) == 2
