"""Label files, mutated where that reaches code that no input has reached. One input is one file.

Atheris measures what is reached; half of the mutations are those of `damage.py`, which knows CSV. A
seed is a process of its own, which begins with the corpus.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from random import Random

from damage import damaged

HERE = Path(__file__).resolve().parent
RUNS = 3000  # files of a seed


def make(folder: Path) -> Callable[[int], int]:
    """Processes that write a file that fails to a folder of the system's."""

    def step(seed: int) -> int:
        command = [sys.executable, __file__, str(seed), str(folder)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            raise AssertionError(done.stdout[-3000:] + done.stderr[-3000:])
        return RUNS

    return step


def main(seed: int, folder: Path) -> None:
    """Read files until one fails."""
    import atheris

    with atheris.instrument_imports(include=["bagwise.tables.labels", "bagwise.tables.read"]):
        import texts

    with tempfile.TemporaryDirectory() as place:
        read = texts.labels(Path(place))

        def one(content: bytes) -> None:
            texts.attempt(read, content, Random(len(content)))

        def mutate(content: bytes, most: int, seed: int) -> bytes:
            if seed % 2:
                return bytes(atheris.Mutate(content, most))
            return damaged(content, ".csv", Random(seed))[:most]

        corpus = folder / f"corpus {seed}"
        corpus.mkdir()
        options = [f"-runs={RUNS}", f"-seed={seed + 1}", "-max_len=2000", "-verbosity=0"]
        places = [str(corpus), str(HERE / "corpus" / "labels")]
        atheris.Setup([sys.argv[0], *options, *places], one, custom_mutator=mutate)
        atheris.Fuzz()


MAKE = {"guided labels": make}

if __name__ == "__main__":
    main(int(sys.argv[1]), Path(sys.argv[2]))
