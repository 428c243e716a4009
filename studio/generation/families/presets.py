"""The named networks of each family."""

from __future__ import annotations

from collections.abc import Callable
from difflib import get_close_matches
from functools import partial

from studio.errors import ConfigError
from studio.generation.families.dlrm import build_recommendation_model
from studio.generation.families.network import Network
from studio.generation.families.resnet import build_residual_network
from studio.generation.families.vit import build_vision_transformer

NETWORKS: dict[str, dict[str, Callable[[], Network]]] = {
    "vit": {
        "vit-b16": partial(build_vision_transformer, "vit-b16", 12, 768, 3_072, 16),
        "vit-l16": partial(build_vision_transformer, "vit-l16", 24, 1_024, 4_096, 16),
        "vit-h14": partial(build_vision_transformer, "vit-h14", 32, 1_280, 5_120, 14),
    },
    "resnet": {
        "resnet50": partial(build_residual_network, "resnet50", (3, 4, 6, 3)),
        "resnet101": partial(build_residual_network, "resnet101", (3, 4, 23, 3)),
        "resnet152": partial(build_residual_network, "resnet152", (3, 8, 36, 3)),
    },
    "dlrm": {"dlrm-dcnv2": partial(build_recommendation_model, "dlrm-dcnv2")},
}
"""By family and name what makes the network."""
NAMES = {name: family for family, named in NETWORKS.items() for name in named}


def find_network(name: str, family: str | None = None) -> Network:
    """Return a named network.

    Args:
        name: Its name.
        family: The family that it has to be of; None for any.

    Raises:
        ConfigError: There is none of this name.

    Example:
        >>> find_network("resnet50").parameters
        25557032
    """
    wanted = name.strip().lower()
    allowed = [known for known, of in NAMES.items() if family in (None, of)]
    if wanted not in allowed:
        near = get_close_matches(wanted, allowed, 1, 0)
        raise ConfigError(
            f"--model is {name[:80]!r}; allowed{f' of {family}' if family else ''}: {', '.join(allowed)}.",
            hint=f"The nearest is {near[0]}.",
            key="model",
        )
    return NETWORKS[NAMES[wanted]][wanted]()
