"""A data set of a few images on a web server of this machine, in place of one on the net."""

from __future__ import annotations

import gzip
import hashlib
import os
import random
import struct
import threading
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from bagwise.paper.datasets import SOURCES
from bagwise.paper.datasets.catalog import Source

NAME = "kmnist"


class _Quiet(SimpleHTTPRequestHandler):
    def log_message(self, *_: object) -> None:
        """Nothing."""


def serve(folder: Path) -> None:
    """Write the files, and serve them from a process of its own, which ends with this one."""
    folder.mkdir()
    draw = random.Random(0)
    hashes = {}
    for name, n in zip(SOURCES[NAME].hashes, (120, 120, 20, 20), strict=True):
        if "images" in name:
            content = struct.pack(">4I", 0x0803, n, 28, 28)
            content += b"".join(bytes(780) + draw.randbytes(4) for _ in range(n))
        else:
            content = struct.pack(">2I", 0x0801, n) + bytes(i % 10 for i in range(n))
        packed = gzip.compress(content, mtime=0)
        (folder / name).write_bytes(packed)
        hashes[name] = f"sha256:{hashlib.sha256(packed).hexdigest()}"
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(_Quiet, directory=str(folder)))
    SOURCES[NAME] = Source("small", hashes, (f"http://127.0.0.1:{server.server_port}/",))
    parent = os.getpid()
    if os.fork():
        server.server_close()
        return
    threading.Thread(target=server.serve_forever, daemon=True).start()
    while os.getppid() == parent:
        threading.Event().wait(1)
    os._exit(0)
