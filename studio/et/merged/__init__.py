"""Master traces: the files of all ranks of a job in one Chakra stream, and back to the byte.

`rule` says what a master trace looks like, `records` rewrites records, `heads` keeps what files said of themselves, `merge`
writes master traces, `split` takes them apart, and `reading` lets every command open one.
"""
