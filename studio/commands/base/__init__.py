"""What several commands use: options, output, names of jobs and runs, timelines for other tools, ASTRA-sim's limits."""
