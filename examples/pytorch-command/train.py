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
if trial.resume:
    saved = torch.load(trial.resume / "last.pt", weights_only=True)
    model.load_state_dict(saved["model"])
    optimizer.load_state_dict(saved["optimizer"])
for step in range(trial.start + 1, trial.steps + 1):
    loss = torch.nn.functional.mse_loss(model(x), x.sin())
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % trial.interval == 0:
        state = {"model": model.state_dict(), "optimizer": optimizer.state_dict()}
        torch.save(state, trial.folder / "last.pt")
        if not trial.report(step, {"val/loss": loss.item()}, checkpoint=trial.folder):
            break
