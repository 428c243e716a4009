"""Layouts that are read from a file."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

import studio
from studio.completion import complete, read_layout
from studio.errors import ConfigError
from tests.completion.test_complete import exchanged
from tests.handmade import collective, trace_of
from tests.test_cli import run

SIX = {"tp0": [0, 1], "tp1": [2, 3], "tp2": [4, 5], "dp0": [0, 2, 4], "dp1": [1, 3, 5]}


def two_by_three():
    """Six ranks: each reduces along its pair, and more along its three."""
    ranks = [
        [
            collective(1, "ALL_REDUCE", 64, group=f"tp{number // 2}"),
            collective(2, "ALL_REDUCE", 32, 1, group=f"dp{number % 2}"),
        ]
        for number in range(6)
    ]
    return trace_of(ranks, groups=SIX)


@pytest.mark.parametrize(
    ("groups", "ending"),
    [
        ({"tp0": [0, 1], "dp0": [0, 2, 4]}, "json"),
        ({"tp0": "tp"}, "yml"),
        ({"dp0": "dp", "tp0": [0, 1]}, "yaml"),
    ],
)
def test_members_of_groups_known_by_name_only_come_from_the_file(tmp_path, groups, ending: str):
    whole = two_by_three()
    file = tmp_path / f"layout.{ending}"
    dimensions = [{"name": "dp", "size": 3, "stride": 2}, {"name": "tp", "size": 2, "stride": 1}]
    file.write_text(json.dumps({"dimensions": dimensions, "groups": groups}))
    bare = replace(whole, ranks=whole.ranks[:1], groups=())
    assert exchanged(complete(bare, layout=file)) == exchanged(whole)
    studio.write(bare, tmp_path / "in", "job")
    for list_of_groups in (tmp_path / "in").glob("*.json"):
        list_of_groups.unlink()
    done = run("complete", tmp_path / "in", "-o", tmp_path / "out", "--layout", file)
    assert done.exit_code == 0, done.output
    assert exchanged(studio.read(tmp_path / "out")) == exchanged(whole)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("[1]", "is no table"),
        ("{", "neither YAML nor JSON"),
        ("{}", "dimensions is not there; allowed: a list of dimensions"),
        ("{dimensions: [{name: xp, size: 2}]}", "dimensions[0].name is xp; allowed: tp (tensor)"),
        ("{dimensions: [{name: tp, size: 0}]}", "dimensions[0].size is 0; allowed: a whole number from 1"),
        ("{dimensions: [{name: tp, size: 2, step: 1}]}", "dimensions[0].step is not known; allowed: name, size, stride"),
        ("{dimensions: [{name: tp, size: 2}, {name: tp, size: 2}]}", "dimension tp is there 2 times"),
        ("{dimensions: [{name: tp, size: 2, stride: 1}, {name: dp, size: 2}]}", "dimension dp has no stride"),
        ("{dimensions: [{name: tp, size: 2, stride: 1}, {name: dp, size: 2, stride: 4}]}", "dp has the stride 4; allowed after the dimensions before it: 2"),
        ("{dimensions: [{name: tp, size: 2}], groups: {a: pp}}", "groups.a is pp; allowed: a list of ranks, or one of tp"),
        ("{dimensions: [{name: tp, size: 2}], groups: {a: [0, 0]}}", "groups.a has a rank twice"),
        ("{dimensions: [{name: tp, size: 2}], group: {}}", "group is not known; allowed: dimensions, groups"),
    ],
)  # fmt: skip
def test_what_is_wrong_in_a_file_is_named(tmp_path, text: str, says: str):
    (tmp_path / "layout.yml").write_text(text)
    with pytest.raises(ConfigError) as caught:
        read_layout(tmp_path / "layout.yml")
    assert says in str(caught.value)
    assert "layout.yml: " in str(caught.value)


def test_members_that_contradict_the_job_are_named(tmp_path):
    whole = two_by_three()
    file = tmp_path / "layout.json"
    dimensions = [{"name": "tp", "size": 2}, {"name": "dp", "size": 3}]
    for groups, says in (
        ({"tp0": [0, 2]}, "group tp0 has the ranks 0, 2; the job's list has 0, 1"),
        ({"other": [0, 9]}, "group other has a rank 9; the layout has 6 ranks"),
    ):
        file.write_text(json.dumps({"dimensions": dimensions, "groups": groups}))
        with pytest.raises(ConfigError, match=says):
            complete(replace(whole, ranks=whole.ranks[:1]), layout=file)
    with pytest.raises(ConfigError, match=r"nowhere.yml: cannot be read"):
        read_layout("nowhere.yml")
