from __future__ import annotations

import itertools
from itertools import pairwise

import pytest
import torch
from torch import nn

from bagwise import BagData, Bags, TrainingOptions, train
from bagwise.networks import (
    Standardize,
    convnet,
    convnet_authors,
    linear,
    make_model,
    mlp,
    resnet32,
    resnet32_authors,
)
from bagwise.paper.datasets import find, load_dataset
from bagwise.training.evaluation import predict_logits


def parameters(model: nn.Module) -> int:
    return sum(p.numel() for p in model.parameters())


def conv(channels: int, width: int) -> int:
    """A 3 x 3 convolution without bias, and its batch normalization."""
    return 9 * channels * width + 2 * width


def test_parameter_counts_are_those_of_the_architectures() -> None:
    assert parameters(linear((1, 28, 28), 10)) == 784 * 10 + 10
    hidden = 784 * 300 + 3 * 300 * 300 + 4 * 2 * 300
    assert parameters(mlp((1, 28, 28), 10)) == hidden + 300 * 10 + 10
    widths = [3, 128, 128, 128, 256, 256, 256, 512, 512, 512]
    convolutions = sum(conv(a, b) for a, b in pairwise(widths))
    assert parameters(convnet((3, 32, 32), 10)) == convolutions + 512 * 10 + 10
    stages = conv(3, 16) + 10 * conv(16, 16)
    stages += conv(16, 32) + 9 * conv(32, 32) + conv(32, 64) + 9 * conv(64, 64)
    assert parameters(resnet32((3, 32, 32), 10)) == stages + 64 * 10 + 10


def test_the_networks_of_the_authors_code_have_its_parameters() -> None:
    widths = [3, 128, 128, 128, 256, 256, 256, 512, 256, 128]
    convolutions = sum(conv(a, b) + b for a, b in pairwise(widths))  # each with a bias
    assert parameters(convnet_authors((3, 32, 32), 10)) == convolutions + 128 * 10 + 10
    assert convolutions + 1290 == 4_434_570
    projections = (16 * 32 + 2 * 32) + (32 * 64 + 2 * 64)
    plain = parameters(resnet32((3, 32, 32), 10))
    assert parameters(resnet32_authors((3, 32, 32), 10)) == plain + projections


def test_the_authors_convnet_is_not_padded_at_the_end_and_drops_whole_channels() -> None:
    model = convnet_authors((3, 32, 32), 10)
    with torch.no_grad():
        places = [
            images.shape[-1]
            for images in itertools.accumulate(
                model, lambda images, layer: layer(images), initial=torch.zeros(2, 3, 32, 32)
            )
            if images.dim() == 4
        ]
    assert list(dict.fromkeys(places)) == [32, 16, 8, 6, 4, 2, 1]
    kinds = {type(module) for module in model}
    assert nn.Dropout2d in kinds
    assert nn.Dropout not in kinds
    assert {m.negative_slope for m in model if isinstance(m, nn.LeakyReLU)} == {0.01}
    assert convnet_authors((1, 28, 28), 10).eval()(torch.zeros(1, 1, 28, 28)).shape == (1, 10)
    with pytest.raises(ValueError, match=r"\(3, 16, 16\); convnet_authors needs images of 28 x 28"):
        convnet_authors((3, 16, 16), 10)


def test_the_authors_resnet_projects_its_shortcuts_and_starts_as_he_et_al() -> None:
    torch.manual_seed(0)
    model = resnet32_authors((3, 32, 32), 10)
    convolutions = [m for m in model.modules() if isinstance(m, nn.Conv2d)]
    shortcuts = [m for m in convolutions if m.kernel_size == (1, 1)]
    assert [(m.in_channels, m.out_channels, m.stride) for m in shortcuts] == [
        (16, 32, (2, 2)),
        (32, 64, (2, 2)),
    ]
    for m in convolutions:
        variance = 2 / (m.kernel_size[0] * m.kernel_size[1] * m.out_channels)
        tolerance = 5 * (2 / m.weight.numel()) ** 0.5  # five standard errors
        assert m.weight.var().item() == pytest.approx(variance, rel=tolerance)


