"""Requests through continuous batching: schedules worked by hand, conservation, step times, the command and bad input."""

import json
from dataclasses import replace
from itertools import pairwise

import pytest
from click.testing import CliRunner
from hypothesis import example, given, settings
from hypothesis import strategies as st

import studio
from studio.cli import load_command
from studio.commands.requests import text
from studio.errors import ConfigError
from studio.figures.serving import draw_latency, draw_memory
from studio.generation.inference.batches import Load, Piece, sum_load
from studio.generation.inference.batching import Course, Policy, count_blocks, serve, serve_together
from studio.generation.inference.counts import BF16
from studio.generation.inference.deployment import StepWish, build_steps
from studio.generation.inference.job import make_steps
from studio.generation.inference.memory import count_activation_bytes, count_weight_bytes
from studio.generation.inference.options import build_asked_steps
from studio.generation.inference.requests import Request, parse_requests, scale_arrivals
from studio.generation.inference.serving import (
    build_server,
    compute_latencies,
    describe_serving,
    serve_requests,
    summarise_outcome,
)
from studio.generation.inference.step_times import StepTimes
from studio.generation.models import Model, find_model

TINY = Model("tiny", 6, 256, 8, 4, 32, 512, 1_000, 4_096)
HEAD = "TIMESTAMP,ContextTokens,GeneratedTokens"


def constant(_load):
    return 100.0


def test_a_schedule_worked_by_hand():
    """Of steps of 4 tokens, 2 sequences and 100 ns.

    0–100: A reads 4 of 6. 100–200: A reads 2 and makes its first; B reads 2 of 3. 200–300: A makes its second, B reads 1 and makes
    its first; C, come at 150, waits, for two run. 300–400: A and B make their last. 400–500: C reads 2, 500–600: its last.
    """
    requests = [Request(0, 6, 3), Request(0, 3, 2), Request(150, 2, 2)]
    served, steps = serve(requests, Policy(budget=4, sequences=2, blocks=9), constant)
    assert [each.first_ns for each in served] == [200, 300, 500]
    assert [each.finish_ns for each in served] == [400, 400, 600]
    assert [step.load.tokens for step in steps] == [4, 4, 2, 2, 2, 1]
    assert [step.load.logits for step in steps] == [0, 1, 2, 2, 1, 1]
    assert steps[1].load.pairs == (5 + 6) + (1 + 2)
    assert steps[2].load.cached == 7 + 3
    assert [step.waiting for step in steps] == [1, 0, 1, 1, 0, 0]
    server = fake(Policy(4, 2, 9))
    seen = compute_latencies(serve_requests(server, requests))
    assert seen["ttft"].tolist() == [200, 300, 350]
    assert seen["tpot"].tolist() == [100, 100, 100]
    assert seen["queue"].tolist() == [0, 100, 250]
    told = summarise_outcome(serve_requests(server, requests))
    assert told["output_tokens_per_s"] == 7 / 600e-9
    assert told["ttft_ns"]["p50"] == 300


def test_batches_take_turns_in_a_pipeline_by_hand():
    """Stages of 100 and 60 ns, 10 ns between them, 5 ns back; one of two requests in each batch.

    A is at the first stage 0–100, sent until 110, and at the second 110–170; B 110–210 and 220–280; A again 220–320, since its token
    was back at 175, and so on: the first stage is never free, and the last tokens come at 610 and 720. A request alone waits for its
    own token.
    """
    policy = Policy(budget=8, sequences=4, blocks=9, stages=2)

    def course(_load):
        return Course((100.0, 60.0), (10.0,), 5.0)

    served, steps = serve([Request(0, 4, 3), Request(0, 4, 3)], policy, course)
    assert [each.admitted_ns for each in served] == [0, 110]
    assert [each.first_ns for each in served] == [170, 280]
    assert [each.finish_ns for each in served] == [610, 720]
    assert [(step.start_ns, step.end_ns) for step in steps] == [
        (at, at + 170) for at in (0, 110, 220, 330, 440, 550)
    ]
    assert [step.running for step in steps] == [1, 2, 2, 2, 2, 2]
    [alone], _ = serve([Request(0, 4, 3)], policy, course)
    assert alone.finish_ns == 2 * 175 + 170
    # A slower second stage sets the pace: B waits before it until A's token is sent.
    served, _ = serve(
        [Request(0, 4, 1), Request(0, 4, 1)], policy, lambda load: Course((60.0, 100.0), (10.0,), 5.0)
    )
    assert [each.finish_ns for each in served] == [170, 275]


