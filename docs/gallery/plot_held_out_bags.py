"""
Choosing by held-out bags
=========================

How does one choose a setting if no label is known, not even for validation? Bags that a model has
not seen have counts, and the likelihood of these counts is a score.
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_digits
from sklearn.model_selection import GridSearchCV

from bagwise import BagKFold, BagLogisticRegression, bag_scorer

X, y = load_digits(return_X_y=True)
order = np.random.default_rng(0).permutation(len(X))
X, y = X[order], y[order]
X, y, new, truth = X[:1000], y[:1000], X[1000:], y[1000:]
bags = np.arange(1000) // 20
counts = {bag: np.bincount(y[bags == bag], minlength=10) for bag in range(50)}

# %%
# ``BagKFold`` never splits a bag, and ``bag_scorer`` is the log-likelihood of held-out counts.
# Both fit into scikit-learn's grid search. No label is used.

ridges = [0.1, 1, 10, 100, 1000]
search = GridSearchCV(
    BagLogisticRegression(), {"ridge": ridges}, cv=BagKFold(3), scoring=bag_scorer(counts)
)
search.fit(X, bags, proportions=counts)
scores = search.cv_results_["mean_test_score"]

# %%
# The truth to compare with: the accuracy on new digits, whose labels nobody used.

accuracy = [
    BagLogisticRegression(ridge=ridge).fit(X, bags, counts).score(new, truth) for ridge in ridges
]
figure, (top, bottom) = plt.subplots(2, 1, figsize=(8, 5), sharex=True)
figure.set_label(
    "Two curves over the strength of the penalty: the held-out log-likelihood, which needs no "
    "label, and the accuracy on new digits. Both are highest at about the same penalty."
)
best = int(np.argmax(scores))
for axis, values, color, title in (
    (top, scores, "#0072b2", "Held-out counts: log-likelihood per row, without any label"),
    (bottom, accuracy, "#d55e00", "New digits classified correctly, which needs labels"),
):
    axis.plot(ridges, values, "o-", color=color, markersize=5)
    axis.plot(ridges[best], values[best], "o", color=color, markersize=13, markerfacecolor="none")
    axis.grid(axis="y")
    axis.grid(visible=False, axis="x")
    axis.set_title(title, fontsize=11, color=color)
top.annotate(
    "chosen",
    (ridges[best], scores[best]),
    (0, -24),
    ha="center",
    color="#0072b2",
    textcoords="offset points",
)
bottom.set_xscale("log")
bottom.set_xticks(ridges, [f"{ridge:g}" for ridge in ridges])
bottom.minorticks_off()
bottom.yaxis.set_major_formatter("{x:.0%}")
bottom.set_xlabel("strength of the penalty (ridge)")
plt.show()

# %%
# The choice without labels, beside the best one:

print(f"chosen ridge {ridges[best]:g}: {accuracy[best]:.1%} of new digits")
print(f"best of all: {max(accuracy):.1%}")

# %%
# :doc:`Arrays and scikit-learn </estimator>` explains cross-validation over bags, and
# :doc:`How fit chooses a model </understand/fitting>` what ``fit`` does with held-out bags.
