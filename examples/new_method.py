"""The researcher: a new method is one class. Here: CC with a push towards confident instances."""

import numpy as np
import torch
from sklearn.datasets import load_digits

from bagwise import LLPClassifier, cc_loss
from bagwise.methods import Batch, Method, register


@register("cc_entropy")
class CCEntropy(Method):
    """CC plus the mean entropy of the instances' predictions."""

    def __init__(self, strength: float = 0.1) -> None:
        super().__init__()
        self.strength = strength

    def loss(self, logits: torch.Tensor, batch: Batch) -> torch.Tensor:
        """-log P(S|X) / K + strength * entropy."""
        entropy = torch.distributions.Categorical(logits=logits).entropy().mean()
        return cc_loss(logits, batch.bags) + self.strength * entropy


X, y = load_digits(return_X_y=True)
bags = np.random.default_rng(0).permutation(len(X)) // 16
counts = {bag: np.bincount(y[bags == bag], minlength=10) for bag in np.unique(bags)}
for method in ("cc", "cc_entropy", CCEntropy(strength=0.3)):
    classifier = LLPClassifier(method, epochs=20, random_state=0).fit(X, bags, counts)
    name = method if isinstance(method, str) else f"{method.name}, {method.strength}"
    print(f"{name:16} accuracy {classifier.score(X, y):.3f}")
