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
}
