"""Flask routes beside the pages: bytes in and out, as JSON or binary.

`guard.py` says who may send requests, `ticket.py` has the tickets of opened browsers, `lanes.py` threads and deadlines.
"""
