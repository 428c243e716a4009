"""Arrays in, small results out: what a trace says, without a word on how it is shown."""
