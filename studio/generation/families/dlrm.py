"""The recommendation model of MLPerf Training: DLRM with the cross layers of DCN v2, on multi-hot Criteo data.

Sources: Naumov et al., "Deep Learning Recommendation Model", 2019; Wang et al., "DCN V2", 2021; MLCommons, training,
`recommendation_v2/torchrec_dlrm` (rows of tables, rows taken, widths, batch).
"""

from __future__ import annotations

from studio.generation.families.network import ADAGRAD, Network, Part, Tables, build_linear

_ROWS = (
    40_000_000, 39_060, 17_295, 7_424, 20_265, 3, 7_122, 1_543, 63, 40_000_000, 3_067_956, 405_282, 10, 2_209, 11_938, 155, 4,
    976, 14, 40_000_000, 40_000_000, 40_000_000, 590_152, 12_973, 108, 36,
)  # fmt: skip
_TAKEN = (3, 2, 1, 2, 6, 1, 1, 1, 1, 7, 3, 8, 1, 6, 9, 5, 1, 1, 1, 12, 100, 27, 10, 3, 1, 1)
_WIDTH, _DENSE, _RANK, _CROSSES = 128, 13, 512, 3
_BOTTOM, _TOP = (512, 256, 128), (1_024, 1_024, 512, 256, 1)
_SOURCE = "MLCommons training, recommendation_v2 (torchrec_dlrm): rows and rows taken of tables, widths of layers, batch of 65,536"


def build_recommendation_model(name: str) -> Network:
    """Return the recommendation model."""
    joined = (len(_ROWS) + 1) * _WIDTH
    parts: list[Part] = []
    for number, shape in enumerate(zip((_DENSE, *_BOTTOM), _BOTTOM, strict=False)):
        parts.append(build_linear(f"bottom{number}", 1, shape))
    for number in range(_CROSSES):
        # x0 · (W V x + b) + x, by two matrices of a low rank.
        parts.append(build_linear(f"cross{number}.down", 1, (joined, _RANK), bias=False))
        parts.append(build_linear(f"cross{number}.up", 1, (_RANK, joined)))
        parts.append(Part(f"cross{number}.product", "other", 2 * joined, 3 * joined, joined))
    for number, shape in enumerate(zip((joined, *_TOP), _TOP, strict=False)):
        parts.append(build_linear(f"top{number}", 1, shape))
    tables = Tables(_ROWS, _TAKEN, _WIDTH, "cross0.down")
    return Network(name, "dlrm", tuple(parts), 65_536, _SOURCE, ADAGRAD, tables)
