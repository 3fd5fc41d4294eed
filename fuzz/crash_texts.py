"""What the logs of `crash.py` say beside their tables."""

from __future__ import annotations

LOGS = {
    "kills": (
        "Crash points",
        ("killed", "half written"),
        (
            "A child process runs a command and is killed, without any cleanup, before its n-th "
            "operation on files (create, write, rename, exchange, remove, make a folder, truncate, "
            "fsync), for every n; and once more with the first half of each write on the disk.",
            "The command is then run again. It passes if that ends well and everything below the "
            "folder of the command, that of temporary files and the cache of downloads is byte for "
            "byte what an uninterrupted run leaves, hidden files included.",
            "Clocks stand still in these processes. Otherwise two runs differ in recorded times: "
            "`seconds` of fit.json, of result.json and of its epochs, and so in the digest of "
            "fit.json in manifest.json.",
            "The workers of a sweep are killed with it. What the disk loses when power fails is "
            "not tried.",
        ),
    ),
    "faults": (
        "Faults",
        ("ENOSPC", "EIO", "EACCES", "short write"),
        (
            "The same operations fail, one at a time: a full disk stays full, and takes half of a "
            "write before; a folder that may not be changed stays so; an input/output error comes "
            "once; a write takes only half of its bytes.",
            "It passes if the command goes on where it can, or ends with exit code 3 (a sweep: 1) "
            "and one line that names the path and says what to do; if every file is the old or the "
            "new one; and if, the fault gone, the command leaves what an undisturbed run leaves.",
            "Training writes the same files by all methods: two of them stand for all.",
        ),
    ),
    "pairs": (
        "Two processes, one output",
        ("refused", "both ended"),
        (
            "A process is stopped before its n-th operation on files, and the same command is run "
            "beside it; then the first one goes on.",
            "It passes if the second is refused in one line, or both end; and if, after the "
            "command is given once more, all is as after one undisturbed run.",
        ),
    ),
    "memory": (
        "Little memory",
        ("little memory", "enough memory"),
        (
            "A command may take 0 to 512 MiB of addresses (RLIMIT_AS) beyond what its process has "
            "when it begins, libraries loaded.",
            "It passes if it ends as usual, or with exit code 3 and one line that says that there "
            "is not enough memory; and if it then works without the limit.",
        ),
    ),
}
"""Of each part: title, columns, sentences."""

FOUND: dict[str, list[tuple[str, str]]] = {"kills": [], "faults": [], "pairs": [], "memory": []}
"""What failed, and its fix."""
