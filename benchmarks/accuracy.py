"""How far each engine's posterior is from the exact one, on generated bags.

Labels are uniform over 10 classes, logits are s * onehot(y) + sqrt(s) * N(0, 1): s tells how well
informed the classifier is. Shown is the mean L1 distance of an instance's weights to the exact
weights, and for bethe also the largest error of the log-likelihood, in nats.
"""

from __future__ import annotations

import torch
from rich.console import Console
from rich.progress import track
from rich.table import Table

from bagwise import Bags, bag_posterior

ENGINES = {
    "multinomial (paper)": {"engine": "multinomial"},
    "transport": {"engine": "transport"},
    "bethe, plain": {"engine": "bethe", "correction": False},
    "bethe": {"engine": "bethe"},
}
STRENGTHS = (0.3, 1.0, 2.0, 4.0, 8.0)
BAGS = {8: 200, 16: 100, 32: 12}


def main() -> None:
    console = Console()
    torch.manual_seed(0)
    cells = [(K, s) for K in BAGS for s in STRENGTHS]
    rows = []
    for K, s in track(cells, description="exact and approximate posteriors", transient=True):
        labels = torch.randint(10, (K * BAGS[K],))
        logits = s * torch.nn.functional.one_hot(labels, 10) + s**0.5 * torch.randn(len(labels), 10)
        bags = Bags.from_labels(labels, [K] * BAGS[K], n_classes=10)
        log_probs = logits.double().log_softmax(-1)
        exact = bag_posterior(log_probs, bags, engine="exact")
        found = [bag_posterior(log_probs, bags, **options) for options in ENGINES.values()]
        distances = [(post.weights - exact.weights).abs().sum(1).mean().item() for post in found]
        worst = (found[-1].log_likelihood - exact.log_likelihood).abs().max().item()
        rows.append((str(K), f"{s:g}", *(f"{d:.4f}" for d in distances), f"{worst:.2f}"))

    table = Table(title="Mean L1 distance of an instance's weights to the exact posterior")
    for name in ("K", "s", *ENGINES, "bethe: worst log P error"):
        table.add_column(name, justify="right")
    for row, following in zip(rows, [*rows[1:], None], strict=True):
        table.add_row(*row, end_section=following is None or following[0] != row[0])
    console.print(table)


if __name__ == "__main__":
    main()
