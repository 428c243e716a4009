"""The best layout of a model on some ranks: every layout that divides and fits, the fastest found by branch and bound.

`space` lists the layouts that are tried, `memory` says which of them fit, `bound` how fast each can be at best, `running`
simulates one, `search` decides which ones have to be simulated, `layout_plan` is what a user asks for and gets, and `tables` writes it.
`course` finds the longest paths, `unfit` says what would fit, `why` has the sentences.
"""

from studio.layout_search.layout_plan import plan

__all__ = ["plan"]
