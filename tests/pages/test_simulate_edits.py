from __future__ import annotations

import pytest

from studio.errors import StudioError
from studio.pages.simulate.edits import (
    fit_to_ranks,
    format_setting,
    from_preset,
    is_changed,
    propose_draft,
    select_changed_texts,
    suit_to_job,
    with_dimension,
    with_dimension_moved,
    with_text,
    without_dimension,
)
from studio.pages.simulate.files import export_zip, import_files
from studio.sim.check import check
from studio.sim.compute import compute_times
from studio.sim.models import with_model
from studio.sim.parts import Parts
from studio.sim.presets import PRESETS
from studio.sim.problems import examine_parts
from studio.sim.setting_edits import with_mode
from studio.sim.settings import ALGORITHM_SETTINGS, BY_KEY, DIMENSION_SETTINGS, HEADINGS, SETTINGS
from studio.sim.systems.proposals import propose
from studio.store.drafts import Draft, load_draft, save_draft
from tests.handmade import collective, node, trace_of

TWO = "hgx-h100-16"


def two() -> Parts:
    """Return two nodes as ASTRA-sim ships them: 400 and 50 GiB/s, 936.25 and 1,000 ns."""
    return from_preset(TWO, model="astra-sim")


def test_every_setting_of_the_files_has_a_field_with_a_hint():
    """But for single links, and for what only documents."""
    shown = {*DIMENSION_SETTINGS, *ALGORITHM_SETTINGS, BY_KEY["congestion"]}
    shown |= {setting for setting in SETTINGS if setting.heading in HEADINGS}
    left_out = {BY_KEY[key] for key in ("num-nodes", "links", "switches", "costs")}
    assert shown | left_out == set(SETTINGS)
    assert all(setting.hint for setting in SETTINGS)


def test_what_a_form_shows_is_what_it_would_write():
    """Showing a system and taking its texts back changes nothing, whatever the preset."""
    for name in PRESETS:
        tables = from_preset(name)
        texts = {
            key: format_setting(tables, field)
            for key, field in BY_KEY.items()
            if field not in (*DIMENSION_SETTINGS, *ALGORITHM_SETTINGS)
        }
        texts |= {
            f"{field.key}[{at}]": format_setting(tables, field, at)
            for field in (*DIMENSION_SETTINGS, *ALGORITHM_SETTINGS)
            for at in range(len(tables.network["topology"]))
        }
        assert select_changed_texts(tables, texts) == {}


@pytest.mark.parametrize(
    ("key", "text", "section", "value"),
    [
        ("bandwidth[1]", "12.5", "network", [400, 12.5]),
        ("topology[0]", "Ring", "network", ["Ring", "Ring"]),
        ("efficiency[1]", "0.8", "network", [1, 0.8]),
        ("endpoint-delay", "", "system", None),
        ("roofline-enabled", "0", "system", 0),
        ("all-reduce-implementation[1]", "", "system", ["ring"]),
        ("rendezvous-protocol", "1", "options", True),
        ("latency[0]", "nan", "network", ["nan", 1000]),
        ("local-mem-bw", "1e400", "system", "1e400"),
    ],
)
def test_a_text_becomes_the_value_the_file_would_hold(key, text, section, value):
    tables = with_text(two(), key, text)
    assert getattr(tables, section).get(key.partition("[")[0]) == value


@pytest.mark.parametrize("text", ["1e99", "9" * 401, "-1e99", "inf", "1e999"])
@pytest.mark.parametrize("key", ["bandwidth[0]", "latency[0]", "local-mem-bw", "compute-speeds"])
def test_numbers_out_of_limits_are_told_with_the_limits(key, text):
    tables = with_mode(from_preset("hgx-h100-8"), "extended")
    given = f"3: {text}" if key == "compute-speeds" else text
    [problem] = examine_parts(with_text(tables, key, given)).problems.values()
    assert "and at most 1e+18" in problem.allowed


def test_speeds_are_read_as_pairs():
    tables = with_text(with_mode(two(), "extended"), "compute-speeds", "3: 0.9, 7:1.5")
    assert tables.system["extended"]["compute-speeds"] == {"3": 0.9, "7": 1.5}
    assert format_setting(tables, BY_KEY["compute-speeds"]) == "3: 0.9, 7: 1.5"


def test_dimensions_come_go_and_move_with_all_that_is_theirs():
    tables = two()
    more = with_dimension(tables)
    assert examine_parts(more).problems == {}
    assert [len(more.network[key]) for key in ("topology", "npus_count", "bandwidth", "latency")] == [3] * 4
    assert more.system["all-reduce-implementation"] == ["ring"] * 3
    assert without_dimension(more, 2) == tables
    swapped = with_dimension_moved(tables, 0, 1)
    assert swapped.network["bandwidth"] == [50, 400]
    assert with_dimension_moved(swapped, 1, -1) == tables
    assert with_dimension_moved(tables, 0, -1) == tables
    alone = without_dimension(without_dimension(tables, 0), 0)
    assert alone.network["topology"] == ["Ring"]


@pytest.mark.parametrize("ranks", [2, 3, 7, 8, 12, 16, 24, 30, 64, 97, 1024])
def test_a_fitted_system_has_an_npu_per_rank_and_no_problem(ranks):
    for name in PRESETS:
        found = examine_parts(fit_to_ranks(from_preset(name), ranks))
        assert found.problems == {}
        assert found.config.topology.npus == ranks


