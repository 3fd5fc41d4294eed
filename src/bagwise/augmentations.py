"""Random views of images: what a picture shows stays the same, its pixels do not.

An augmentation is a function of a batch of inputs and a generator, from which all its randomness
comes. Those for images are found by name: `TrainingOptions(augment="weak")`.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

import torch
from torch.nn.functional import affine_grid, grid_sample

from bagwise.checks import check_all, flag, number
from bagwise.errors import InputError
from bagwise.registry import Registry

__all__ = ["AUGMENTATIONS", "Augment", "ImageViews", "find_augmentation"]

Augment = Callable[[torch.Tensor, torch.Generator], torch.Tensor]
"""augment(inputs (n, ...), generator) returns changed inputs; randomness comes from the generator
alone, which is on the CPU and part of every checkpoint."""


_SIZE = number(0)
_SHARE = number(0, 1)
_VIEWS = {
    **dict.fromkeys(("rotation", "shift", "scale", "shear", "brightness"), _SIZE),
    **dict.fromkeys(("contrast", "cutout"), _SHARE),
    "flip": flag,
}


@dataclass(frozen=True)
class ImageViews:
    """Random views of images (n, channels, height, width), each drawn uniformly up to what is said.

    An affine change, interpolated between pixels, the border's going on beyond it; then contrast
    and brightness; then a square is covered by the image's mean. Images on the scale on which
    a model sees them, standardized, are expected: brightness is in units of it.

    Attributes:
        rotation: in degrees, to either side.
        shift: as a share of the height and the width, in each direction.
        scale: .1 makes an image up to 1.1 times as large or as small.
        shear: as a share of the width by which the top moves against the bottom.
        flip: whether half of the images are mirrored, left to right.
        contrast: .5 makes the distances from the image's mean .5 to 1.5 times as large.
        brightness: is added to all pixels, or taken away.
        cutout: side of the square, as a share of the image's.

    >>> images = torch.arange(16.).reshape(1, 1, 4, 4)
    >>> views = ImageViews(rotation=15, shift=0.1)
    >>> views(images, torch.Generator().manual_seed(0)).shape
    torch.Size([1, 1, 4, 4])
    >>> torch.allclose(ImageViews()(images, torch.Generator()), images)
    True
    """

    rotation: float = 0.0
    shift: float = 0.0
    scale: float = 0.0
    shear: float = 0.0
    flip: bool = False
    contrast: float = 0.0
    brightness: float = 0.0
    cutout: float = 0.0

    def __post_init__(self) -> None:
        check_all(_VIEWS, self)

    def __call__(self, images: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
        """One view of each image, as floats."""
        if images.dim() != 4:
            raise InputError(
                f"the inputs have shape {tuple(images.shape)}; these views are of images (n, "
                "channels, height, width). For others, let augment be a function of your own."
            )
        if not images.is_floating_point():
            images = images.float()
        if len(images) == 0:
            return images
        # As many numbers of every image, whatever is asked for: views differ in that alone.
        draws = torch.rand(10, len(images), generator=generator).to(images) * 2 - 1
        grid = affine_grid(self._affine(draws, images), list(images.shape), align_corners=False)
        seen = grid_sample(images, grid, padding_mode="border", align_corners=False)
        mean = seen.mean((1, 2, 3), keepdim=True)
        if self.contrast or self.brightness:
            factor, added = 1 + self.contrast * draws[6], self.brightness * draws[7]
            seen = mean + factor[:, None, None, None] * (seen - mean) + added[:, None, None, None]
        if self.cutout:
            seen = torch.where(self._covered(draws[8], draws[9], images), mean, seen)
        return seen

    def _affine(self, draws: torch.Tensor, images: torch.Tensor) -> torch.Tensor:
        """(n, 2, 3) where each place of a view lies in the image, both from -1 to 1."""
        angle = math.radians(self.rotation) * draws[0]
        size = torch.exp(math.log1p(self.scale) * draws[1])
        shear = self.shear * draws[2]
        mirrored = torch.where(draws[5] < 0, -1.0, 1.0) if self.flip else torch.ones_like(size)
        wide = images.shape[3] / images.shape[2]  # a rotation is one of pixels, not of shares
        cos, sin = angle.cos() / size, angle.sin() / size
        top = torch.stack([mirrored * cos, mirrored * (shear * cos - sin / wide)], -1)
        bottom = torch.stack([sin * wide, shear * sin * wide + cos], -1)
        moved = 2 * self.shift * draws[3:5].T
        return torch.cat([torch.stack([top, bottom], 1), moved[:, :, None]], -1)

    def _covered(self, x: torch.Tensor, y: torch.Tensor, images: torch.Tensor) -> torch.Tensor:
        """(n, 1, height, width) whether a place lies in the square, which lies in the image."""

        def near(centre: torch.Tensor, side: int) -> torch.Tensor:
            places = (torch.arange(side, device=images.device) + 0.5) * 2 / side - 1
            return (places - centre[:, None] * (1 - self.cutout)).abs() <= self.cutout

        return (near(y, images.shape[2])[:, :, None] & near(x, images.shape[3])[:, None])[:, None]


AUGMENTATIONS = Registry[Augment]("augment", "bagwise.augmentations")

_WEAK = ImageViews(rotation=5, shift=0.055, scale=0.05)
_STRONG = ImageViews(
    rotation=15, shift=0.1, scale=0.15, shear=0.15, contrast=0.4, brightness=0.2, cutout=0.35
)
for _name, _views in (("weak", _WEAK), ("strong", _STRONG)):
    AUGMENTATIONS[_name] = _views
    AUGMENTATIONS[f"{_name}_flip"] = replace(_views, flip=True)


def find_augmentation(augment: str | Augment | None) -> Augment | None:
    """The augmentation of that name; a function, or None, is returned as it is.

    >>> find_augmentation("weak").rotation
    5
    """
    return AUGMENTATIONS[augment] if isinstance(augment, str) else augment
