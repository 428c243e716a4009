"""A job as a whole: summary, where the time goes, the list of nodes, export."""