def test_drafts_are_made_on_the_first_stage_by_hand():
    """The same stages; a draft is made in 10 ns, one for each sequence, and all are accepted: a prompt, then two times two tokens.

    Alone a request has 100 + 10 ns at the first stage, and 60 at the second: 0–110, 120–180, its token back at 185; again 185–295,
    305–365 and 370–480, 490–550. Of two the other's turn begins when the first stage has sent: A 0–110 and 120–180, B 120–230 and
    240–300, A 240–350 and 360–420, B 360–470 and 480–540, A 480–590 and 600–660, B 600–710 and 720–780.
    """
    policy = Policy(budget=8, sequences=4, blocks=9, draft=1, acceptance=1.0, stages=2)

    def course(_load):
        return Course((100.0, 60.0), (10.0,), 5.0)

    [alone], steps = serve([Request(0, 4, 5)], policy, course, lambda load: 10.0)
    assert (alone.first_ns, alone.finish_ns) == (180, 550)
    assert [step.load.tokens for step in steps] == [4, 2, 2]
    served, steps = serve([Request(0, 4, 5), Request(0, 4, 5)], policy, course, lambda load: 10.0)
    assert [each.first_ns for each in served] == [180, 300]
    assert [each.finish_ns for each in served] == [660, 780]
    assert [(step.start_ns, step.end_ns) for step in steps] == [
        (at, at + 180) for at in (0, 120, 240, 360, 480, 600)
    ]
    # Weights and cache of what drafts take room on the first stage alone: 3 of 6 layers each, of which the first has 6 more.
    plain, drafting = (
        build_server(build_asked_steps(TINY, 4, {"tp": 2, "pp": 2, **more}), "h100", **given)
        for more, given in (({}, {}), ({"draft": 1, "draft_model": TINY}, {"acceptance": 1.0}))
    )
    assert drafting.draft_times.what.layout.ranks == 2
    assert len(drafting.draft_times.config.topology.dims) == 1
    assert plain.policy.blocks / drafting.policy.blocks == pytest.approx(9 / 3, rel=1e-3)


def test_a_pipeline_serves_as_it_is_simulated():
    """Two sequences of a token each, in two batches, for three steps: the end of the schedule is that of the simulated job."""
    config = studio.preset("hgx-h100", npus=2).config
    steps = build_steps(TINY, StepWish(2, pp=2, batch=2, micro_batches=2, steps=3, context="1"))
    steps = replace(steps, batches=(((Piece(1, 1, 0),), (Piece(1, 1, 0),)),))
    simulated = studio.simulate(make_steps(steps, "as served"), config)
    times = StepTimes(steps, config)
    served, _ = serve([Request(0, 1, 3), Request(0, 1, 3)], Policy(8, 8, 9, stages=2), times.course)
    assert served[1].finish_ns == pytest.approx(simulated.makespan_ns, rel=0.01)
    # A stage takes what its layers take, however many they are: those of a model of 24 come from models of 4 and 8.
    deep = replace(TINY, layers=24)
    far = StepTimes(build_steps(deep, StepWish(2, pp=2, stage_layers=(10, 14))), config)
    load = Load(64, 64, 64, 64)
    assert far(load) == pytest.approx(far.whole(load), abs=deep.layers)
    first, second = far.course(load).stages
    assert second > first


def test_replicas_that_divide_experts_step_together_by_hand():
    """10 ns a token. A reads 8 in the first step and is done; B reads 2 and makes its first at 80 as well, its second at 90."""
    parts = [[Request(0, 8, 1)], [Request(0, 2, 2)]]
    policies = [Policy(8, 4, 9), Policy(8, 4, 9)]
    (one, its), (other, theirs) = serve_together(parts, policies, lambda load: 10.0 * load.tokens)
    assert (one[0].finish_ns, other[0].first_ns, other[0].finish_ns) == (80, 80, 90)
    assert [len(its), len(theirs)] == [1, 2]
    # A step of the table is that of replicas that all work on as much.
    sparse = replace(find_model("mixtral-8x7b"), layers=2)
    config = studio.preset("hgx-h100", npus=2).config
    steps = build_steps(sparse, StepWish(2, ep=2, batch=16, context="64"))
    job = studio.simulate(make_steps(steps, "a step"), config)
    assert StepTimes(steps, config).whole(sum_load(steps.batches[0][0])) == job.makespan_ns


