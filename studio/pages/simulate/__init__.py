"""The Simulate page.

`under_way.py` shows a simulation that runs, with the button that cancels it; `orders.py` carries such orders out.
"""
