"""The frame around every page: bar, navigation, activity, inspector, and the page for wrong addresses.

`layout.py` draws it, `connect.py` has its callbacks, `activity.py` background tasks and the choice of runs, `inspector.py` what is
known of a node; its scripts are in `assets/frame/`.
"""
