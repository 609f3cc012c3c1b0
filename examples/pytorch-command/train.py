"""Fit a sine with a small network: `python train.py --lr 0.01`, or many times in a sweep."""

import sweep_client
import torch

trial = sweep_client.trial(lr=0.01, width=32)
torch.manual_seed(trial.seed)
x = torch.linspace(-3, 3, 256).unsqueeze(1)
model = torch.nn.Sequential(
    torch.nn.Linear(1, trial.params["width"]), torch.nn.Tanh(), torch.nn.Linear(trial.params["width"], 1)
)
optimizer = torch.optim.Adam(model.parameters(), trial.params["lr"])
sweep_client.torch.checkpoint(trial.start, model=model, optimizer=optimizer)  # restores
for step in range(trial.start + 1, trial.steps + 1):
    loss = torch.nn.functional.mse_loss(model(x), x.sin())
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % trial.interval == 0:
        saved = sweep_client.torch.checkpoint(step, model=model, optimizer=optimizer)
        if not trial.report(step, {"val/loss": loss.item()}, checkpoint=saved):
            break
