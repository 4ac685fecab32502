"""Names an all but empty image as the sandbox's: its folders are this machine's own, shown read-only to containers.

For a GPU machine without a registry, where an image with CUDA and torch would be tens of gigabytes to copy:

    export KBENV_TEST_DOCKER_MOUNTS=$(python -m tests.docker.mounted_image)

Its containers are hardened as all are; that they see this machine's programs is what makes it an image for tests alone.
"""

from __future__ import annotations

import io
import os
import sys
import tarfile
from pathlib import Path

from kbenv.sandbox.engine import IMAGE, connect

FOLDERS = ("dev", "etc", "proc", "root", "run/kbenv", "sbin", "sys", "tmp", "usr", "var/tmp")
LINKS = {name: f"usr/{name}" for name in ("bin", "lib", "lib64")} | {
    f"sbin/{name}": f"/usr/sbin/{name}" for name in ("ldconfig", "ldconfig.real")
}
"""Not sbin itself: the engine puts its init there. Triton asks for ldconfig."""


def make_image() -> tuple[str, ...]:
    """Makes the image, with this environment's PATH and LD_LIBRARY_PATH; returns what containers must mount."""
    archive = io.BytesIO()
    with tarfile.open(fileobj=archive, mode="w") as tar:
        for name in FOLDERS:
            folder = tarfile.TarInfo(name)
            folder.type, folder.mode = tarfile.DIRTYPE, 0o755
            tar.addfile(folder)
        for name, target in LINKS.items():
            link = tarfile.TarInfo(name)
            link.type, link.linkname = tarfile.SYMTYPE, target
            tar.addfile(link)
    variables = {name: os.environ[name] for name in ("PATH", "LD_LIBRARY_PATH") if name in os.environ}
    changes = [f"ENV {name}={value}" for name, value in variables.items()]
    connect().api.import_image_from_data(archive.getvalue(), repository=IMAGE, tag="latest", changes=changes)
    interpreters = {str(Path(path).resolve()) for path in (sys.prefix, sys.base_prefix)}
    wanted = ["/usr", "/opt", "/etc/alternatives", "/etc/ld.so.cache"]
    wanted += sorted(path for path in interpreters if not path.startswith(("/usr", "/opt")))
    return tuple(path for path in wanted if os.path.exists(path))


if __name__ == "__main__":
    print(":".join(make_image()))
