"""Take names, texts and, where wanted, exact numbers out of a job, so that it can be given away; check and tell what is left."""
