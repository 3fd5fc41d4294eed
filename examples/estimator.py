"""The practitioner: rows, the bag of each row, and the label counts of each bag."""

import numpy as np
from sklearn.datasets import load_breast_cancer

from bagwise import LLPClassifier

X, y = load_breast_cancer(return_X_y=True)  # y only makes the counts, and checks the result
wards = np.random.default_rng(0).integers(30, size=len(X))  # which ward each patient lies in
counts = {ward: np.bincount(y[wards == ward], minlength=2) for ward in range(30)}

classifier = LLPClassifier(random_state=0).fit(X, wards, counts)
posterior, labels = classifier.label_bags(X, wards, counts)
print(f"accuracy of predictions:         {classifier.score(X, y):.3f}")
print(f"accuracy with the counts' help:  {(labels == y).mean():.3f}")
