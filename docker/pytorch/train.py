"""A training loop that shows what PyTorch sees of a GPU that is shared, and what it says when its part is full."""

import torch
from torch import nn

device = torch.device("cuda")
free, total = torch.cuda.mem_get_info()
print(f"{torch.cuda.get_device_name()}: {free / 2**30:.2f} GiB free of {total / 2**30:.2f} GiB")

model = nn.Sequential(nn.Linear(1024, 4096), nn.ReLU(), nn.Linear(4096, 10)).to(device)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
loss_of = nn.CrossEntropyLoss()
for step in range(100):
    inputs = torch.randn(256, 1024, device=device)
    labels = torch.randint(0, 10, (256,), device=device)
    optimizer.zero_grad()
    loss = loss_of(model(inputs), labels)
    loss.backward()
    optimizer.step()
print(f"loss after {step + 1} steps: {loss.item():.3f}")

try:
    torch.empty(2 * total, dtype=torch.uint8, device=device)
except torch.cuda.OutOfMemoryError as error:
    print("above the budget:", str(error).splitlines()[0])
