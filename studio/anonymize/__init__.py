"""Take names, texts and, where wanted, exact numbers out of a job, so that it can be given away; check and tell what is left.

`policy.py` is the table of fields and policies, and of standard attributes; `words.py` has public terms and new words; `rename.py`
changes texts, which `pools.py` reads, `numbers.py` numbers; `residue.py` searches for what is left, and says what can still be learnt.
"""
