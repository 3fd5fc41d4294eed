"""MixBag: mean matching on bags, and on mixtures of two bags whose shares are nearly known."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from bagwise.bags import Bags
from bagwise.checks import check_all, number
from bagwise.data import BagData
from bagwise.errors import InputError
from bagwise.losses import dllp_loss
from bagwise.methods.base import Batch, Method

_OPTIONS = {"weight": number(0), "z": number(0)}


@dataclass(frozen=True)
class Mixtures:
    """Random samples of two bags each, put together, one mixture for each bag.

    The labels in a random sample of m of a bag's K instances are hypergeometric: of a class with
    share q, m q are expected, with a variance of m q (1 - q) (K - m) / (K - 1).

    Attributes:
        rows: (R,) the sampled instances.
        mixture: (R,) the mixture that each of them is in.
        sizes: (B,) instances in a mixture.
        expected: (B, C) shares of classes to be expected.
        deviation: (B, C) standard deviations of the true shares.
    """

    rows: torch.Tensor
    mixture: torch.Tensor
    sizes: torch.Tensor
    expected: torch.Tensor
    deviation: torch.Tensor

    @classmethod
    def draw(cls, bags: Bags, generator: torch.Generator) -> Mixtures:
        """A random share of each bag's instances, and the rest of another's.

        >>> bags = Bags([4, 4], [[4, 0], [0, 4]])
        >>> mixtures = Mixtures.draw(bags, torch.Generator().manual_seed(0))
        >>> mixtures.expected.sum(1), mixtures.deviation.max()
        (tensor([1., 1.], dtype=torch.float64), tensor(0., dtype=torch.float64))
        """
        sizes, shares = torch.tensor(bags.totals), torch.tensor(bags.proportions)
        row_of = torch.arange(bags.n_instances).repeat_interleave(torch.tensor(bags.copies))
        bag_of_row = torch.tensor(bags.bag_of_row)[row_of]  # rows as often as their weights say
        partners = torch.randperm(len(bags), generator=generator)
        other = torch.empty_like(partners)
        other[partners] = partners.roll(1)
        part = torch.rand(len(bags), generator=generator)
        rows, mixture = [], []
        total = torch.zeros(len(bags), dtype=torch.long)
        expected, variance = torch.zeros_like(shares), torch.zeros_like(shares)
        for source, share in ((torch.arange(len(bags)), part), (other, 1 - part)):
            K = sizes[source]
            m = (share * K).round().long().clamp(min=1)
            taken, of_bag = _sample(bag_of_row, sizes, m[source.argsort()], generator)
            rows.append(row_of[taken])
            mixture.append(source.argsort()[of_bag])
            q, m, K = shares[source], m[:, None], K[:, None]
            total += m[:, 0]
            expected += m * q
            variance += m * q * (1 - q) * (K - m) / (K - 1).clamp(min=1)
        counts = total[:, None]
        return cls(
            torch.cat(rows), torch.cat(mixture), total, expected / counts, variance.sqrt() / counts
        )


def _sample(
    bag_of_row: torch.Tensor, sizes: torch.Tensor, m: torch.Tensor, generator: torch.Generator
) -> tuple[torch.Tensor, torch.Tensor]:
    """m[b] random rows of each bag b, and the bag of each of them."""
    keys = torch.rand(len(bag_of_row), generator=generator, dtype=torch.float64)
    shuffled = torch.argsort(bag_of_row + keys)  # bag after bag, at random within each
    place = torch.arange(len(bag_of_row)) - (sizes.cumsum(0) - sizes)[bag_of_row]
    first = place < m[bag_of_row]
    return shuffled[first], bag_of_row[first]


class MixBag(Method):
    """DLLP with mixtures of bags, in the manner of MixBag (Asanomi et al., 2023).

    Each bag of a batch is mixed with another one. The mean probabilities of a mixture are matched
    to the shares of classes that are to be expected, as far as they lie outside an interval of z
    standard deviations; within it they are as good as can be known.

    Args:
        weight: of the mixtures' loss beside that of the bags themselves.
        z: half the width of the interval, in standard deviations.
    """

    title, color, line = "MixBag", "#1b998b", "--"
    needs_whole_bags, least_bags = True, 2

    def __init__(self, weight: float = 1.0, z: float = 2.58) -> None:
        super().__init__()
        self.weight = weight
        self.z = z
        check_all(_OPTIONS, self)

    def begin(self, data: BagData, device: torch.device) -> None:
        """Bags are mixed by their counts, which have to be exact."""
        if data.bags.row_labels is not None or not data.bags.is_sharp.all():
            raise InputError(
                "MixBag mixes bags whose counts are exact, and here some are not exact or some "
                "labels are known; use cc or rc."
            )

    def begin_epoch(self, epoch: int, generator: torch.Generator) -> None:
        """Mixtures are drawn from the generator of the batches."""
        self._generator = generator

    def loss(self, logits: torch.Tensor, batch: Batch) -> torch.Tensor:
        """`dllp_loss` of the bags, and of their mixtures."""
        bags = batch.bags
        assert bags is not None
        value = dllp_loss(logits, bags)
        if len(bags) < 2:  # nothing to mix it with
            return value
        mixtures = Mixtures.draw(bags, self._generator)
        rows, mixture = mixtures.rows.to(logits.device), mixtures.mixture.to(logits.device)
        sums = logits.new_zeros(len(bags), bags.n_classes)
        sums = sums.index_add(0, mixture, logits.softmax(-1)[rows])
        sizes = mixtures.sizes[:, None].to(logits)
        means = (sums / sizes).clamp(min=1e-30)
        expected, width = mixtures.expected.to(logits), self.z * mixtures.deviation.to(logits)
        # A mean within the interval is its own target: such a cross-entropy has no gradient.
        target = means.detach().clamp(expected - width, expected + width)
        return value - self.weight * (sizes * target * means.log()).sum() / sizes.sum()
