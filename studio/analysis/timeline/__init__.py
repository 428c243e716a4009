"""What the Timeline shows: rows and tiles, bars and their peers, counters, windows, exports.

`coverage.py` says which category of work a bar is of (`classify_spans`); its colour is the token of that category in
`assets/timeline/look.mjs`, the value of the token is in `assets/tokens.css`. Files for viewers are written by `chrome.py` and
`perfetto.py`, by the rules in `tests/viewer_rules.py`.
"""
