"""Where untrusted code runs: the sandboxes that carry a job to the judge, and what runs inside them.

`boot`, `wire`, `layout`, `buffers`, `confine`, `seccomp`, `zygote`, `judge` and `runner` run inside: they import only
the standard library, torch, cuda-bindings and relative siblings. `job` and `process` run in the user's process.
"""
