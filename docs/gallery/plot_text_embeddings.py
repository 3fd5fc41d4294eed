"""
Text embeddings
===============

Which phone was a tweet written on? Only counts of a candidate's tweets by day, week or hour are
known. A frozen sentence encoder turns each text into 384 numbers.

The encoder needs a large package, so this page shows stored results: ``results/text/runs.csv``, ten
random splits, written by ``benchmarks/text_encoder.py``.
"""

from pathlib import Path

import matplotlib.pyplot as plt
import pandas as pd

runs = pd.read_csv(Path("../../results/text/runs.csv"))
mean = runs.groupby("counted by")[["new_tweets", "counted_tweets"]].mean()
bags = runs.groupby("counted by")["bags"].first()
names = {
    "week": "week",
    "hour": "hour of the day",
    "day": "day",
    "week + hour": "week and hour, jointly",
    "day + hour": "day and hour, jointly",
}
supervised = mean["new_tweets"]["label"]

# %%
# A fit is three lines, once there are embeddings (n, 384) and the day of each tweet::
#
#     counts = pd.crosstab(days, phone)
#     model = bagwise.BagLogisticRegression().fit(embeddings, days, counts)
#     model.predict(new_embeddings)

figure, axes = plt.subplots()
figure.set_label(
    "Accuracy for new and for counted tweets by what was counted. Counts by day and hour, jointly, "
    "reach the accuracy of true labels for new tweets and more for counted ones."
)
for place, key in enumerate(names):
    new, counted = mean.loc[key]
    axes.plot([new, counted], [place, place], color="#d5dadf", linewidth=3, zorder=1)
    axes.plot(new, place, "o", color="#0072b2", markersize=9)
    axes.plot(counted, place, "o", color="#009e73", markersize=9)
axes.annotate(
    "new tweets",
    (mean["new_tweets"]["day + hour"], 4),
    (-10, -4),
    color="#0072b2",
    ha="right",
    textcoords="offset points",
)
axes.annotate(
    "counted tweets",
    (mean["counted_tweets"]["day + hour"], 4),
    (0, 14),
    color="#009e73",
    ha="center",
    textcoords="offset points",
)
axes.axvline(supervised, color="#d55e00", linewidth=1.5, zorder=0)
axes.annotate(
    "new tweets, with all\nlabels known",
    (supervised, -0.45),
    (8, 0),
    color="#d55e00",
    textcoords="offset points",
    va="center",
)
axes.set_yticks(range(5), [f"{name}\n{bags.get(key)} counts" for key, name in names.items()])
axes.set_ylim(-0.9, 4.7)
axes.set_xlim(0.75, 0.95)
axes.set_xticks([0.75, 0.8, 0.85, 0.9, 0.95])
axes.xaxis.set_major_formatter("{x:.0%}")
axes.set_title("Tweets whose phone is predicted correctly")
plt.show()

# %%
# 24 counts nearly suffice, and two groupings of the same tweets are better than either.

print((100 * mean).round(1))

# %%
# :doc:`Text </how_to/text>` shows how to do this with your texts, and
# :doc:`the whole experiment </about/results/text/index>` how to run this one again.
