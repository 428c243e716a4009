"""Binary answers for the browser: a JSON header and typed arrays.

Little-endian: four bytes with the length of the header, the header, then the arrays, each beginning at a multiple of
eight bytes. The header's `arrays` lists `[name, type, offset, length]`, types being names of numpy's, offsets counted
from the end of the header, lengths in items. `assets/base/packed.mjs` takes it apart.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec
import numpy as np
from flask import Response
from numpy.typing import NDArray

TYPES = ("int32", "uint8", "float32", "float64")


def pack_arrays(header: Mapping[str, Any], columns: Mapping[str, NDArray[Any]]) -> Response:
    """Return a response with a header and arrays of the types in `TYPES`."""
    listed, parts, offset = [], [b"", b""], 0
    for name, column in columns.items():
        assert column.dtype.name in TYPES, column.dtype
        listed.append([name, column.dtype.name, offset, column.size])
        data = np.ascontiguousarray(column, column.dtype.newbyteorder("<")).tobytes()
        parts += [data, bytes(-len(data) % 8)]
        offset += len(data) + -len(data) % 8
    text = msgspec.json.encode({**header, "arrays": listed})
    text = text.ljust(len(text) + -(4 + len(text)) % 8)
    parts[:2] = [len(text).to_bytes(4, "little"), text]
    return Response(b"".join(parts), mimetype="application/octet-stream")
