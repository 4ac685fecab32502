"""A runner as a new interpreter: what bubblewrap starts where runners cannot be forked."""

import json

from ..confine import Isolation
from ..zygote import become_runner


def main(arguments: list[str]) -> None:
    call = json.loads(arguments[0])
    become_runner(call["request"], call["sock"], call["output"], call["status"], Isolation())
