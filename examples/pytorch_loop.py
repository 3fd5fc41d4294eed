"""The deep-learning engineer: one loss in a plain PyTorch loop. Changed lines end with `# bags`."""

import torch
from sklearn.datasets import load_digits

from bagwise import Bags, cc_loss  # bags

X, y = load_digits(return_X_y=True)
inputs = torch.tensor(X, dtype=torch.float32) / 16
labels = torch.tensor(y)  # only counts of them are used, and the final accuracy
order = torch.randperm(len(inputs), generator=torch.Generator().manual_seed(0))
train_bags, test = order[:1600].reshape(100, 16), order[1600:]  # bags

torch.manual_seed(0)
model = torch.nn.Sequential(
    torch.nn.Linear(64, 300), torch.nn.BatchNorm1d(300), torch.nn.ReLU(), torch.nn.Linear(300, 10)
)
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
for _epoch in range(30):
    for batch in train_bags[torch.randperm(100)].split(16):  # bags
        bags = Bags.from_labels(labels[batch].flatten(), [16] * len(batch), n_classes=10)  # bags
        loss = cc_loss(model(inputs[batch.flatten()]), bags)  # bags
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()

model.eval()
accuracy = (model(inputs[test]).argmax(1) == labels[test]).float().mean()
print(f"test accuracy: {accuracy:.3f}")
