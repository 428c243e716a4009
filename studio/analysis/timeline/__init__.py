"""What the Timeline shows: rows and tiles, bars and their peers, counters, windows, exports."""