def test_drafted_tokens_that_are_accepted_save_steps_by_hand():
    """Two are drafted a sequence. All accepted: A reads 4 and makes its first, then three a step, the last step the one that is left.

    None accepted: a token a step as without, though each step reads three; blocks of those that are not kept are given back.
    """
    requests = [Request(0, 4, 8)]
    policy = Policy(budget=16, sequences=2, blocks=1, draft=2, acceptance=1.0)
    passes = []
    served, steps = serve(requests, policy, constant, lambda load: passes.append(load) or 10.0)
    assert [step.load.tokens for step in steps] == [4, 3, 3, 1]
    assert [step.load.logits for step in steps] == [1, 3, 3, 1]
    # A pass of the draft model reads the prompt, two more come before each step that drafts, none before the last.
    assert passes == [
        sum_load((Piece(1, 4, 0),)), *(sum_load((Piece(1, 1, context),)) for context in (4, 5, 7, 8)),
    ]  # fmt: skip
    assert served[0].first_ns == 110
    assert served[0].finish_ns == 4 * 100 + 5 * 10
    assert [(step.drafted, step.rejected) for step in steps] == [(0, 0), (2, 0), (2, 0), (0, 0)]
    none, steps = serve(requests, replace(policy, acceptance=0.0), constant)
    assert [step.load.tokens for step in steps] == [4, 3, 3, 3, 3, 3, 2, 1]
    assert sum(step.rejected for step in steps) == 5 * 2 + 1
    assert none[0].finish_ns == serve(requests, replace(policy, draft=0), constant)[0][0].finish_ns == 800
    told = summarise_outcome(serve_requests(fake(replace(policy, acceptance=0.0)), requests))
    assert (told["drafted_tokens"], told["accepted_tokens"], told["recomputed_tokens"]) == (11, 0, 0)


def test_accepted_tokens_are_as_many_as_leviathans_formula():
    """Equation 1: (1 − α^(γ+1)) / (1 − α) tokens a step, in the mean."""
    policy = Policy(budget=64, sequences=1, blocks=2_000, draft=3, acceptance=0.7)
    served, steps = serve([Request(0, 1, 20_001)], policy, constant)
    decoding = len(steps) - 1
    assert 20_000 / decoding == pytest.approx((1 - 0.7**4) / (1 - 0.7), rel=0.02)
    assert served[0].finish_ns == 100.0 * len(steps)


def fake(policy):
    """Return a server whose steps take 100 ns."""
    server = build_server(build_asked_steps(TINY, 1, {}), "h100")
    return replace(server, policy=policy, times=constant)


def test_a_full_cache_sends_the_last_one_back_by_hand():
    """Two blocks of 16: both prompts are read by 100; A needs a second block, so B goes; A is done at 300, B reads all anew."""
    requests = [Request(0, 16, 3), Request(0, 16, 2)]
    served, steps = serve(requests, Policy(budget=32, sequences=2, blocks=2), constant)
    assert [each.first_ns for each in served] == [100, 100]
    assert [each.finish_ns for each in served] == [300, 400]
    assert [each.preemptions for each in served] == [0, 1]
    assert [step.load.tokens for step in steps] == [32, 1, 1, 17]
    assert [step.blocks for step in steps] == [2, 2, 2, 2]
    assert summarise_outcome(serve_requests(fake(Policy(32, 2, 2)), requests))["recomputed_tokens"] == 16


