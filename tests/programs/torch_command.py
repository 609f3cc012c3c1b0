"""A training script in PyTorch."""

import time

import sweep_client
import torch

trial = sweep_client.trial(lr=0.1, pause=0.0)
torch.manual_seed(trial.seed)
inputs = torch.randn(256, 8, generator=torch.Generator().manual_seed(1))
targets = inputs.sum(1, keepdim=True).sin()
parts = torch.nn.Linear(8, 32), torch.nn.Dropout(0.1), torch.nn.Tanh(), torch.nn.Linear(32, 1)
model = torch.nn.Sequential(*parts)
optimizer = torch.optim.Adam(model.parameters(), trial.params["lr"])
if trial.resume:
    saved = torch.load(trial.resume / "state.pt", weights_only=True)
    model.load_state_dict(saved["model"])
    optimizer.load_state_dict(saved["optimizer"])
    torch.set_rng_state(saved["random"])
for epoch in range(trial.start, trial.steps):
    for rows in torch.randperm(256).split(32):
        optimizer.zero_grad()
        loss = torch.nn.functional.mse_loss(model(inputs[rows]), targets[rows])
        loss.backward()
        optimizer.step()
    state = {"model": model.state_dict(), "optimizer": optimizer.state_dict()}
    torch.save({**state, "random": torch.get_rng_state()}, trial.folder / "state.pt")
    time.sleep(trial.params["pause"])
    if not trial.report(epoch + 1, {"val/loss": loss.item()}, checkpoint=trial.folder):
        break
