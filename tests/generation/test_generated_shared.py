"""Anonymous forms of generated jobs: sound, as long in simulation, and completed and scaled as the jobs themselves."""

import json

import pytest
from click.testing import CliRunner

import studio
from studio.cli import main
from studio.completion import complete
from studio.completion.scale import scale
from studio.et.write import write_with_copies
from studio.trace import is_generated
from tests.completion.test_complete import exchanged, finish_ns, one_of_each_graph

DENSE = {"layers": 4, "hidden": 64, "heads": 4, "sequence": 64, "tp": 2, "pp": 2, "gpu": "a100"}
EXPERTS = DENSE | {"pp": 1, "ep": 2, "experts": 4, "expert_width": 64}


@pytest.mark.parametrize("given", [DENSE, EXPERTS], ids=["dense", "experts"])
def test_an_anonymous_job_is_as_good_as_the_generated_one(tmp_path, given):
    job, larger = (studio.generate("custom", ranks=ranks, batch=2 * ranks, **given) for ranks in (8, 16))
    write_with_copies(job, tmp_path / "job", "gpt")
    run = CliRunner().invoke(
        main, ["anonymize", str(tmp_path / "job"), "-o", str(tmp_path / "out"), "--key", "k", "--json"]
    )
    assert run.exit_code == 0, run.output
    step = json.loads(run.stdout)["step"]
    assert step["before_ns"] == step["after_ns"] > 0

    anonymous = studio.read(tmp_path / "out")
    assert all(is_generated(rank) for rank in anonymous.ranks)
    assert not [one for one in studio.examine(anonymous) if one.level in ("warning", "error")]
    assert exchanged(anonymous) == exchanged(job)
    completed = complete(one_of_each_graph(anonymous), ranks=8, first=True)
    assert exchanged(completed) == exchanged(job)
    assert finish_ns(completed) == finish_ns(job)
    scaled = scale(anonymous, ranks=16)
    assert exchanged(scaled) == exchanged(larger)
    assert finish_ns(scaled) == finish_ns(larger)
