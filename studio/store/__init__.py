"""What lies on the disk: jobs, their runs, imports on their way in, and the work that goes on in the background."""
