"""Two views of an instance: the bags' loss on one, cross-entropy on the other."""

from __future__ import annotations

import torch
from torch.nn.functional import log_softmax, one_hot

from bagwise.augmentations import AUGMENTATIONS, ImageViews
from bagwise.autograd.bag_tensors import tensors_of, weighted
from bagwise.autograd.logits import check_logits
from bagwise.bags import Bags
from bagwise.checks import check_all, flag, number, one_of, whole
from bagwise.data import BagData
from bagwise.errors import InputError
from bagwise.losses import dllp_loss, view_loss
from bagwise.methods.base import Batch, Method
from bagwise.posterior import bag_posterior, check_engine, most_probable_labeling

_OPTIONS = {
    "target": one_of("posterior", "argmax", "labeling", "prediction"),
    "bag_loss": one_of("cc", "dllp"),
    "weight": number(0),
    "start": whole(),
    "ramp": whole(),
    "threshold": number(0, below=1),
    "teacher": flag,
}


class TwoViews(Method):
    """The bags' likelihood on one view, and cross-entropy of a strong view against its posterior.

        loss = -log P(S|X) / K + weight * ramp * view_loss(strong logits, w)

    where X is the view that `augment` makes ("weak", say) and w the label posterior given the
    bag's counts under it: each instance counts as much as its posterior is sure. The other options
    are what others do, to be compared with.

    Args:
        engine: how likelihood and posterior are computed.
        strong: the augmentation of the second view, a name of `bagwise.augmentations`.
        target: what the strong view learns: "posterior"; "argmax", its likeliest class;
            "labeling", that of the most probable labeling with exactly the bag's counts;
            "prediction", the likeliest class of the model itself, which knows no counts, with the
            model's own sureness (as L2P-AHIL does).
        bag_loss: "cc", or "dllp" for mean matching.
        weight: of the strong view's loss in the end.
        start: epochs without it: labels of an untaught model would confirm its mistakes.
        ramp: epochs over which its weight then grows.
        threshold: how probable the likeliest label must be for an instance to count.
        teacher: whether the averaged model (`average` of the training options) says what the
            strong view learns.
    """

    title, color, line = "Two views", "#6a0dad", "-"

    def __init__(
        self,
        engine: str = "auto",
        strong: str = "strong",
        target: str = "posterior",
        bag_loss: str = "cc",
        weight: float = 1.0,
        start: int = 5,
        ramp: int = 5,
        threshold: float = 0.0,
        teacher: bool = False,
    ) -> None:
        super().__init__()
        check_engine(engine, {})
        one_of(*AUGMENTATIONS)(strong, "strong")
        self.engine = engine
        self.strong = strong
        self.target = target
        self.bag_loss = bag_loss
        self.weight = weight
        self.start = start
        self.ramp = ramp
        self.threshold = threshold
        self.teacher = teacher
        check_all(_OPTIONS, self)
        self.needs_teacher = bool(teacher)
        self._factor = 0.0

    def begin(self, data: BagData, device: torch.device) -> None:
        """Views of images need images: that shows now, not when the strong view begins."""
        shape = getattr(data.inputs, "shape", None)  # a `Dataset` has none
        if isinstance(AUGMENTATIONS[self.strong], ImageViews) and len(shape or range(4)) != 4:
            raise InputError(
                f"the inputs have shape {tuple(shape or ())}, and the view {self.strong!r} is of "
                "images (n, channels, height, width). For others, register an augmentation of "
                "your own, or use cc."
            )

    def begin_epoch(self, epoch: int, generator: torch.Generator) -> None:
        """How much the strong view counts in this epoch."""
        self._factor = self.weight * min(max((epoch - self.start) / (self.ramp + 1), 0.0), 1.0)

    def second_view(self, inputs: torch.Tensor, generator: torch.Generator) -> torch.Tensor | None:
        """The strong view, as soon as it counts."""
        return AUGMENTATIONS[self.strong](inputs, generator) if self._factor > 0 else None

    def loss(self, logits: torch.Tensor, batch: Batch) -> torch.Tensor:
        """The bags' loss on `logits`, and that of the strong view."""
        assert batch.bags is not None
        check_logits(logits, batch.bags)
        log_probs = log_softmax(logits, -1)
        post = None
        if self.bag_loss == "dllp":
            value = dllp_loss(logits, batch.bags)
        else:
            post = bag_posterior(log_probs, batch.bags, self.engine)
            value = -post.log_likelihood.sum() / batch.bags.total
        if batch.second_logits is None:
            return value
        taught = log_probs.detach()
        if batch.teacher_logits is not None:
            taught, post = log_softmax(batch.teacher_logits, -1), None
        if self.target == "prediction":
            sure = taught.exp()
        else:
            post = post or bag_posterior(taught, batch.bags, self.engine)
            sure = post.weights
        weights = self._labels(taught, sure, batch.bags)
        second = view_loss(
            batch.second_logits, weights, sure, threshold=self.threshold, reduction="none"
        )
        second = weighted(second, tensors_of(batch.bags).weights).sum() / batch.bags.total
        return value + self._factor * second

    def _labels(self, log_probs: torch.Tensor, sure: torch.Tensor, bags: Bags) -> torch.Tensor:
        """(n, C) what the strong view learns."""
        if self.target == "posterior":
            return sure
        if self.target != "labeling":
            return one_hot(sure.argmax(-1), sure.shape[-1]).to(sure)
        labels = most_probable_labeling(log_probs, bags)
        if labels.dim() == 2:  # how many of a row's instances have each label
            return labels.to(sure) / labels.sum(-1, keepdim=True)
        return one_hot(labels, sure.shape[-1]).to(sure)
