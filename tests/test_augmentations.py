"""Random views of images."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy import ndimage

from bagwise import LLPClassifier, TrainingOptions
from bagwise.augmentations import AUGMENTATIONS, ImageViews


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def smooth_images(n: int, height: int, width: int, channels: int = 1) -> torch.Tensor:
    noise = np.random.default_rng(0).normal(size=(n, channels, height, width))
    return torch.from_numpy(ndimage.gaussian_filter(noise, (0, 0, 2, 2))).float() * 10


def draws(n: int, seed: int = 0) -> torch.Tensor:
    """The numbers from -1 to 1 that a view is made of."""
    return torch.rand(10, n, generator=generator(seed)) * 2 - 1


@pytest.mark.parametrize("shape", [(24, 24), (16, 30)])
def test_rotations_are_those_of_scipy(shape: tuple[int, int]) -> None:
    images = smooth_images(6, *shape)
    seen = ImageViews(rotation=40)(images, generator())
    for image, view, draw in zip(images, seen, draws(6)[0], strict=True):
        turned = ndimage.rotate(
            image[0].numpy(), float(40 * draw), reshape=False, order=1, mode="nearest"
        )
        np.testing.assert_allclose(view[0].numpy(), turned, atol=1e-3)
    assert (seen - images).abs().max() > 0.3


def test_shifts_are_those_of_scipy() -> None:
    images = smooth_images(5, 20, 10)
    seen = ImageViews(shift=0.2)(images, generator())
    for image, view, dx, dy in zip(images, seen, *draws(5)[3:5], strict=True):
        by = (-0.2 * 20 * float(dy), -0.2 * 10 * float(dx))
        moved = ndimage.shift(image[0].numpy(), by, order=1, mode="nearest")
        np.testing.assert_allclose(view[0].numpy(), moved, atol=1e-4)


def test_scaling_keeps_the_middle_and_moves_the_rest() -> None:
    x = torch.linspace(-1, 1, 21).expand(1, 1, 21, 21)  # a ramp from left to right
    views = ImageViews(scale=0.5)
    for seed in range(5):
        seen, draw = views(x, generator(seed))[0, 0], draws(1, seed)[1, 0]
        assert seen[10, 10].abs() < 1e-6
        slope = (seen[10, 12] - seen[10, 8]) / 0.4
        assert float(slope) == pytest.approx(float(1.5**-draw), rel=1e-4)


def test_shearing_moves_the_top_against_the_middle() -> None:
    ramp = torch.linspace(-1, 1, 41).expand(1, 1, 41, 41)
    seen = ImageViews(shear=0.3)(ramp, generator(3))[0, 0]
    shear = float(0.3 * draws(1, 3)[2, 0])
    assert float(seen[20, 20]) == pytest.approx(0, abs=1e-5)
    height = -20 / 20.5  # of the top row's middle, from -1 to 1
    assert float(seen[0, 20]) == pytest.approx(shear * height * 20.5 / 20, rel=1e-3)


def test_half_of_the_images_are_mirrored() -> None:
    images = smooth_images(200, 6, 6)
    seen = ImageViews(flip=True)(images, generator())
    same = torch.isclose(seen, images, atol=1e-4).all(dim=(1, 2, 3))
    mirrored = torch.isclose(seen, images.flip(3), atol=1e-4).all(dim=(1, 2, 3))
    assert bool((same ^ mirrored).all())
    assert 70 < int(mirrored.sum()) < 130


def test_contrast_and_brightness_change_deviation_and_mean() -> None:
    images = smooth_images(50, 8, 8, channels=3)
    seen = ImageViews(contrast=0.5, brightness=0.3)(images, generator())
    spread = seen.std((1, 2, 3)) / images.std((1, 2, 3))
    added = seen.mean((1, 2, 3)) - images.mean((1, 2, 3))
    torch.testing.assert_close(spread, 1 + 0.5 * draws(50)[6], rtol=1e-3, atol=1e-4)
    torch.testing.assert_close(added, 0.3 * draws(50)[7], rtol=1e-3, atol=1e-4)


def test_a_square_is_covered_by_the_mean() -> None:
    images = smooth_images(40, 20, 20, channels=2)
    seen = ImageViews(cutout=0.3)(images, generator())
    changed = ~torch.isclose(seen, images, atol=1e-5)
    assert bool((changed.all(1) == changed.any(1)).all())  # in all channels alike
    rows, columns = changed[:, 0].any(2).sum(1), changed[:, 0].any(1).sum(1)
    assert set(rows.tolist()) | set(columns.tolist()) <= {5, 6, 7}
    for image, view, where in zip(images, seen, changed, strict=True):
        torch.testing.assert_close(view[where], image.mean().expand(int(where.sum())))
    covered = changed[:, 0].float().mean(0)
    assert covered[10, 10] > 0
    assert covered[:2].sum() > 0
    assert covered[-2:].sum() > 0


@pytest.mark.parametrize("name", ["weak", "weak_flip", "strong", "strong_flip"])
def test_randomness_comes_from_the_generator_alone(name: str) -> None:
    images, views = smooth_images(8, 12, 12), AUGMENTATIONS[name]
    before = torch.get_rng_state()
    once, again, otherwise = (views(images, generator(seed)) for seed in (1, 1, 2))
    assert torch.equal(torch.get_rng_state(), before)
    assert torch.equal(once, again)
    assert not torch.equal(once, otherwise)
    assert not torch.equal(once, images)
    assert once.shape == images.shape


def test_whole_numbers_become_floats() -> None:
    images = torch.randint(256, (4, 3, 8, 8), dtype=torch.uint8, generator=generator())
    seen = ImageViews(shift=0.1)(images, generator())
    assert seen.dtype == torch.float32


def test_tables_have_no_views() -> None:
    with pytest.raises(
        ValueError, match=r"shape \(5, 3\); these views are of images \(n, channels"
    ):
        AUGMENTATIONS["weak"](torch.zeros(5, 3), generator())


def test_a_name_that_there_is_not_says_which_there_are() -> None:
    expected = r"augment is 'weka'; choose one of weak, weak_flip, stron"
    with pytest.raises(ValueError, match=expected):
        TrainingOptions(augment="weka")
    with pytest.raises(ValueError, match=expected):
        LLPClassifier(augment="weka").fit(np.zeros((4, 2)), [0, 0, 1, 1], {0: [1, 1], 1: [2, 0]})


def test_a_checkpoint_knows_views_by_their_numbers() -> None:
    ours, other = (
        TrainingOptions(augment=ImageViews(rotation=angle)).identity()["augment"]
        for angle in (5.0, 6.0)
    )
    assert ours != other
    assert TrainingOptions(augment="weak").identity()["augment"] == "weak"
