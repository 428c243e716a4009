"""Make columns of Arrow from arrays: numbers with gaps, words by code, texts of a pool."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from studio.arrow import convert_optional_texts
from studio.distinct import find_distinct
from studio.trace import Bool, Int64, Strings

if TYPE_CHECKING:
    import pyarrow as pa


def build_table(**columns: pa.Array) -> pa.Table:
    """Return named columns as a table."""
    import pyarrow as pa

    return pa.Table.from_arrays(list(columns.values()), names=list(columns))


def build_column(values: NDArray[Any], is_present: Bool) -> pa.Array:
    """Return a column of numbers, empty where `is_present` says so."""
    import pyarrow as pa

    plain = np.ascontiguousarray(values)
    bits = None if is_present.all() else pa.py_buffer(np.packbits(is_present, bitorder="little"))
    return pa.Array.from_buffers(pa.from_numpy_dtype(plain.dtype), len(plain), [bits, pa.py_buffer(plain)])


def build_number_column(rows: NDArray[Any], values: Int64, count: int) -> pa.Array:
    """Return a column of the numbers that some rows have."""
    column, is_present = np.zeros(count, np.int64), np.zeros(count, np.bool_)
    column[rows], is_present[rows] = values, True
    return build_column(column, is_present)


def build_flag_column(values: Bool) -> pa.Array:
    """Return a column of truth values."""
    import pyarrow as pa

    bits = pa.py_buffer(np.packbits(values, bitorder="little"))
    return pa.Array.from_buffers(pa.bool_(), len(values), [None, bits])


def build_word_column(
    codes: NDArray[Any], word: Callable[[int], str], missing: Bool | None = None
) -> pa.Array:
    """Return a column of words, each for a code; empty where it is missing."""
    import pyarrow as pa

    distinct, index = np.unique(codes, return_inverse=True)
    is_present = np.ones(len(codes), np.bool_) if missing is None else ~missing
    used = set(find_distinct(index[is_present]).tolist())
    words = [clean_utf8(word(code)) if place in used else "" for place, code in enumerate(distinct.tolist())]
    return pa.DictionaryArray.from_arrays(
        build_column(index.astype(np.int32), is_present), convert_optional_texts(words)
    )


def build_text_column(strings: Strings, codes: NDArray[Any]) -> pa.Array:
    """Return a column of texts from a pool, empty where the code is -1; what is no UTF-8 is shown with marks."""
    import pyarrow as pa

    distinct, index = np.unique(codes, return_inverse=True)
    texts = convert_optional_texts([strings[code] if code >= 0 else "" for code in distinct.tolist()])
    return pa.DictionaryArray.from_arrays(build_column(index.astype(np.int32), codes >= 0), texts)


def clean_utf8(text: str) -> str:
    """Return a text without halves of letters, which names of files may hold and Arrow does not."""
    return text.encode("utf-8", "replace").decode()
