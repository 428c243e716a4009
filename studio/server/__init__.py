"""Flask routes beside the pages: bytes in and out, as JSON or binary."""
