"""Costs of families: fitted to all machines at once, and kept with their errors."""

from dataclasses import replace

import numpy as np
import pytest

from studio.calibration.families import build_calibration, fit_family, select_family_tables
from studio.calibration.machines import infer_transport
from studio.calibration.tables import MeasuredTable, read_csv
from studio.sim.costs import CostModel, GroupShape, Ports
from studio.sim.systems import SYSTEMS

SIZES = 2.0 ** np.arange(10, 31, 2)
SLOW = CostModel(library="nccl-hopper", values={"launch all_reduce": 9000.0})


def measured(machine: str, factor: float = 1.0) -> MeasuredTable:
    """Return all-reduces on 8 H100, as they take with another launch."""
    charge = SLOW.charge("all_reduce", SIZES, GroupShape(8, 8, 1), Ports(450, 0, 50, 0, 8))
    return MeasuredTable(
        f"{machine}_n1_g8_all_reduce", "a test", "NVIDIA H100 80GB HBM3", 8, 1, "NVLink4 NVSwitch", 450.0, "",
        "all_reduce", "float", SIZES, charge.total_ns / 1e3 * factor, machine,
    )  # fmt: skip


def plain():
    return replace(SYSTEMS["hgx-h100"], costs={"library": "nccl-hopper"}, calibration={})


def test_a_family_takes_what_its_machines_have_in_common():
    found = fit_family(plain(), [measured("one"), measured("two"), measured("three")])
    start = found.costs.charge("all_reduce", SIZES[:1], GroupShape(8, 8, 1), Ports(450, 0, 50, 0, 8)).total_ns
    assert start[0] / 1e3 == pytest.approx(measured("one").time_us[0], rel=0.03)
    assert max(one.errors.gmf for one in found.judged) < 0.05
    assert {one.relation for one in found.unseen} == {"other machine"}
    kept = build_calibration(found)
    assert list(kept["errors"]) == ["in a node", "machine left out of the fit"]
    assert kept["errors"]["in a node"]["tables"] == 3
    assert [table["table_id"] for table in kept["tables"]] == [one.table_id for one in found.tables]


def test_of_one_machine_a_table_alone_leaves_nothing_to_leave_out():
    found = fit_family(plain(), [measured("one")])
    assert found.unseen == ()
    assert list(build_calibration(found)["errors"]) == ["in a node"]


def test_tables_that_say_nothing_of_costs_are_left_out():
    figure = replace(measured("astrasim"), source="READ FROM FIGURE")
    unstated = replace(measured("far"), nodes=2, nominal_gbytes_per_s=float("nan"))
    other = replace(measured("gh"), hardware="NVIDIA GH200 120GB")
    kept = select_family_tables(SYSTEMS["hgx-h100"], [measured("one"), figure, unstated, other])
    assert [table.machine for table in kept] == ["one"]


@pytest.mark.parametrize("name", ["hgx-h100", "hgx-a100", "mi300x"])
def test_the_errors_in_a_system_file_are_those_of_its_costs(name, shared):
    """Fitted again from the measured tables, a family has the costs and the errors that its file says."""
    tables = select_family_tables(SYSTEMS[name], read_csv(shared / "measured" / "measured.csv"))
    system = replace(
        SYSTEMS[name],
        costs={key: SYSTEMS[name].costs[key] for key in ("library", "transport")},
        calibration={},
    )
    again = build_calibration(fit_family(system, tables))["errors"]
    for place, errors in SYSTEMS[name].calibration["errors"].items():
        assert again[place]["tables"] == errors["tables"]
        assert again[place]["gmf"] == pytest.approx(errors["gmf"], abs=0.01)


@pytest.mark.parametrize(
    ("nodes", "interconnect", "transport"),
    [
        (2, "8x InfiniBand NDR 400G + NVLink4", "verbs"),
        (2, "8x RoCE 400G", "verbs"),
        (2, "32x EFA 100G + NVLink4 NVSwitch", "plugin"),
        (2, "TCP sockets over 2x Slingshot-11 200G", "plugin"),
        (2, "8x 200G GPUDirect-TCPXO + NVLink4", "plugin"),
        (2, "network not stated", ""),
        (1, "8x InfiniBand NDR 400G + NVLink4", None),
    ],
)
def test_tables_name_their_transport(nodes: int, interconnect: str, transport: str | None):
    assert infer_transport([replace(measured("one"), nodes=nodes, interconnect=interconnect)]) == transport


def test_a_machine_with_another_transport_is_fitted_as_what_it_is():
    """Of two machines that differ by their transport only, both fit, and the family keeps its own transport."""
    shape, ports = GroupShape(16, 8, 2), Ports(450, 0, 50, 0, 8)
    tables = []
    for transport, words in (("verbs", "8x InfiniBand 400G"), ("plugin", "8x EFA 400G")):
        charge = CostModel("nccl-hopper", transport=transport).charge("all_reduce", SIZES, shape, ports)
        one = replace(measured(transport), nodes=2, interconnect=words, nominal_gbytes_per_s=400.0)
        tables.append(replace(one, time_us=charge.total_ns / 1e3))
    system = replace(
        SYSTEMS["hgx-h100"], costs={"library": "nccl-hopper", "transport": "verbs"}, calibration={}
    )
    found = fit_family(system, tables)
    assert found.costs.transport == "verbs"
    assert max(one.errors.gmf for one in found.judged) < 0.02
