"""Turn results into figures."""
