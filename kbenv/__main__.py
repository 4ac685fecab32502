"""`python -m kbenv`: the `kbenv` command."""

from __future__ import annotations

import sys

from kbenv.cli import main

if __name__ == "__main__":
    sys.exit(main())
