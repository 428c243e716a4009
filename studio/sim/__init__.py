"""The analytical simulator: not part of this release."""
