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


@pytest.mark.parametrize("narrowed", [False, True])
def test_long_arrays_take_less_than_their_content_and_come_back_equal(tmp_path: Path, narrowed: bool) -> None:
    """What repeats another array, is one value throughout, or is wider than its numbers is written in fewer bytes."""
    count = 20_000
    times = np.arange(count) * 1_000_003 + (1 << 60)
    zeros = np.zeros(count)
    zeros[7] = -0.0
    odd = np.full(count, 5)
    odd[13] = 6
    value = {
        "times": times,
        "repeated": times.copy(),
        "like": np.where(np.arange(count) == 11, 0, times),
        "missing": np.full((count, 3), -1),
        "odd": odd,
        "small": np.arange(count, dtype=np.uint64) % 100,
        "large": np.full(count, (1 << 64) - 1, np.uint64),
        "truths": np.arange(count * 8) % 3 == 0,
        "zeros": zeros,
        "backwards": times[::-1],
        "columns": np.arange(2 * count).reshape(2, count).T,
    }
    path = tmp_path / "7.draft"
    aside.put_aside(path, value, small=narrowed is False, narrowed=narrowed)
    written, whole = path.stat().st_size, sum(array.nbytes for array in value.values())
    again = aside.take_up(path)
    for name, array in value.items():
        other = again[name]
        assert (other.dtype, other.shape, other.tobytes()) == (array.dtype, array.shape, array.tobytes()), (
            name
        )
    for name in ("times", "repeated", "missing", "small"):
        with pytest.raises(ValueError, match="read-only"):
            again[name].flat[0] = 1
    # Written in full are three columns of times and one of numbers of floating point; the rest is narrow or no more than a value.
    full = ("times", "like", "backwards", "zeros") + (() if narrowed else ("odd", "small", "columns"))
    assert written < sum(value[name].nbytes for name in full) + value["truths"].nbytes + 400_000 < whole
    assert again["repeated"] is again["times"]
    # Where memory is not to grow with what waits, nothing but what is mapped and single values is there again.
    made = {name for name in ("odd", "small") if again[name].flags.owndata}
    assert made == ({"odd", "small"} if narrowed else set())


def test_a_full_disk_is_an_error_for_the_user(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(_path: Path) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(aside, "open_private", full)
    with pytest.raises(StudioError, match=f"the disk of {tmp_path} is full") as caught:
        aside.put_aside(tmp_path / "7.part", np.zeros(1000))
    assert "TMPDIR" in caught.value.hint
