"""Problems that audits found degenerate, by id, with the reason: `hardened` does not judge them.

Only what `kbenv problems audit` has measured is entered, with the finding's own words and where it was measured.
"""

from __future__ import annotations

from collections.abc import Mapping

EXCLUDED: Mapping[str, str] = {
    # Audited on a CPU (torch 2.13) under fp32; also left out by KernelBench-Verified (arXiv 2607.16241).
    "kernelbench/level2/23": "its output is constant up to rounding: the mean over a normalisation",
    "kernelbench/level2/80": "its output is constant: a maximum over the axis less its own mean is zero",
    "kernelbench/level2/83": "its output is constant: what is at most zero is clamped from below at zero",
    # Audited on an H200 (torch 2.11) under fp32, parameters drawn anew: benchmarks/results/kernelbench-audit.md.
    "kernelbench/level2/9": "its output is zero on every plain draw, so that it may be known beforehand",
    "kernelbench/level2/36": "its output is the same whatever goes in",
    "kernelbench/level2/58": "its output is constant in three of ten draws of its parameters: 17 of 60 on a CPU",
    "kernelbench/level2/66": "zeros are within 1e-3 of its output, and in training mode its forward is random",
    "kernelbench/level3/10": "the reference's own rounding error is 5% of its output",
    "kernelbench/level3/18": "its output is the same on all plain draws, up to rounding: it may be known beforehand",
    "kernelbench/level3/20": "the reference's own rounding error is 3% of its output",
    "kernelbench/level3/24": "its output is the same whatever goes in",
    "kernelbench/level3/28": "its output depends on its input by less than 1e-4",
    "kernelbench/level3/45": "the reference's own rounding error is 12% of its output",
}