def test_layers_are_counted_as_in_the_paper() -> None:
    def layers(model: nn.Module) -> int:
        return sum(isinstance(m, nn.Conv2d | nn.Linear) for m in model.modules())

    assert layers(mlp((784,), 10)) == 5
    assert layers(resnet32((3, 32, 32), 10)) == 32
    assert layers(convnet((3, 32, 32), 10)) == 10  # the paper's "12-layer" counts two poolings


@pytest.mark.parametrize("name", ["convnet", "convnet_authors", "resnet32", "resnet32_authors"])
def test_dropout_and_batch_statistics_are_off_at_evaluation(name: str) -> None:
    torch.manual_seed(0)
    model = make_model(name, (3, 32, 32), 10).eval()
    images = torch.randn(3, 3, 32, 32)
    whole = model(images)
    assert whole.shape == (3, 10)
    torch.testing.assert_close(torch.cat([model(image[None]) for image in images]), whole)
    assert torch.equal(model(images), whole)


def test_convolutions_refuse_tables_and_names_are_checked() -> None:
    with pytest.raises(ValueError, match=r"shape \(64,\); a convolutional model needs images"):
        resnet32((64,), 10)
    with pytest.raises(ValueError, match="'lenet'; choose one of linear, mlp"):
        make_model("lenet", (64,), 10)


def test_constant_columns_are_only_centred() -> None:
    table = torch.tensor([[1.0, 0.1], [3.0, 0.1], [2.0, 0.1]])
    standardized = Standardize.of(table)(table)
    torch.testing.assert_close(standardized.mean(0), torch.zeros(2), atol=1e-6, rtol=0)
    torch.testing.assert_close(standardized[:, 1], torch.zeros(3), atol=1e-6, rtol=0)


def test_what_is_seldom_does_not_become_huge() -> None:
    generator = torch.Generator().manual_seed(0)
    table = torch.zeros(2000, 3, dtype=torch.float64)
    table[17, 0] = 16.0  # a pixel that is black in one picture
    table[:, 1] = torch.randn(2000, generator=generator)
    table[:1000, 2] = 1.0
    standardized = Standardize.of(table)(table)
    assert 1 < standardized[17, 0] < 3  # its standard deviation would make it 45
    torch.testing.assert_close(standardized[:, 1:].std(0), torch.ones(2), atol=0.05, rtol=0)
    in_other_units = 1e6 * table
    torch.testing.assert_close(Standardize.of(in_other_units)(in_other_units), standardized)


def test_a_row_predicted_alone_has_the_logits_it_has_among_others() -> None:
    torch.manual_seed(0)
    model, table = mlp((3,), 2), 30 * torch.randn(20, 3)
    whole = predict_logits(model, table)
    assert whole.shape == (20, 2)
    for n in (1, 2, 7):
        parts = [predict_logits(model, part) for part in table.split(n)]
        assert torch.equal(torch.cat(parts), whole)
    assert predict_logits(model, table[:0]).shape == (0, 2)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["convnet", "resnet32", "resnet32_authors"])
def test_the_loss_falls_on_images_in_bags(name: str) -> None:
    if find("cifar10") is not None:
        data = load_dataset("cifar10")
        images, labels = data.train_inputs[:64], data.train_labels[:64]
    else:  # images whose mean color tells the class
        labels = torch.arange(64) % 10
        generator = torch.Generator().manual_seed(0)
        images = torch.randn(64, 3, 32, 32, generator=generator)
        images[:, 0] += labels[:, None, None] - 4.5
    images = images[:, :, ::2, ::2]  # a quarter of the work
    torch.manual_seed(0)
    bags = Bags.from_labels(labels, [4] * 16, n_classes=10)
    options = TrainingOptions(epochs=8, batch_instances=32)
    model = make_model(name, (3, 16, 16), 10)
    history = train(model, BagData(images, bags, labels), "cc", options, progress=False).history
    assert history[-1]["train_loss"] < 0.85 * history[0]["train_loss"]