def test_what_is_proposed_for_a_job_can_run_it():
    """Memory where it loads, as many NPUs as ranks, recorded times for compute that tells no operations."""
    nodes = [
        node(1, "MEM_LOAD", tensor_size=4096),
        node(2, "COMP", 1, micros=5),
        collective(3, "ALL_REDUCE", 1 << 20, 2),
    ]
    trace = trace_of([nodes] * 6)
    draft = propose_draft(trace)
    config = examine_parts(draft.tables).usable
    assert check(trace, config) == []
    assert len(draft.notes) == 1
    assert propose_draft(trace, propose(trace)) == draft
    assert config.topology.npus == 6
    assert config.model == "full"
    assert compute_times(trace, config).words == "compute: recorded on all nodes"


def test_for_the_model_of_astra_sim_the_roofline_goes_where_compute_tells_no_operations():
    trace = trace_of([[node(1, "COMP", micros=5), collective(2, "ALL_REDUCE", 1 << 20, 1)]] * 8)
    tables = with_model(PRESETS["hgx-h100-8"].parts, "astra-sim")
    draft = suit_to_job(Draft(tables, "hgx-h100-8"), trace)
    assert check(trace, examine_parts(draft.tables).usable) == []
    assert [note.partition(":")[0] for note in draft.notes] == ["Roofline off"]


def test_text_groups_lead_away_from_the_model_of_astra_sim_with_the_reason():
    nodes = [collective(1, "ALL_REDUCE", 1 << 20, group="tp")]
    trace = trace_of([nodes] * 8, {"tp": range(8)})
    assert propose_draft(trace).notes == ()
    tables = with_model(PRESETS["hgx-h100-8"].parts, "astra-sim")
    draft = suit_to_job(Draft(tables, "hgx-h100-8"), trace)
    assert "extended" in draft.tables.system
    assert any("'tp'" in note for note in draft.notes)


def test_the_compatible_mode_takes_what_only_the_extended_one_has_away():
    extended = with_text(with_mode(two(), "extended"), "efficiency[0]", "0.5")
    assert with_mode(extended, "compatible", strip=True) == two()


def test_drafts_are_kept_word_for_word_and_wrong_ids_are_refused(tmp_path):
    draft = Draft(with_text(from_preset(TWO), "bandwidth[0]", "t b d"), TWO, before="x", notes=("a",))
    name = save_draft(tmp_path, draft)
    assert load_draft(tmp_path, name) == draft
    assert save_draft(tmp_path, draft) == name
    for wrong in ("0" * 16, "../jobs/x", "", name.upper() + "0"):
        with pytest.raises(StudioError, match="not kept"):
            load_draft(tmp_path, wrong)


def test_files_that_are_read_and_written_again_say_the_same(tmp_path):
    import io
    import zipfile

    tables = with_text(from_preset(TWO), "bandwidth[1]", "12.345678901234567")
    assert tables.congestion == "aware"
    with zipfile.ZipFile(io.BytesIO(export_zip(tables))) as archive:
        files = {name: archive.read(name) for name in archive.namelist() if name != "options.txt"}
    again, notes = import_files(from_preset("tpu-v3-8"), files)
    assert (again.network, again.system) == (dict(tables.network), dict(tables.system))
    assert again.congestion == "aware"
    assert len(notes) == 2


@pytest.mark.parametrize(
    ("files", "message"),
    [
        ({"x.json": b'{"name": 1}'}, "x.json: not one of ASTRA-sim's files"),
        ({"a.json": b'{"1": [0]}', "b.json": b'{"2": [0]}'}, "both comm_group.json"),
        (
            {"s.json": b'{"scheduling-policy": "LIFO", "all-reduce-implementation-custom": "x"}'},
            "names traces",
        ),
        ({"s.json": b"{broken"}, "s.json: not a JSON file"),
        ({"n.yml": b"topology: [\n"}, "n.yml: not a YAML file"),
        ({"n.yml": b"\xff\xfe"}, "n.yml: not a YAML file"),
    ],
    ids=str,
)
def test_what_is_no_such_file_is_refused_by_its_own_name(files, message):
    with pytest.raises(StudioError, match=message):
        import_files(from_preset(TWO), files)


def test_a_preset_counts_as_changed_once_its_settings_are_others():
    """What suits it to the job, the mode and the comm groups are no change; any field is, until it is taken back."""
    job = trace_of([[node(1, "COMP", micros=5)]] * 6)
    draft = propose_draft(job)
    assert draft.tables != from_preset(draft.origin)
    assert not is_changed(draft, job)
    assert not is_changed(Draft(from_preset(TWO), TWO), job)
    assert not is_changed(suit_to_job(Draft(with_model(draft.tables, "astra-sim"), draft.origin), job), job)
    other = with_text(draft.tables, "bandwidth[0]", "7")
    assert is_changed(Draft(other, draft.origin), job)
    assert is_changed(Draft(with_text(draft.tables, "congestion", "unaware"), draft.origin), job)
    assert not is_changed(Draft(other, "imported files"), job)
    back = with_text(other, "bandwidth[0]", format_setting(draft.tables, BY_KEY["bandwidth"], 0))
    assert not is_changed(Draft(back, draft.origin), job)
