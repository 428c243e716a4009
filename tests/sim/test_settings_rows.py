"""The tables of settings and algorithms: they fit the configuration, the golden cases and the documentation."""

from __future__ import annotations

import dataclasses
import re
import typing
from pathlib import Path

import pytest

from studio.errors import ConfigError
from studio.sim import config as configuration
from studio.sim import programs
from studio.sim.algorithms import ALGORITHMS, AlgorithmRow
from studio.sim.config import Algorithm
from studio.sim.extensions import Extensions
from studio.sim.kinds import CollectiveKind
from studio.sim.parts import Parts, build_parts, get_table, interpret
from studio.sim.problems import examine_parts
from studio.sim.setting_edits import with_settings, with_value
from studio.sim.settings import ALGORITHM_SETTINGS, SETTINGS, Setting
from studio.sim.systems.gpus import SYSTEM_OF
from tests.golden import records
from tests.settings_table import BEGIN, DOCUMENT, current
from tests.sim.test_extended import ALL_REDUCE, BROADCAST, collective, run, system

HELD = [setting for setting in SETTINGS if setting.fills and setting.type != "algorithms"]
NETWORK = {"topology": ["Ring"], "npus_count": [4], "bandwidth": [50], "latency": [500]}
SYSTEM = {"scheduling-policy": "LIFO", "collective-optimization": "baseline", "preferred-dataset-splits": 4}
MEMORY = {"memory-type": "MEMORY_POOL", "remote-mem-latency": 0, "remote-mem-bw": 1}
WHOLE = Parts(
    NETWORK,
    {
        **SYSTEM,
        "model-shared-bus": 1,
        "roofline-enabled": 1,
        "peak-perf": 1,
        "local-mem-bw": 1,
        "extended": {},
    },
    MEMORY,
)


def named(settings: typing.Iterable[Setting]) -> list[typing.Any]:
    return [pytest.param(setting, id=setting.key) for setting in settings]


def test_every_key_is_there_once() -> None:
    assert len({setting.key for setting in SETTINGS}) == len(SETTINGS)
    assert {setting.attribute for setting in ALGORITHM_SETTINGS} == set(typing.get_args(CollectiveKind))


@pytest.mark.parametrize("setting", named(HELD))
def test_a_row_names_an_attribute_of_the_configuration(setting: Setting) -> None:
    """With the same default, and of choices the same values."""
    owner = getattr(configuration, setting.fills.partition(".")[0])
    spec = next(spec for spec in dataclasses.fields(owner) if spec.name == setting.attribute)
    if setting.default is not None:
        assert spec.default == setting.default
    if setting.type == "choice":
        kind = typing.get_type_hints(owner)[setting.attribute]
        # GPUs are known by the files of the presets, not by a type.
        allowed = set(SYSTEM_OF) if kind == str | None else set(typing.get_args(kind))
        assert allowed == set(setting.values.values()) - {None}


@pytest.mark.parametrize("setting", named(SETTINGS))
def test_limits_are_the_same_in_files_and_in_the_configuration(setting: Setting) -> None:
    """What is beyond the limits of a row is refused by its name, with what is allowed, and can be replaced."""
    beyond: object = {"network": [-1]}.get(setting.file, -1)
    if setting.key == "congestion":
        beyond = "maybe"
    parts = with_value(WHOLE, setting, beyond)
    if setting.file == "run":
        assert parts.congestion == "unaware"
        return
    if setting.key == "switches":
        parts = with_value(parts, next(one for one in SETTINGS if one.key == "links"), [[0, 1, 5, 5]])
    if setting.key == "num-nodes":
        parts = with_settings(parts, ["memory-type=PER_NODE_MEMORY_EXPANSION", "num-npus-per-node=4"])
    with pytest.raises(ConfigError, match=setting.key) as refused:
        interpret(parts)
    assert "allowed: " in str(refused.value)
    assert setting.key in {key.partition("[")[0] for key in examine_parts(parts).problems}


@pytest.mark.parametrize("setting", named(SETTINGS))
def test_every_row_can_be_set_from_the_command_line(setting: Setting) -> None:
    text = {"algorithms": "ring", "speeds": '{"3": 0.5}', "links": "[[0,1,5,5]]", "flag": "1"}.get(
        setting.type
    )
    text = text or (setting.choices[-1].name if setting.choices else "1")
    parts = with_settings(WHOLE, [f"{setting.path}={text}"])
    assert setting.key in get_table(parts, setting.file)
    assert parts.names[setting.path] == "--set"


