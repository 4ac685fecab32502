"""Two threads launch half of the work each, on the stream that was current where they were started; both are joined."""

import threading

import torch

PROBLEM = "core/level1/relu"


class ModelNew(torch.nn.Module):
    def forward(self, x):
        y = torch.empty_like(x)
        stream, half = torch.cuda.current_stream(), x.shape[0] // 2

        def work(rows):
            with torch.no_grad(), torch.cuda.stream(stream):
                torch.clamp(x[rows], min=0, out=y[rows])

        threads = [threading.Thread(target=work, args=(rows,)) for rows in (slice(half), slice(half, None))]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return y
