"""Starts a judge or a runner in a bare interpreter (`python -I boot.py ROLE ...`), without importing kbenv.

The package is loaded under the private name `kbenv_sandbox`, so that nothing depends on the working directory, on what
is installed beside it, or on the modules of the user's process.
"""

import importlib
import importlib.util
import os
import sys

PACKAGE = "kbenv_sandbox"


def _load_package() -> None:
    folder = os.path.dirname(os.path.abspath(__file__))
    spec = importlib.util.spec_from_file_location(
        PACKAGE, os.path.join(folder, "__init__.py"), submodule_search_locations=[folder]
    )
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[PACKAGE] = module
    spec.loader.exec_module(module)


if __name__ == "__main__":
    _load_package()
    importlib.import_module(f"{PACKAGE}.{sys.argv[1]}.main").main(sys.argv[2:])
