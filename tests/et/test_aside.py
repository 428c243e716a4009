"""Values that wait in files come back as they were, and are gone from there."""

from __future__ import annotations

import errno
from pathlib import Path

import numpy as np
import pytest

from studio.errors import StudioError
from studio.et import aside
from studio.trace import CommGroup


def test_a_value_comes_back_as_it_was_and_its_file_goes(tmp_path: Path) -> None:
    path = tmp_path / "7.part"
    arrays = [
        np.arange(5),
        np.zeros((0, 6), np.int32),
        np.eye(3)[:, ::2],
        np.array([True, False]),
        np.arange(3),
    ]
    value = {"group": CommGroup("tp", (0, 1)), "arrays": arrays, "texts": ["ä", ""]}
    aside.put_aside(path, value)
    again = aside.take_up(path)
    assert not path.exists()
    assert {key: again[key] for key in ("group", "texts")} == {key: value[key] for key in ("group", "texts")}
    for one, other in zip(arrays, again["arrays"], strict=True):
        assert (one.dtype, one.shape, one.tolist()) == (other.dtype, other.shape, other.tolist())
    with pytest.raises(ValueError, match="read-only"):
        again["arrays"][0][0] = 1


def test_a_full_disk_is_an_error_for_the_user(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(_path: Path) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(aside, "open_private", full)
    with pytest.raises(StudioError, match=f"the disk of {tmp_path} is full") as caught:
        aside.put_aside(tmp_path / "7.part", np.zeros(1000))
    assert "TMPDIR" in caught.value.hint
