"""A pool with a build worker at work, for a test that kills it: prints when the worker builds."""

from __future__ import annotations

import signal
import sys
import time

from kbenv.pool import open_pool

SLEEPING = "import time\n\ntime.sleep(600)\n# load_inline\n"


def main() -> None:
    signal.signal(signal.SIGINT, signal.default_int_handler)  # ignored where the tests run in a shell's background

    def on_build(worker: str, doing: str) -> None:
        print(doing, flush=True)

    with open_pool(["cpu"], sandbox="process", build_workers=1, on_build=on_build) as pool:
        pool.submit("core/level1/relu", SLEEPING)
        sys.stdin.read()
        time.sleep(600)


if __name__ == "__main__":
    main()
