"""What a master trace looks like: how ids become unique, and the names of the attributes that split goes by.

A master trace is a Chakra stream as any other. Its first record is the metadata, each further one a node with the attribute
`rank` behind all of its own. A node's id is that in the file of its rank plus `rank × BLOCK`, and so are the ids it waits for: a
dependency means the node it meant before, and one on a node that is not there still does.
"""

from __future__ import annotations

BLOCK = 1 << 32
"""Ids of a rank begin at its number times this."""

RANK = "rank"
"""The rank of a node, its last attribute but for the following two."""
ORIGINAL_ID = "original_id"
"""The id in the file of the rank, where it is taken already or is too large for the block; follows `rank`."""
MISSING_IDS = "missing_ids"
"""Pairs: the number within the block that stands for an id that no node of the file has and that is too large for the block,
and that id; follows the other two."""

LOOKED_AT = 4096
"""Bytes of the start of a master trace within which its metadata says how many ranks there are."""
RANKS = "merged.ranks"
"""Metadata: how many ranks have nodes here. The mark of a master trace."""
FILE = "merged.rank.{rank}.file"
"""Metadata: the path of a rank's file within the job."""
GZIP = "merged.rank.{rank}.gzip"
"""Metadata: the file of a rank was compressed."""
VERSION = "merged.rank.{rank}.version"
"""Metadata: the schema version of a rank, where the metadata of ranks differ."""
ATTR = "merged.rank.{rank}.attr."
"""Metadata: begins the names of a rank's own metadata, where the metadata of ranks differ."""
GROUPS = "merged.groups.{index}."
"""Metadata: begins what a comm group file held: `file`, `gzip`, `layout`, `unescaped`, and `group.<name>` for each group."""
COPIES = "merged.copies."
"""Metadata: begins what a table of copies held: `file`, `gzip`, and for each rank `<rank>.like`, `.slots`, `.assumed_from`."""
PREFIX = "merged."
"""Begins the names of all metadata that are not those of the ranks themselves."""

RULE = f"Ids of nodes: those in the file of their rank plus {BLOCK} x rank."
"""The doc string of `RANKS`."""
