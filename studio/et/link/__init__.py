"""Link the execution traces and Kineto traces of all ranks into one job.

Both files of a rank are paired (`pair`), their operators joined (`join`), device operations given to the operators
that launched them (`attribute`), communication found (`communication`) and put in order (`sequence`), dependencies
derived (`depend`), messages of one kernel set beside each other (`batches`), and what is left judged (`unlinked`); then the ranks are brought together
by groups (`membership`), clocks (`clock`) and messages (`senders`) and become graphs (`assemble`).
"""
