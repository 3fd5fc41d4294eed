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
            "The worker of a sweep is killed with it, and once more alone: then the sweep replaces "
            "it, and ends. What a disk loses when power fails is not tried.",
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
            "is not enough memory; and if it then works without the limit. A limit below about "
            "1 GB for a process that begins is not tried: Arrow may end it before it can speak.",
        ),
    ),
}
"""Of each part: title, columns, sentences."""

FOUND: dict[str, list[tuple[str, str]]] = {
    "kills": [
        (
            "A fit that resumed wrote intervals.safetensors with the same numbers, but its digests "
            "in another order.",
            "They are sorted.",
        ),
        (
            "Temporary files of killed commands (rows sorted by `estimate` and `explain --memory`, "
            "standard input, DuckDB's, figures of a report, rows of a cluster's workers) stayed.",
            "They lie in locked folders, which the next command that needs one removes.",
        ),
        (
            "A killed download left its part in the cache.",
            "The next download removes it.",
        ),
        (
            "fit.json of a fit of standard input named a random temporary file.",
            "It says `standard input`.",
        ),
        (
            "A sweep that was killed just after a run had ended left the checkpoint of that run "
            "for good.",
            "The next call removes it.",
        ),
    ],
    "faults": [
        (
            "`Error: [Errno 28] No space left on device`: no path, and nothing to do. Where a "
            "hidden file failed, it named that.",
            "The line names the output, and says what to do.",
        ),
        (
            "Sorted rows, and what methods keep of each row, were written to mapped files, which "
            "ends a process by SIGBUS when the disk is full.",
            "Rows are written by calls that can fail; the disk's blocks are reserved before.",
        ),
        (
            "`estimate` and `explain --memory` advised `--store`, which they do not have.",
            "Only a fit with `--store` does.",
        ),
    ],
    "pairs": [
        (
            "Of two processes that wrote the same file, the last one won without a word.",
            "While one writes it, another is refused.",
        ),
        (
            "A second sweep could leave error.txt beside the result of the first.",
            "The next call removes it.",
        ),
    ],
    "memory": [
        (
            "A library that could not be loaded, or a thread of Arrow that could not be started, "
            "for want of memory was shown with a traceback, or as a damaged file.",
            "They are a line that says that there is not enough memory.",
        ),
    ],
}
"""What failed, and its fix."""
