"""
Digits in a PyTorch loop
========================

How does a loop change when labels are known only per bag? Handwritten digits come in bags of 16,
and of each bag we know how many zeros, ones, twos it has.
"""

import matplotlib.pyplot as plt
import torch
from sklearn.datasets import load_digits

from bagwise import Bags, bag_posterior, cc_loss

X, y = load_digits(return_X_y=True)
inputs, labels = torch.tensor(X, dtype=torch.float32) / 16, torch.tensor(y)
order = torch.randperm(len(inputs), generator=torch.Generator().manual_seed(0))
train_bags, test = order[:1600].reshape(100, 16), order[1600:]

# %%
# The loop is the usual one. A batch holds whole bags, and the loss takes their counts.

torch.manual_seed(0)
model = torch.nn.Sequential(
    torch.nn.Linear(64, 300), torch.nn.BatchNorm1d(300), torch.nn.ReLU(), torch.nn.Linear(300, 10)
)
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
for _epoch in range(15):
    for batch in train_bags[torch.randperm(100)].split(16):
        bags = Bags.from_labels(labels[batch].flatten(), [16] * len(batch), n_classes=10)
        loss = cc_loss(model(inputs[batch.flatten()]), bags)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()

# %%
# The picture shows the 16 digits of a bag, the label that each gets, and the bag's counts.

model.eval()
rows = train_bags[2]
bag = Bags.from_labels(labels[rows], [16], n_classes=10)
with torch.no_grad():
    told = bag_posterior(model(inputs[rows]), bag).weights.argmax(1)

figure, axes = plt.subplots(2, 8, figsize=(8, 3.2))
figure.set_label("The sixteen digits of a bag, each with the label that the model gives it.")
for axis, row, digit in zip(axes.flat, rows, told, strict=True):
    axis.imshow(inputs[row].reshape(8, 8), cmap="Greys")
    right = digit == labels[row]
    axis.set_title(f"{digit}", loc="center", pad=4, color="#0072b2" if right else "#d55e00")
    axis.set_axis_off()
counts = ", ".join(f"{n} of {digit}" for digit, n in enumerate(bag.counts[0]) if n)
figure.suptitle(f"What was known: {counts}", x=0.02, ha="left", fontsize=11)
plt.show()

# %%
# The model has not seen a single label. How well does it recognize new digits?

with torch.no_grad():
    right = (model(inputs[test]).argmax(1) == labels[test]).float().mean()
print(f"test accuracy: {right:.1%}")

# %%
# :doc:`Your own training loop </how_to/own_loop>` has the rules, and
# :doc:`PyTorch in detail </pytorch>` batches, several workers and ``torch.compile``.
