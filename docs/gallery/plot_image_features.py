"""
Image features
==============

How large may bags be before a classifier of images suffers? A frozen network turns the images of
CIFAR-10 into 1,280 numbers, and a linear layer learns from counts of ten classes.

The features need a large package, so this page shows stored results: ``results/encoder/runs.csv``,
two or three seeds of each bag size, written by ``benchmarks/encoder.py``.
"""

from pathlib import Path

import matplotlib.pyplot as plt
import pandas as pd

runs = pd.read_csv(Path("../../results/encoder/runs.csv"))
runs = runs[runs["features"] == "lite2-160-flip"]
mean = runs.groupby(["method", "K"])["test_accuracy"].mean()
supervised = runs.loc[runs["method"] == "supervised", "test_accuracy"].mean()

# %%
# With features (n, 1280), bags that lie one after the other and their counts, the fit is::
#
#     data = bagwise.BagData(features, bagwise.Bags(sizes, counts))
#     bagwise.train(torch.nn.Linear(1280, 10), data, "cc")

figure, axes = plt.subplots()
figure.set_label(
    "Test accuracy by bag size. The exact likelihood stays within two points of true labels up to "
    "bags of 128; mean matching falls off in bags of 1,024."
)
for method, color, name in (
    ("cc", "#0072b2", "bag likelihood (cc)"),
    ("dllp", "#6b7680", "mean matching (dllp)"),
):
    axes.plot(mean[method].index, mean[method], "o-", color=color, markersize=5)
    axes.annotate(
        name, (1024, mean[method][1024]), (10, -4), color=color, textcoords="offset points"
    )
axes.axhline(supervised, color="#d55e00", linewidth=1.5)
axes.annotate(
    "true labels", (1024, supervised), (10, 6), color="#d55e00", textcoords="offset points"
)
axes.grid(axis="y")
axes.grid(visible=False, axis="x")
axes.set_xscale("log", base=2)
axes.set_xlim(1.7, 8000)
sizes = [int(size) for size in sorted(mean["cc"].index)]
axes.set_xticks(sizes, sizes)
axes.set_ylim(0.69, 0.93)
axes.minorticks_off()
axes.yaxis.set_major_formatter("{x:.0%}")
axes.set_xlabel("images in a bag")
axes.set_title("Test images classified correctly")
plt.show()

# %%
# Accuracy in percent, by bag size:

print((100 * mean.unstack(0)[["cc", "dllp"]].dropna()).round(1).to_string())

# %%
# :doc:`Images </how_to/images>` shows how to do this with your images, and
# :doc:`the whole experiment </about/results/encoder/index>` its protocol.