@given(
    st.lists(st.tuples(st.integers(0, 500), st.integers(1, 60), st.integers(1, 40)), min_size=1, max_size=12),
    st.integers(1, 40), st.integers(1, 5), st.integers(7, 12), st.integers(0, 3), st.integers(1, 3),
)  # fmt: skip
@example(
    [
        (115, 25, 28),
        (120, 37, 30),
        (470, 48, 14),
        (305, 31, 34),
        (425, 44, 12),
        (164, 52, 30),
        (282, 33, 26),
        (290, 38, 4),
        (364, 4, 27),
    ],
    40,
    3,
    7,
    3,
    3,
).via("batches sent each other's sequences back for ever")
@settings(max_examples=30)
def test_every_request_is_served_within_the_limits(rows, budget, sequences, blocks, draft, stages):
    requests = [Request(*row) for row in sorted(rows)]
    policy = Policy(budget, sequences, blocks, draft, 0.5, stages=stages)

    begun = []

    def course(load):
        begun.append(load)
        assert len(begun) < 20_000, "it does not come to an end"
        return Course((10.0 + load.tokens, *(12.0 for _ in range(stages - 1))), (3.0,) * (stages - 1), 1.0)

    served, steps = serve(requests, policy, course)
    for each in served:
        assert each.request.arrival_ns <= each.admitted_ns < each.first_ns <= each.finish_ns
    assert max(step.load.tokens for step in steps) <= budget
    assert max(step.running for step in steps) <= sequences
    assert max(step.blocks for step in steps) <= blocks
    # Each stage has one step at a time, a batch one in the whole pipeline.
    assert all(before.start_ns + before.load.tokens < after.start_ns for before, after in pairwise(steps))
    assert all(before.end_ns <= after.start_ns for before, after in zip(steps, steps[stages:], strict=False))
    needed = sum(request.tokens for request in requests)
    rejected = sum(step.rejected for step in steps)
    computed = sum(step.load.tokens for step in steps) - rejected
    assert computed >= needed
    if not any(each.preemptions for each in served):
        assert computed == needed
        made = sum(step.load.logits for step in steps) - rejected
        assert made == sum(request.output for request in requests)
        pairs = sum(request.tokens * (request.tokens + 1) // 2 for request in requests)
        assert rejected or sum(step.load.pairs for step in steps) == pairs


def test_times_between_simulated_steps_are_close_to_simulating_them():
    config = studio.preset("hgx-h100", npus=2).config
    times = StepTimes(build_steps(TINY, StepWish(2, tp=2)), config)
    # On the grid, with attention of the tokens alone: as simulated whole, to a nanosecond a layer.
    on_grid = Load(64, 64, 64, 64)
    assert abs(times(on_grid) - times.whole(on_grid)) <= TINY.layers
    loads = [Load(37, 37, 9_000, 9_000), Load(700, 3, 300_000, 3_000)]
    assert times.check(loads) < 0.03
    before = times.simulations
    times(loads[0])
    assert times.simulations == before


def test_steps_of_latent_attention_are_close_to_simulating_them():
    """Tokens that decode and those of prompts take other times, also beside each other; a dense layer comes before layers of experts."""
    model = replace(find_model("deepseek-v2"), layers=9)
    config = studio.preset("hgx-h100", npus=4).config
    for layout in (StepWish(4, tp=4), StepWish(4, tp=2, pp=2, stage_layers=(5, 4)), StepWish(4, tp=2, ep=2)):
        times = StepTimes(build_steps(model, layout), config)
        on_grid = sum_load((Piece(64, 1, 0),))
        assert abs(times(on_grid) - times.whole(on_grid)) <= model.layers
        decoding, reading = Piece(37, 1, 3_000), Piece(1, 300, 700, 0)
        assert (
            times.check([sum_load((decoding,)), sum_load((reading,)), sum_load((decoding, reading))]) < 0.05
        )
    # Nothing but which part a token is of tells these apart.
    assert times(sum_load((Piece(64, 1, 2_000),))) != times(sum_load((Piece(64, 1, 2_000, 0),)))


def test_what_is_compressed_is_whole_on_every_rank_by_hand():
    """DeepSeek-V2: 60 layers of 512 + 64 elements, 69,120 bytes a token in bf16, on each of 8 ranks.

    Of 0.9 · 141 GB a rank has 60.2 GB of weights: an eighth of 235.7 G parameters in 2 bytes each, and all of what every rank holds:
    the matrices that compress, routers and norms.
    """
    server = build_server(build_asked_steps("deepseek-v2", 8, {"tp": 8}), "h200")
    model, layout = server.steps.model, server.steps.layout
    most = sum_load((Piece(256, 1, 0), Piece(1, 2_048 - 256, 0, 0)))
    room = (
        0.9 * 141e9
        - count_weight_bytes(model, layout, 0, BF16)
        - count_activation_bytes(model, layout, 0, most)
    )
    assert server.policy.blocks == room // (16 * 69_120)
    whole = 60 * 5_120 * (1_536 + 576) + 59 * 5_120 * 160 + 60 * (2 * 5_120 + 1_536 + 512) + 5_120
    assert (
        count_weight_bytes(model, layout, 0, BF16) == 2 * (235_741_434_880 + 7 * whole) // 8 == 60_156_651_520
    )
    requests = [Request(0, 1_000, 5), Request(0, 3_000, 5)]
    outcome = serve_requests(server, requests)
    held = describe_serving(server, [outcome])["policy"]["kv_cache_bytes_of_a_rank"]
    assert held == server.policy.blocks * 16 * 69_120
    assert summarise_outcome(outcome)["requests"] == 2
    [records] = outcome.steps
    assert [record.load.tokens for record in records[:3]] == [2_048, 1_953, 2]
    # The first prompt has ended with the first step, and its first token decodes beside the rest of the second.
    assert (records[1].load.decoding.tokens, records[1].load.reading.tokens) == (1, 1_952)
    assert records[1].load.reading.cached == 3_000


def test_a_draft_model_takes_room_and_time_of_its_own():
    # As many sequences as a step has tokens, so that drafts add none.
    plain = build_server(build_asked_steps("llama3.1-8b", 1, {}), "h100", sequences=2_048)
    options = {"draft": 2, "draft_model": "llama3.1-8b"}
    twice = build_server(
        build_asked_steps("llama3.1-8b", 1, options), "h100", acceptance=1.0, sequences=2_048
    )
    # Two times the weights, and blocks of two times the bytes.
    assert twice.draft_times.what.model == twice.times.what.model
    each, weights = 16 * 131_072, 2 * 8_030_261_248
    room = 0.9 * 80e9
    used = room - plain.policy.blocks * each - weights
    assert twice.policy.blocks * 2 * each == pytest.approx(room - 2 * weights - used, abs=4 * each)
    small = replace(
        build_server(build_asked_steps(TINY, 1, {"draft": 2, "draft_model": TINY}), "h100", acceptance=1.0),
        times=constant,
        draft_times=lambda _load: 10.0,
    )
    assert (
        summarise_outcome(serve_requests(small, [Request(0, 4, 7)]))["latency_ns"]["p50"] == 3 * 100 + 5 * 10
    )


def test_more_load_makes_requests_wait_longer():
    server = build_server(build_asked_steps(TINY, 2, {"dtype": "fp8"}), "h100", budget=256)
    requests = parse_requests([HEAD, *(f"{0.002 * n},300,20" for n in range(20))], "a.csv")
    slow, fast = (summarise_outcome(serve_requests(server, requests, load)) for load in (0.1, 1e6))
    assert slow["ttft_ns"]["p90"] < fast["ttft_ns"]["p90"]
    assert slow["requests_per_s"] < fast["requests_per_s"]
    assert fast["most_running"] > 1 == slow["most_running"]
    assert scale_arrivals(requests, 2)[1].arrival_ns == requests[1].arrival_ns // 2


def test_forms_of_traces_of_requests():
    azure = parse_requests([HEAD, "2023-11-16 18:17:03.9799600,374,44", "2023-11-16 18:17:05.0,9,1"], "a.csv")
    assert azure == (Request(0, 374, 44), Request(1_020_040_000, 9, 1))
    burst = parse_requests(
        ["Timestamp,Model,Request tokens,Response tokens", "5,ChatGPT,472,18", "", "45,x,1,2"], "b.csv"
    )
    assert burst == (Request(0, 472, 18), Request(40_000_000_000, 1, 2))


@pytest.mark.parametrize(
    ("lines", "said"),
    [
        (["TIMESTAMP,ContextTokens"], "no column of tokens generated"),
        ([], "no column of arrival times; there are: none"),
        ([HEAD], "holds no requests"),
        ([HEAD, "1,2"], "line 2: 2 columns"),
        ([HEAD, "1,-2,3"], "line 2: tokens of prompts is '-2'"),
        ([HEAD, "1,2,0"], "line 2: tokens generated is '0'"),
        ([HEAD, "-1,2,3"], "line 2: arrival is '-1'"),
        ([HEAD, "soon,2,3"], "line 2: arrival is 'soon'"),
        ([HEAD, "nan,2,3"], "line 2: arrival is 'nan'"),
        ([HEAD, "2,2,3", "1,2,3"], "line 3: arrival 1 is before"),
    ],
)
def test_bad_traces_of_requests_are_refused(lines, said):
    with pytest.raises(ConfigError) as caught:
        parse_requests(lines, "a.csv")
    assert said in caught.value.message


def test_what_cannot_be_served_is_refused():
    def server(options, **limits):
        return build_server(
            build_asked_steps(options.pop("model", "llama3-8b"), options.pop("ranks", 1), options),
            "h100",
            **limits,
        )

    for options, limits, said in (
        ({"model": "llama3-70b"}, {}, "leave no room for the KV cache"),
        ({"ranks": 2, "pp": 2, "model": "llama3.1-405b"}, {}, "room for the KV cache on stage"),
        ({"ranks": 2, "ep": 2}, {}, "no experts"),
        ({"draft": 2}, {}, "nothing says how many drafted tokens are accepted"),
        ({"draft": 2}, {"acceptance": 1.5}, "--acceptance is 1.5"),
        ({}, {"acceptance": 0.5}, "--acceptance is 0.5 with --draft 0"),
        ({"draft_model": "qwen2.5-0.5b"}, {}, "without --draft"),
        ({}, {"budget": 0}, "--token-budget is 0"),
        ({}, {"memory_share": 2}, "--memory-share is 2"),
    ):
        with pytest.raises(ConfigError, match=said):
            server(dict(options), **limits)
    with pytest.raises(
        ConfigError, match="1 of 2 requests are longer than the context of llama3-8b, 8,192 tokens"
    ):
        serve_requests(server({}), [Request(0, 5, 5), Request(0, 8_190, 5)])
    small = server({"model": "llama3.1-8b"}, memory_share=0.22)
    with pytest.raises(ConfigError, match="longer than the KV cache of a replica"):
        serve_requests(small, [Request(0, 100_000, 5)])
    with pytest.raises(ConfigError, match="--load is 0"):
        serve_requests(small, [Request(0, 5, 5)], 0)
    assert count_blocks(17) == 2


def test_the_command_says_what_requests_see(tmp_path):
    path = tmp_path / "requests.csv"
    path.write_text("\n".join([HEAD, *(f"{n},{50 + n},{5 + n}" for n in range(4))]))
    given = [str(path), "--model", "qwen2.5-0.5b", "--gpu", "h100", "--ranks", "1"]
    command = load_command("requests")
    page = tmp_path / "report.html"
    done = CliRunner().invoke(command, [*given, "--load", "1,4", "--json", "-o", str(page)])
    assert done.exit_code == 0, done.output
    told = json.loads(done.output)
    assert [load["load"] for load in told["loads"]] == [1, 4]
    assert told["loads"][0]["ttft_ns"]["p50"] <= told["loads"][0]["latency_ns"]["p50"]
    assert told["step_time_error"] < 0.05
    assert len(told["loads"][0]["over_time"]) == 400
    assert "time to first token" in text(told)
    assert "Latency over load" in page.read_text(encoding="utf-8")
    figure = draw_latency(told["loads"], "ttft_ns", dark=True)
    assert [line.name for line in figure.data] == ["p50", "p90", "p99"]
    assert list(figure.data[0].x) == [load["offered_per_s"] for load in told["loads"]]
    shares = draw_memory(told["loads"][0]["over_time"], dark=False).data[0]
    assert max(shares.y) == max(sample["kv_cache_share"] for sample in told["loads"][0]["over_time"]) > 0
    assert CliRunner().invoke(command, [str(path), "--gpu", "h100", "--ranks", "1"]).exit_code == 2
    path.write_text(f"{HEAD}\n0,90000,5\n1,50,1")
    told = json.loads(CliRunner().invoke(command, [*given, "--skip-long", "--json"]).output)
    assert (told["left_out"], told["loads"][0]["requests"]) == (1, 1)
    assert told["loads"][0]["tpot_ns"]["p50"] is None
    assert "longer than the context" in str(CliRunner().invoke(command, given).exception)
