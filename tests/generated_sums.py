"""What the graphs of a generated job add up to."""

from collections import Counter

from studio.trace import CollectiveType, NodeType, read_int_column


def totals(trace):
    """Return the operations of matrix products of all ranks, and by kind of group, collective and `count` or `bytes` their sums."""
    uses = Counter(rank.graph for rank in trace.ranks)
    of_graph = {rank.graph: rank.slots for rank in trace.ranks}
    flop, volumes = 0, Counter()
    for index, graph in enumerate(trace.graphs):
        kinds = [graph.strings[text] for text in graph.attrs.value[graph.rows_with("op_type")[1]].tolist()]
        values = read_int_column(graph, "num_ops")[1].tolist()
        flop += uses[index] * sum(
            value for value, kind in zip(values, kinds, strict=True) if kind not in ("other", "copy")
        )
        rows, sizes = read_int_column(graph, "comm_size")
        collective = dict(
            zip(*(column.tolist() for column in read_int_column(graph, "comm_type")), strict=True)
        )
        where = graph.attrs.value[graph.rows_with("pg_name")[1]].tolist()
        for row, size, slot in zip(rows.tolist(), sizes.tolist(), where, strict=True):
            kind = NodeType(int(graph.type[row])).name.removeprefix("COMM_")
            name = CollectiveType(collective[row]).name if row in collective else kind
            group = str(of_graph[index][slot]).rstrip("0123456789")
            volumes[group, name, "count"] += uses[index]
            volumes[group, name, "bytes"] += uses[index] * size
    return flop, volumes
