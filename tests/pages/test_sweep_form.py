"""The settings that Sweep begins with can be simulated, whatever the size of the job and the system."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from studio.errors import ConfigError
from studio.pages.sweep import form
from studio.sim.presets import PRESETS
from studio.sweep.space import parse_space
from studio.sweep.sweep import Sweep, refuse_impossible
from studio.sweep.systems import Base, parts_at
from tests.handmade import node, trace_of


@pytest.mark.parametrize("ranks", [1, 2, 8, 16, 64])
def test_the_first_settings_fit_every_system(monkeypatch, ranks):
    trace = trace_of({rank: [node(1, "COMP")] for rank in range(ranks)})
    monkeypatch.setattr(form, "session", lambda: SimpleNamespace(trace=lambda _job: trace))
    fitting = [name for name, one in PRESETS.items() if one.system.fits(ranks)]
    assert len(fitting) > 10
    for name in fitting:
        space = parse_space(form.first_settings("job", name).splitlines())
        parts_at(Base(name), space.point(0), ranks)
        assert ("bandwidth[1]" in space.keys) == (
            len(PRESETS[name].system.parts(ranks).network["npus_count"]) > 1
        )


def test_a_sweep_is_refused_only_where_no_point_has_a_system():
    """One value that can be is enough, wherever it stands."""
    for varied, fine in (
        (["preset=no-such,hgx-h100"], True),
        (["preset=no-such,neither"], False),
        (["bandwidth[1]=1..9000"], False),
        (["dp=3"], True),
    ):
        sweep = Sweep(parse_space(varied), Base("hgx-h100"))
        if fine:
            refuse_impossible(sweep, 8)
        else:
            with pytest.raises(ConfigError, match="allowed"):
                refuse_impossible(sweep, 8)
