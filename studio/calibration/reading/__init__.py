"""Reading measured collective times: outputs of benchmark programs, CSV files, and recorded jobs."""
