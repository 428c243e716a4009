"""A graph as it is drawn: blocks, layout, neighbourhoods, critical path, search."""
