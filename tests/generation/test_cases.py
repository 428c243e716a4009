"""Small jobs with known content: those of the existing generator, and one for each collective, algorithm and fault."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

import studio
from studio.doctor.checks import CHECKS, run_checks
from studio.et import read
from studio.generation.cases import Sizes, select_cases, write_cases
from studio.generation.cases.write import KINDS
from studio.sim.algorithms import ALGORITHM_NAMES
from studio.trace import CollectiveType, NodeType, Trace, list_node_attributes, read_int_column
from tests.test_cli import refused, run

ALWAYS_TOO = {"cycle": {"forward"}}
"""In any order of the file, a node of a cycle waits for a later one."""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """All cases, as they are without any option."""
    target = tmp_path_factory.mktemp("cases")
    write_cases(select_cases(), target, Sizes())
    return target


def job(folder: Path, name: str) -> Trace:
    """The job of a case that lies in a folder of its own, as it is opened."""
    [place] = folder.glob(f"*s/{name}")
    return read(sorted(place.glob(f"{name}.*")))


def found_sizes(golden: Path) -> Sizes:
    """The parameters that the existing generator was called with, by its files."""
    load = read(golden / "one_remote_mem_load_node.0.et").graphs[0]
    reduced = read(golden / "ALL_REDUCE.0.et").graphs[0]
    [tensor], [comm] = (read_int_column(graph, key)[1].tolist() for graph, key in ((load, "tensor_size"), (reduced, "comm_size")))  # fmt: skip
    micros = int(read(golden / "one_comp_node.0.et").graphs[0].duration_ns[0]) // 1000
    return Sizes(len(list(golden.glob("ALL_REDUCE.*.et"))), micros, tensor, comm)


def test_the_fourteen_are_those_of_the_existing_generator(shared: Path, tmp_path: Path):
    golden = shared / "traces" / "golden" / "generator"
    files = write_cases(select_cases(["micro"]), tmp_path, found_sizes(golden))
    assert {path.name for path in files} == {path.name for path in golden.iterdir()}
    assert len(select_cases(["micro"])) == 14
    for path in files:
        # In meaning, and, which says more, to the byte.
        assert read(path) == read(golden / path.name)
        assert path.read_bytes() == (golden / path.name).read_bytes()


def test_parameters_go_into_every_case(tmp_path: Path):
    arguments = ("--npus", 3, "--runtime", 7, "--tensor-size", 99, "--comm-size", 1001)
    told = json.loads(run("generate", "cases", "-o", tmp_path, "--json", *arguments).stdout)
    assert len(told["cases"]) == len(select_cases())
    assert len(list(tmp_path.glob("one_comp_node.*.et"))) == 3
    for name in ("ALL_GATHER.2.et", "collectives/collective_gather/collective_gather.2.et"):
        graph = read(tmp_path / name).graphs[0]
        assert read_int_column(graph, "comm_size")[1].tolist() == [1001]
        computes = graph.duration_ns[graph.type == NodeType.COMP].tolist()
        assert computes == [7000] * len(computes)
    store = read(tmp_path / "one_remote_mem_store_node.1.et").graphs[0]
    assert {a.name: a.value for a in list_node_attributes(store, 0)} == {
        "is_cpu_op": False,
        "tensor_size": 99,
    }


def test_there_is_a_case_for_every_collective_and_algorithm(folder: Path):
    kinds = {case.name for case in select_cases(["collective"])}
    assert kinds == {f"collective_{kind.name.lower()}" for kind in CollectiveType}
    assert {case.name for case in select_cases(["algorithm"])} == {
        f"algorithm_{name}" for name in ALGORITHM_NAMES
    }
    for kind in CollectiveType:
        trace = job(folder, f"collective_{kind.name.lower()}")
        assert read_int_column(trace.graphs[0], "comm_type")[1].tolist() == [kind]
        assert not run_checks(trace).diagnoses
        system = studio.preset("hgx-h100", npus=4).config.with_extensions()
        assert studio.simulate(trace, system, native=False).makespan_ns > 0
    for name in ALGORITHM_NAMES:
        trace = job(folder, f"algorithm_{name}")
        assert not run_checks(trace).diagnoses
        place = folder / "algorithms" / f"algorithm_{name}"
        config = studio.read_config(place / "system.json", place / "network.yml").config
        assert {one.name for chosen in config.algorithms.values() for one in chosen} == {name}
        collectives = read_int_column(trace.graphs[0], "comm_type")[1].tolist()
        assert [CollectiveType(number).name.lower() for number in collectives] == list(config.algorithms)
        assert studio.simulate(trace, config, native=False).makespan_ns > 0


def test_the_doctor_finds_in_every_faulty_case_its_fault_and_nothing_else(folder: Path, tmp_path: Path):
    assert {case.name for case in select_cases(["fault"])} == {f"fault_{check.code}" for check in CHECKS}
    write_cases(select_cases(["fault"]), tmp_path, Sizes(1, 0, 0, 0))
    for check in CHECKS:
        for place in (folder, tmp_path):
            found = {one.code for one in run_checks(job(place, f"fault_{check.code}")).diagnoses}
            assert found == {check.code} | ALWAYS_TOO.get(check.code, set())


def lines(text: str) -> Iterator[str]:
    return (line.split()[0] for line in text.splitlines())


def test_cases_are_chosen_by_name_and_kind(tmp_path: Path):
    assert list(lines(run("generate", "cases", "--list").stdout)) == [case.name for case in select_cases()]
    chosen = run("generate", "cases", "--list", "--case", "fault_cycle", "--case", "micro").stdout
    assert len(list(lines(chosen))) == 15
    assert {case.kind for case in select_cases()} == set(KINDS)
    result = run("generate", "cases", "-o", tmp_path, "--case", "fault_cycle", "--npus", 2)
    assert "1 case, 2 files written" in result.stdout
    assert "The nearest is 'fault_cycle'" in refused("generate", "cases", "--list", "--case", "fault_cycl")
    assert "Give -o DIR" in refused("generate", "cases", code=2)
    assert "Give -o DIR" in refused("generate", "cases", "--list", "-o", tmp_path, code=2)
    assert "cases comes before" in refused("generate", "-o", tmp_path, "cases", "--ranks", 2, code=2)
    assert "not in the range" in refused("generate", "cases", "--list", "--runtime", 10**12, code=2)
