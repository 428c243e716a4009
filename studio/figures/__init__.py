"""Results in, figures out."""
