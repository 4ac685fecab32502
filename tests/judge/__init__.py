"""Tests that judge real submissions in the sandbox: the corpora of exploits, honest kernels and statuses."""
