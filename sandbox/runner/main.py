"""A runner as a new interpreter: started by bubblewrap where runners cannot be forked, or by a tool of NVIDIA's."""

import json

from ..confine import Isolation
from ..zygote import become_runner


def main(arguments: list[str]) -> None:
    call = json.loads(arguments[0])
    if "alone" in call:
        from . import alone

        alone.run(call["alone"])
        return
    become_runner(call["request"], call["sock"], call["output"], call["status"], Isolation())