def test_golden_configurations_mean_what_they_say(shared: Path) -> None:
    """Every one of them is written as it was read: each number, choice and list, as far as its file has the key."""
    count = 0
    for record in records(shared / "oracle" / "astra_sim_public.jsonl.gz"):
        given = (record["network"], record["system"], record.get("memory"), None, record.get("cli") or {})
        parts = Parts(*given, record["mode"])
        try:
            config = interpret(parts).config
        except ConfigError:
            continue
        written = build_parts(config)
        assert interpret(written).config == config
        for setting in SETTINGS:
            mine, theirs = (get_table(one, setting.file) for one in (written, parts))
            if setting.key in mine and setting.key in theirs:
                value = theirs[setting.key]
                plain = int(value) if setting.type == "truncated" else value
                assert mine[setting.key] == (
                    float(plain) if isinstance(plain, str) and plain[0].isdecimal() else plain
                )
        count += 1
    assert count > 2000


def test_the_documentation_has_the_table_as_it_is() -> None:
    text = DOCUMENT.read_text(encoding="utf-8")
    assert BEGIN in text
    assert text == current(), "python -m tests.settings_table writes it"


def test_the_documentation_says_the_limits_of_the_reference() -> None:
    text = DOCUMENT.read_text(encoding="utf-8")
    for kind in ("ring", "direct", "halving_doubling", "double_binary_tree"):
        row = ALGORITHMS[kind]
        [line] = re.findall(
            rf"^\|.*`{row.name}`.* \| (.*) \|$",
            text.partition("| in the reference |")[2].partition("\n\n")[0],
            re.MULTILINE,
        )
        assert ("powers of two only" in line) == row.powers_of_two
        assert ("not in comm groups" in line) == (not row.in_groups)
        assert ("no form over all ranks" in line) == (not row.single)
        assert ("no all-to-all" in line) == ("all_to_all" in row.lacks)


# ---------------------------------------------------------------------------------------------------
# Algorithms


@pytest.mark.parametrize("row", ALGORITHMS.values(), ids=lambda row: row.kind)
def test_an_algorithm_is_read_by_every_name_and_written_by_the_same(row: AlgorithmRow) -> None:
    for name in row.names:
        for text in [name, *([f"{name}3"] if row.windowed else [])]:
            assert Algorithm.parse(text).name == text
    if not row.windowed:
        with pytest.raises(ConfigError, match=f"'{row.name}3'; allowed: ring"):
            Algorithm.parse(f"{row.name}3")


def test_a_new_algorithm_is_a_row_and_its_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a line anywhere else it is named, and simulated by its programs."""

    def one_by_one(shape: programs.Shape, place: int) -> list[programs.Step]:
        if place:
            return [programs.Step((shape.receive(0),))]
        return [programs.Step((shape.send(peer),)) for peer in range(1, shape.size)]

    def to_all(size: int, place: int) -> typing.Iterator[programs.Step]:
        others = [peer for peer in range(size) if peer != place]
        sent = [programs.Message("send_wait", peer) for peer in others]
        yield programs.Step((*sent, *(programs.Message("reduce", peer) for peer in others)))

    row = AlgorithmRow(
        "linear",  # type: ignore[arg-type]  # a name that the Literal would gain
        "linear",
        "Linear",
        "one after the other",
        rounds=lambda size: size - 1,
        broadcast=one_by_one,
        scatter=one_by_one,
        steps={"all_reduce": to_all},
        lacks=("all_reduce",),
    )
    monkeypatch.setitem(ALGORITHMS, "linear", row)  # type: ignore[misc]
    broadcast = [collective(0, BROADCAST, 1 << 16)]
    ours, known = (run(broadcast, system(5, algorithm=name)) for name in ("linear", "direct1"))
    assert ours.finish_ns.tolist() == known.finish_ns.tolist()
    reduced = run([collective(0, ALL_REDUCE, 1 << 16)], system(5, algorithm="linear"))
    assert reduced.dimensions[0].messages.sum() == 5 * 4
    with pytest.raises(ConfigError, match="linear for all_reduce in dimension 0"):
        run([collective(0, ALL_REDUCE, 1 << 16)], system(5, algorithm="linear", extensions=Extensions.off()))
