"""Where the kernels of chapters listen: files of their own.

A kernel is told free ports before it runs, and takes them a second later. In between any other
program may have taken one, and the kernel dies. The name of a file in a new folder is nobody
else's.
"""

from __future__ import annotations

import atexit
import os
import shutil
import tempfile

LONGEST = 100  # a socket's name has 104 characters at most, with its number


def own_sockets() -> dict[str, str]:
    """What a KernelManager of jupyter_client is given, so that its kernel needs no ports.

    Nothing, and ports it is, where sockets have no names or theirs would be too long.
    """
    folder = tempfile.mkdtemp(prefix="kernel-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    name = os.path.join(folder, "socket")
    if os.name == "nt" or len(name) > LONGEST:
        return {}
    return {"transport": "ipc", "ip": name}
