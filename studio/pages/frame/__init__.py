"""The frame around every page: bar, navigation, activity, inspector, and the page for wrong addresses.

`layout.py` draws it, `connect.py` has its callbacks, `activity.py` background tasks and the choice of runs, `inspector.py` shows
what is known of a node (`node_facts.py`); its scripts are in `assets/frame/`.
"""
