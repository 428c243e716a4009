"""Jobs of the workspace: imported, mended, simulated; at once or as tasks of the queue."""
