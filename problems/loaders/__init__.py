"""One module per place that problems come from: kbenv's own, a KernelBench checkout, a single file."""
