"""Generated jobs against those of the public generator."""

import pytest

from benchmarks.report_generation import JOBS, compare


@pytest.mark.parametrize("name", ["gpt_8r_dp2tp4", "llama_8r_dp8_fsdp"])
def test_operations_and_bytes_are_those_of_the_public_generator(shared, name):
    """Each kind of node has as many operations or bytes, or exactly what the known differences make of them."""
    cells = compare(next(job for job in JOBS if job.name == name), shared / "traces" / "stg")
    assert {kind: str(cell) for kind, cell in cells.items() if cell.explained != cell.theirs} == {}
    equal = {kind for kind, cell in cells.items() if str(cell) == "equal"}
    assert (
        name != "gpt_8r_dp2tp4" or {"products of layers", "gathers in layers", "scatters in layers"} <= equal
    )
