"""Settings of steps change nothing where costs time collectives whole; who gives them is told so."""

from __future__ import annotations

from pathlib import Path

import pytest

from studio.et import write
from studio.sim import simulate
from studio.sim.idle_settings import find_idle_settings
from studio.sim.models import with_model
from studio.sim.parts import interpret
from studio.sim.presets import preset
from studio.sim.setting_edits import with_settings
from studio.sim.settings import SETTINGS, Setting
from studio.trace import Trace
from tests.handmade import collective, node, trace_of
from tests.test_cli import run

IDLE = [setting for setting in SETTINGS if setting.of_steps]


def _job() -> Trace:
    """Collectives of several kinds, after one another and at once, and messages, on 16 ranks."""
    ranks = []
    for rank in range(16):
        other = {
            "comm_src": rank - rank % 2,
            "comm_dst": rank - rank % 2 + 1,
            "comm_size": 1 << 20,
            "comm_tag": 0,
        }
        ranks.append(
            [
                collective(1, "ALL_REDUCE", 1 << 26),
                collective(2, "ALL_GATHER", 1 << 22),
                collective(3, "REDUCE_SCATTER", 1 << 24, 1),
                collective(4, "ALL_TO_ALL", 1 << 24, 2),
                collective(5, "BROADCAST", 1 << 20, 3, root=0),
                node(6, "COMM_RECV" if rank % 2 else "COMM_SEND", 4, **other),
                collective(7, "ALL_REDUCE", 1 << 20, 6),
                collective(8, "REDUCE", 1 << 20, 6, root=0),
            ]
        )
    return trace_of(ranks)


def _ends(settings: tuple[str, ...]) -> list[int]:
    config = interpret(with_settings(preset("hgx-h100", 16).parts, settings)).config
    return list(simulate(_job(), config).node_times().end_ns)


def _another(setting: Setting) -> str:
    if setting.type == "algorithms":
        return "[direct,direct]"
    return setting.choices[-1].name if setting.choices else "7"


@pytest.mark.parametrize("setting", IDLE, ids=lambda setting: setting.path)
def test_what_is_said_to_change_nothing_changes_nothing(setting: Setting) -> None:
    assert _ends((f"{setting.path}={_another(setting)}",)) == _ends(())


def test_what_is_not_said_of_steps_is_not_warned_of() -> None:
    config = preset("hgx-h100", 8).config
    assert (
        find_idle_settings(["bandwidth[0]", "costs.algorithm", "preset", "rendezvous-protocol"], config)
        is None
    )
    assert (
        find_idle_settings(
            ["endpoint-delay"], interpret(with_model(preset("hgx-h100", 8).parts, "astra-sim")).config
        )
        is None
    )
    found = find_idle_settings(["all-reduce-implementation", "endpoint-delay"], config)
    assert found is not None
    assert found.message.startswith("all-reduce-implementation, endpoint-delay change nothing")
    assert "costs.algorithm" in found.hint


def test_simulate_and_sweep_say_it(tmp_path: Path) -> None:
    write(trace_of([[collective(1, "ALL_REDUCE", 1 << 20)]] * 8), tmp_path / "job", "job")
    words = (tmp_path / "job", "--preset", "hgx-h100")
    said = "preferred-dataset-splits changes nothing"
    splits = ("--set", "preferred-dataset-splits=8")
    assert said in run("simulate", *words, *splits).output
    assert said not in run("simulate", *words, *splits, "--model", "astra-sim").output
    varied = ("--set", "preferred-dataset-splits=2,8", "-o", tmp_path / "x.parquet")
    assert said in run("sweep", *words, *varied).output
    assert said not in run("sweep", *words, *varied, "--set", "model=full,astra-sim").output
