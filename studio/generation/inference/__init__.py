"""Generate steps of inference of named models, and serve traces of requests by them.

`batches.py` says what a step works on, `deployment.py` what a user asks for; `counts.py` what a step computes, reads and sends and
`memory.py` what an NPU holds, each as a closed form; `passes.py` and `job.py` make the graphs, `disaggregated.py` those of prefill
and decode on ranks of their own. `requests.py` reads traces of requests, `batching.py` is the schedule of continuous batching,
`step_times.py` simulates its steps, and `serving.py` says what requests then see.
"""
