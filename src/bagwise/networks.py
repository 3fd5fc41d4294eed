"""The paper's four models, LeNet-5 and WRN-28-2, and inputs standardized inside the model.

The convolutional models of the paper are here twice: as its text has them (`convnet`, `resnet32`)
and as its authors' code has them (`convnet_authors`, `resnet32_authors`).

Every model takes (N, ...) inputs and returns (N, C) logits.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import torch
from torch import nn

from bagwise.errors import InputError, InputTypeError
from bagwise.registry import Registry

__all__ = [
    "MODELS",
    "Standardize",
    "convnet",
    "convnet_authors",
    "lenet5",
    "linear",
    "make_model",
    "mlp",
    "resnet32",
    "resnet32_authors",
    "wrn28_2",
]

Factory = Callable[[tuple[int, ...], int], nn.Module]
"""factory(shape of an instance, number of classes) makes a model."""

MODELS = Registry[Factory]("model", "bagwise.networks")


class Standardize(nn.Module):
    """(x - mean) / std with the statistics of training inputs, kept as buffers of the model.

    Tables are standardized by column, images (N, channels, height, width) by channel. What does not
    vary is only centred. A column that seldom leaves one value, like a pixel at the border, has a
    tiny standard deviation, and what is seldom would become huge. Where the size of a deviation d
    from the mean, sqrt(2 / pi) E[d^2] / E|d|, is larger, it takes the place of std; of a normal
    distribution the two are the same.

    Inputs in double precision keep it until they are centred: a column of timestamps would lose its
    differences in single precision.

    >>> standardize = Standardize.of(torch.tensor([[0., 5.], [2., 5.]]))
    >>> standardize(torch.tensor([[3., 6.]]))
    tensor([[2., 1.]])
    """

    mean: torch.Tensor
    std: torch.Tensor

    def __init__(self, mean: torch.Tensor, std: torch.Tensor) -> None:
        super().__init__()
        self.register_buffer("mean", mean)
        self.register_buffer("std", std)

    @classmethod
    def of(
        cls, inputs: torch.Tensor, plain: bool = False, copies: torch.Tensor | None = None
    ) -> Standardize:
        """With the statistics of these inputs (N, ...).

        Args:
            plain: divide by the standard deviation itself also where something is seldom, as is
                usual for images and their channels.
            copies: (N,) how many identical rows each row stands for; None for one each.
        """
        axes = [0, *range(2, inputs.dim())]
        values = inputs.double()

        def averaged(of_rows: torch.Tensor) -> torch.Tensor:
            if copies is None:
                return of_rows.mean(dim=axes, keepdim=True)
            weights = copies.double().reshape(-1, *[1] * (of_rows.dim() - 1))
            mean = (of_rows * weights).sum(dim=0, keepdim=True) / weights.sum()
            return mean.mean(dim=axes, keepdim=True)

        if copies is None:
            std, mean = torch.std_mean(values, dim=axes, keepdim=True, correction=0)
        else:
            mean = averaged(values)
            std = averaged((values - mean).square()).sqrt()
        # Equal values have a spread of rounding errors, those of the precision they came in.
        single = inputs.is_floating_point() and inputs.dtype != torch.float64
        rounding = (1e-6 if single else 1e-13) * mean.abs()
        varies = std > rounding.clamp(min=torch.finfo(torch.float32).tiny)
        if not plain:
            deviation = averaged((values - mean).abs()).clamp(min=1e-300)
            std = torch.maximum(std, math.sqrt(2 / math.pi) * std.square() / deviation)
        return cls(mean[0], torch.where(varies, std, 1.0)[0])

    def _apply(self, fn: Callable[[torch.Tensor], torch.Tensor], recurse: bool = True) -> Any:
        """Where the module goes to another device, single precision goes there."""
        if fn(torch.empty(0)).device.type != "cpu":
            self.mean, self.std = self.mean.float(), self.std.float()
        return super()._apply(fn, recurse)  # type: ignore[no-untyped-call]

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        """Standardize (N, ...) in the precision of the inputs; the result is single precision."""
        kind = inputs.dtype if inputs.is_floating_point() else torch.float32
        return ((inputs - self.mean.to(kind)) / self.std.to(kind)).float()


@MODELS.register("linear")
def linear(shape: tuple[int, ...], n_classes: int) -> nn.Module:
    """d-C, for inputs of this shape without the first axis.

    >>> linear((28, 28), 10)(torch.zeros(3, 28, 28)).shape
    torch.Size([3, 10])
    """
    return nn.Sequential(nn.Flatten(), nn.Linear(math.prod(shape), n_classes))


@MODELS.register("mlp")
def mlp(shape: tuple[int, ...], n_classes: int) -> nn.Module:
    """d-300-300-300-300-C with batch normalization and ReLU.

    >>> mlp((64,), 10)(torch.zeros(3, 64)).shape
    torch.Size([3, 10])
    """
    layers: list[nn.Module] = [nn.Flatten()]
    for d_in, d_out in pairwise([math.prod(shape), 300, 300, 300, 300]):
        layers += [nn.Linear(d_in, d_out, bias=False), nn.BatchNorm1d(d_out), nn.ReLU()]
    return nn.Sequential(*layers, nn.Linear(300, n_classes))


@MODELS.register("convnet")
def convnet(shape: tuple[int, ...], n_classes: int) -> nn.Module:
    """The ConvNet of the paper's text: three times three convolutions, 128, 256, 512 channels.

    LeakyReLU and batch normalization after each, max pooling and dropout .25 between, mean pooling
    over all places at the end. This follows the table in the paper's appendix, `convnet_authors`
    the authors' code.

    >>> convnet((3, 32, 32), 10)(torch.zeros(2, 3, 32, 32)).shape
    torch.Size([2, 10])
    """
    channels = _channels(shape)
    layers: list[nn.Module] = []
    for width in (128, 256, 512):
        for _ in range(3):
            layers += [
                nn.Conv2d(channels, width, 3, padding=1, bias=False),
                nn.BatchNorm2d(width),
                nn.LeakyReLU(0.1),
            ]
            channels = width
        if width < 512:
            layers += [nn.MaxPool2d(2), nn.Dropout(0.25)]
    return ChannelsLast(
        *layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(channels, n_classes)
    )


@MODELS.register("convnet_authors")
def convnet_authors(shape: tuple[int, ...], n_classes: int) -> nn.Module:
    """The ConvNet of the authors' code: 4.43 million parameters on CIFAR-10.

    Unlike `convnet`, the last block narrows from 512 to 256 and 128 channels and is not padded,
    convolutions have a bias, LeakyReLU has the slope .01, and dropout takes whole channels.

    >>> convnet_authors((3, 32, 32), 10)(torch.zeros(2, 3, 32, 32)).shape
    torch.Size([2, 10])
    """
    channels = _channels(shape)
    if min(shape[1:]) < 28:
        raise InputError(
            f"an instance has shape {shape}; convnet_authors needs images of 28 x 28 pixels or "
            "more. Use convnet, which pads its images."
        )
    layers: list[nn.Module] = []
    for widths, padding in (((128,) * 3, 1), ((256,) * 3, 1), ((512, 256, 128), 0)):
        for width in widths:
            layers += [
                nn.Conv2d(channels, width, 3, padding=padding),
                nn.BatchNorm2d(width),
                nn.LeakyReLU(0.01),
            ]
            channels = width
        if padding:
            layers += [nn.MaxPool2d(2), nn.Dropout2d(0.25)]
    return ChannelsLast(
        *layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(channels, n_classes)
    )


@MODELS.register("resnet32")
def resnet32(shape: tuple[int, ...], n_classes: int) -> nn.Module:
    """The CIFAR ResNet of 32 layers: three stages of five basic blocks, 16, 32 and 64 channels.

    As in the article that the paper cites: shortcuts have no parameters. `resnet32_authors` follows
    the authors' code.

    >>> resnet32((3, 32, 32), 10)(torch.zeros(2, 3, 32, 32)).shape
    torch.Size([2, 10])
    """
    return _resnet(shape, n_classes, projects=False)


@MODELS.register("resnet32_authors")
def resnet32_authors(shape: tuple[int, ...], n_classes: int) -> nn.Module:
    """The ResNet of the authors' code: `resnet32` with projections and He's initialization.

    Where shapes change, the shortcut is a convolution of 1 x 1 with batch normalization. Weights of
    convolutions are normal with variance 2 / (places of the kernel * channels that come out).

    >>> resnet32_authors((3, 32, 32), 10)(torch.zeros(2, 3, 32, 32)).shape
    torch.Size([2, 10])
    """
    model = _resnet(shape, n_classes, projects=True)
    for module in model.modules():
        if isinstance(module, nn.Conv2d):
            nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")
    return model


def _resnet(shape: tuple[int, ...], n_classes: int, projects: bool) -> nn.Module:
    """ResNet-32, whose shortcuts project where shapes change, or have no parameters."""
    layers: list[nn.Module] = [
        nn.Conv2d(_channels(shape), 16, 3, padding=1, bias=False),
        nn.BatchNorm2d(16),
        nn.ReLU(),
    ]
    channels = 16
    for width in (16, 32, 64):
        for _ in range(5):
            layers.append(_BasicBlock(channels, width, projects))
            channels = width
    return ChannelsLast(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(64, n_classes))


@MODELS.register("lenet5")
def lenet5(shape: tuple[int, ...], n_classes: int) -> nn.Module:
    """LeNet-5 as it is built today: batch normalization, ReLU and max pooling.

    Convolutions of 6 and 16 channels, 5 x 5, each halving the places; then 120-84-C.

    >>> lenet5((1, 28, 28), 10)(torch.zeros(3, 1, 28, 28)).shape
    torch.Size([3, 10])
    """
    channels = _channels(shape)
    if min(shape[1:]) < 12:
        raise InputError(
            f"an instance has shape {shape}; lenet5 needs images of 12 x 12 pixels or more."
        )
    places = math.prod((side // 2 - 4) // 2 for side in shape[1:])
    layers: list[nn.Module] = []
    for width, padding in ((6, 2), (16, 0)):
        layers += [
            nn.Conv2d(channels, width, 5, padding=padding, bias=False),
            nn.BatchNorm2d(width),
            nn.ReLU(),
            nn.MaxPool2d(2),
        ]
        channels = width
    layers.append(nn.Flatten())
    for d_in, d_out in pairwise([16 * places, 120, 84]):
        layers += [nn.Linear(d_in, d_out, bias=False), nn.BatchNorm1d(d_out), nn.ReLU()]
    return nn.Sequential(*layers, nn.Linear(84, n_classes))


@MODELS.register("wrn28_2")
def wrn28_2(shape: tuple[int, ...], n_classes: int) -> nn.Module:
    """The wide ResNet of 28 layers and width 2: three stages of four blocks, 32, 64, 128 channels.

    Normalization and LeakyReLU come before each convolution, as is usual in semi-supervised
    learning.

    >>> wrn28_2((3, 32, 32), 10)(torch.zeros(2, 3, 32, 32)).shape
    torch.Size([2, 10])
    """
    layers: list[nn.Module] = [nn.Conv2d(_channels(shape), 16, 3, padding=1, bias=False)]
    channels = 16
    for width, stride in ((32, 1), (64, 2), (128, 2)):
        for block in range(4):
            layers.append(_WideBlock(channels, width, stride if block == 0 else 1))
            channels = width
    layers += [nn.BatchNorm2d(channels), nn.LeakyReLU(0.1)]
    return ChannelsLast(
        *layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(channels, n_classes)
    )


class ChannelsLast(nn.Sequential):
    """Layers whose images lie in memory pixel by pixel, each with all its channels.

    Convolutions of many channels are faster so; what comes out is the same.
    """

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        """The layers, one after the other."""
        found: torch.Tensor = inputs.contiguous(memory_format=torch.channels_last)
        for layer in self:
            found = layer(found)
        return found


class _WideBlock(nn.Module):
    """Two convolutions, normalized before, beside a shortcut: one of 1 x 1 where shapes change."""

    def __init__(self, channels: int, width: int, stride: int) -> None:
        super().__init__()
        self.before = nn.Sequential(nn.BatchNorm2d(channels), nn.LeakyReLU(0.1))
        self.body = nn.Sequential(
            nn.Conv2d(channels, width, 3, stride=stride, padding=1, bias=False),
            nn.BatchNorm2d(width),
            nn.LeakyReLU(0.1),
            nn.Conv2d(width, width, 3, padding=1, bias=False),
        )
        self.shortcut = (
            nn.Identity()
            if channels == width
            else nn.Conv2d(channels, width, 1, stride=stride, bias=False)
        )

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        normalized = self.before(inputs)
        # Where shapes change, the shortcut is normalized too.
        passed = inputs if isinstance(self.shortcut, nn.Identity) else self.shortcut(normalized)
        added: torch.Tensor = self.body(normalized) + passed
        return added


class _BasicBlock(nn.Module):
    """Two convolutions beside a shortcut; where channels grow, places halve.

    The shortcut then has zeros in the channels that are added, or projects its own to all of them.
    """

    def __init__(self, channels: int, width: int, projects: bool) -> None:
        super().__init__()
        self.stride = 1 if channels == width else 2
        self.added = width - channels
        self.projection = (
            nn.Sequential(
                nn.Conv2d(channels, width, 1, stride=self.stride, bias=False),
                nn.BatchNorm2d(width),
            )
            if projects and self.added
            else None
        )
        self.body = nn.Sequential(
            nn.Conv2d(channels, width, 3, stride=self.stride, padding=1, bias=False),
            nn.BatchNorm2d(width),
            nn.ReLU(),
            nn.Conv2d(width, width, 3, padding=1, bias=False),
            nn.BatchNorm2d(width),
        )

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        if self.projection is not None:
            shortcut: torch.Tensor = self.projection(inputs)
        else:
            shortcut = inputs[:, :, :: self.stride, :: self.stride]
            shortcut = nn.functional.pad(shortcut, (0, 0, 0, 0, 0, self.added))
        return torch.relu(self.body(inputs) + shortcut)


def make_model(model: str | Factory, shape: tuple[int, ...], n_classes: int) -> nn.Module:
    """The model of that name, or what a factory(shape, n_classes) makes.

    >>> make_model("linear", (4,), 3)(torch.zeros(1, 4)).shape
    torch.Size([1, 3])
    """
    factory = model if callable(model) else MODELS[model]
    made = factory(shape, n_classes)
    if not isinstance(made, nn.Module):
        raise InputTypeError(
            f"the model {model!r} makes a {type(made).__name__}; a torch.nn.Module is expected."
        )
    return made


def _channels(shape: tuple[int, ...]) -> int:
    if len(shape) != 3:
        raise InputError(
            f"an instance has shape {shape}; a convolutional model needs images "
            "(channels, height, width). Use linear or mlp for tables."
        )
    return shape[0]
