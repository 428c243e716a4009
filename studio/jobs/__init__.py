"""Import, repair and simulate jobs, at once or as background tasks."""
