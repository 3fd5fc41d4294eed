"""Images in folders, and what is in each folder in a CSV file: slides with counted cells.

python examples/images_on_disk.py --folder slides --epochs 20

The first call writes digits as images to `slides/slide-000/000.png`, ... and their counts to
`slides/counts.csv`. Images are decoded by worker processes while the model is trained, never all at
once. Kill it and give the same command again: it goes on where it was.
"""

from __future__ import annotations

import argparse
import csv
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from sklearn.datasets import load_digits
from torch import nn
from torch.utils.data import Dataset

from bagwise import BagData, Bags, TrainingOptions, train
from bagwise.training import JsonLines


def write_slides(folder: Path, bag_size: int = 12) -> None:
    """Digits as PNG files, a folder a bag, and counts.csv; labels.csv only checks the result."""
    images, labels = load_digits(return_X_y=True)
    bag_of_row = np.random.default_rng(0).permutation(len(labels)) // bag_size
    for bag in range(bag_of_row.max() + 1):
        place = folder / f"slide-{bag:03d}"
        place.mkdir(parents=True, exist_ok=True)
        for number, row in enumerate(np.flatnonzero(bag_of_row == bag)):
            pixels = (images[row].reshape(8, 8) * 15.9).astype(np.uint8)
            Image.fromarray(pixels).save(place / f"{number:03d}.png")
    with (folder / "labels.csv").open("w", newline="") as file:
        for bag in range(bag_of_row.max() + 1):
            csv.writer(file).writerow(labels[bag_of_row == bag].tolist())
    with (folder / "counts.csv").open("w", newline="") as file:
        table = csv.writer(file)
        table.writerow(["slide", *range(10)])
        for bag in range(bag_of_row.max() + 1):
            counts = np.bincount(labels[bag_of_row == bag], minlength=10)
            table.writerow([f"slide-{bag:03d}", *counts.tolist()])


class Images(Dataset[torch.Tensor]):
    """Image files as tensors (1, height, width); a file is opened when its image is asked for."""

    def __init__(self, paths: list[Path]) -> None:
        self.paths = paths

    def __len__(self) -> int:
        return len(self.paths)

    def __getitem__(self, index: int) -> torch.Tensor:
        with Image.open(self.paths[index]) as image:
            return torch.from_numpy(np.asarray(image, dtype=np.float32))[None] / 255

    def fingerprint(self) -> str:
        """Says whether a checkpoint belongs to these images."""
        return f"{self.paths[0]} .. {self.paths[-1]}"


def read_slides(folder: Path) -> BagData:
    """The images of all slides, slide after slide, and their counts."""
    with (folder / "counts.csv").open(newline="") as file:
        _, *rows = csv.reader(file)
    paths = [sorted((folder / slide).glob("*.png")) for slide, *_ in rows]
    counts = [[int(count) for count in row[1:]] for row in rows]
    bags = Bags(sizes=[len(of_slide) for of_slide in paths], counts=counts)
    return BagData(Images([path for of_slide in paths for path in of_slide]), bags)


def main() -> None:
    """Write the slides if they are not there, train, and say how many digits are recognized."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0] if __doc__ else "")
    parser.add_argument("--folder", type=Path, default=Path("slides"))
    parser.add_argument("--epochs", type=int, default=20)
    parser.add_argument("--workers", type=int, default=2)
    arguments = parser.parse_args()
    if not (arguments.folder / "counts.csv").exists():
        write_slides(arguments.folder)
    data = read_slides(arguments.folder)
    torch.manual_seed(0)
    model = nn.Sequential(
        nn.Conv2d(1, 32, 3, padding=1),
        nn.ReLU(),
        nn.Conv2d(32, 32, 3, padding=1),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(32 * 64, 10),
    )
    options = TrainingOptions(epochs=arguments.epochs, lr=2e-3, workers=arguments.workers)
    run = arguments.folder / "run"
    callbacks = [JsonLines(run / "history.jsonl")]
    result = train(model, data, "cc", options, checkpoint=run, callbacks=callbacks)
    with (arguments.folder / "labels.csv").open(newline="") as file:
        labels = torch.tensor([int(label) for row in csv.reader(file) for label in row])
    images = torch.stack([data.inputs[row] for row in range(len(data))])
    with torch.no_grad():
        found = result.model(images).argmax(-1)
    print(f"accuracy on {len(labels)} images: {(found == labels).float().mean():.3f}")


if __name__ == "__main__":  # the workers import this file
    main()
