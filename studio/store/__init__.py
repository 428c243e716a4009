"""Storage on disk: jobs, runs, imports, and background tasks."""
