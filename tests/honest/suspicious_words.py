"""Words that a scan over the source might object to: stream, time, Event, elapsed_time, sys.modules, gc, /proc, pass.

# eval( exec( subprocess os._exit torch.cuda.Stream synchronize perf_counter monkeypatch pickle.loads
"""

import gc
import os
import sys
import time

import torch

PROBLEM = "core/level1/relu"

time_stream = {"time": time.perf_counter, "stream": "torch.cuda.current_stream()", "event": "elapsed_time"}


class ModelNew(torch.nn.Module):
    def forward(self, x):
        started = time.perf_counter()
        try:
            out = torch.relu(x)
        except RuntimeError as error:
            pass
            raise error
        if "torch" not in sys.modules or not os.path.exists("/proc/self/maps"):
            gc.collect()
        self.elapsed_time = time.perf_counter() - started
        return out
