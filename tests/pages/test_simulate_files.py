"""What the Simulate page takes in, and gives out so that it can be taken in again."""

from __future__ import annotations

import io
import json
import zipfile
from dataclasses import replace

import pytest

from studio.errors import ConfigError
from studio.pages.simulate.edits import from_preset, with_text
from studio.pages.simulate.files import export_zip, import_files
from studio.sim.models import label_system_model
from studio.sim.parts import Parts
from studio.sim.presets import PRESETS
from studio.sim.problems import examine_parts
from studio.sim.setting_edits import with_mode

OTHER = Parts(
    {"topology": ["Ring"], "npus_count": [3], "bandwidth": [1], "latency": [1]},
    {"L": 9},
    memory={"memory-type": "MEMORY_POOL"},
    groups={"1": [0, 1]},
    options={"injection-scale": 2},
    congestion="aware",
)


def plain(tables):
    """What a system says, whatever its tables are called in messages."""
    return json.loads(
        json.dumps({part: getattr(tables, part) for part in OTHER.__slots__ if part != "names"})
    )


def zip_of(files):
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in files.items():
            archive.writestr(name, content)
    return stream.getvalue()


@pytest.mark.parametrize("name", PRESETS)
def test_what_was_exported_is_imported_as_it_was(name):
    tables = from_preset(name)
    assert plain(import_files(OTHER, {"system.zip": export_zip(tables)})[0]) == plain(tables)


def test_options_congestion_groups_memory_and_the_extended_mode_come_back():
    tables = with_text(with_mode(from_preset("hgx-h100-8"), "extended"), "communication-slots", "2")
    options = {
        "num-queues-per-dim": 2,
        "injection-scale": 0.5,
        "rendezvous-protocol": True,
        "comm-scale": "1 x",
    }
    tables = replace(
        tables,
        options=options,
        congestion="aware",
        groups={"tp": [0, 1]},
        memory={"memory-type": "PER_NPU_MEMORY_EXPANSION", "remote-mem-bw": 6.5},
    )
    found, notes = import_files(replace(OTHER, congestion="unaware"), {"x": export_zip(tables)})
    assert plain(found) == plain(tables)
    assert "options.txt: read as options.txt." in notes
    assert plain(import_files(OTHER, {"x": export_zip(replace(tables, groups={}))})[0])["groups"] == {}


def test_options_alone_change_the_options_alone():
    found, _ = import_files(OTHER, {"o": b"--injection-scale=3\n--rendezvous-protocol\n"})
    assert found.options == {"injection-scale": 3, "rendezvous-protocol": True}
    assert (found.congestion, found.network, found.memory) == ("aware", OTHER.network, OTHER.memory)
    with pytest.raises(ConfigError, match=r"^o: congestion is 'maybe'; allowed: aware, unaware$"):
        import_files(OTHER, {"o": b"--congestion=maybe"})


def test_the_answer_of_a_simulation_is_not_taken_for_a_network():
    answer = {
        "finish_ns": 5,
        "mode": "compatible",
        "links": [],
        "dimensions": [{"bandwidth": 1}],
        "ranks": [],
    }
    with pytest.raises(
        ConfigError, match=r"a\.json: not one of ASTRA-sim's files; its keys are finish_ns, mode, links"
    ):
        import_files(OTHER, {"a.json": json.dumps(answer).encode()})
    with pytest.raises(ConfigError, match="not one of ASTRA-sim's files; its keys are jobs"):
        import_files(OTHER, {"a.json": b'{"jobs": [{"id": 1}]}'})


def test_a_zip_is_read_by_content_and_within_limits():
    network = b"topology: [Ring]\nnpus_count: [4]\nbandwidth: [50]\nlatency: [500]\n"
    found, notes = import_files(OTHER, {"z": zip_of({"../../deep/any.txt": network})})
    assert found.network["npus_count"] == [4]
    assert notes == ("../../deep/any.txt: read as network.yml.",)
    # One file of a system does not take the others away.
    assert found.memory == OTHER.memory
    with pytest.raises(ConfigError, match="z: more than 8,388,608 bytes when unpacked"):
        import_files(OTHER, {"z": zip_of({"a": b" " * (9 << 20)})})
    with pytest.raises(ConfigError, match="z: 9 files in it"):
        import_files(OTHER, {"z": zip_of({str(at): network for at in range(9)})})
    with pytest.raises(ConfigError, match="z: not a readable zip"):
        import_files(OTHER, {"z": b"PK\x03\x04 broken"})
    with pytest.raises(ConfigError, match=r"are both network\.yml"):
        import_files(OTHER, {"z": zip_of({"a": network}), "b": network})


def test_the_files_of_astra_sim_are_of_its_model_on_the_page_too():
    """Whatever the form held before; those that the full model was exported to come back as it."""
    before = from_preset("hgx-h100", 16)
    assert label_system_model(before) == "full"
    files = {
        "s.json": json.dumps({"scheduling-policy": "LIFO", "collective-optimization": "baseline"}).encode()
    }
    after, _ = import_files(before, files)
    assert label_system_model(after) == "astra-sim unaware"
    assert not examine_parts(after).problems
    with zipfile.ZipFile(io.BytesIO(export_zip(before))) as archive:
        exported = {name: archive.read(name) for name in archive.namelist()}
    again, _ = import_files(after, exported)
    assert label_system_model(again) == "full"
