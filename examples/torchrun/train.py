"""Fit a sine with a process for each GPU, or with processes without one; rank 0 reports."""

import sweep_client
import torch

trial = sweep_client.trial(lr=0.01)
on_gpu = torch.cuda.is_available()
torch.distributed.init_process_group("nccl" if on_gpu else "gloo")
rank, world = torch.distributed.get_rank(), torch.distributed.get_world_size()
device = torch.device("cuda", rank % torch.cuda.device_count()) if on_gpu else torch.device("cpu")
torch.manual_seed(trial.seed)
x = torch.linspace(-3, 3, 256, device=device).unsqueeze(1)[rank::world]
model = torch.nn.Sequential(torch.nn.Linear(1, 32), torch.nn.Tanh(), torch.nn.Linear(32, 1)).to(device)
if trial.resume:
    model.load_state_dict(torch.load(trial.resume / "last.pt", weights_only=True))
ranks = torch.nn.parallel.DistributedDataParallel(model)
optimizer = torch.optim.SGD(model.parameters(), trial.params["lr"])
for step in range(trial.start + 1, trial.steps + 1):
    loss = torch.nn.functional.mse_loss(ranks(x), x.sin())
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % trial.interval == 0:
        if rank == 0:
            torch.save(model.state_dict(), trial.folder / "last.pt")
        if not trial.report(step, {"val/loss": loss.item()}, checkpoint=trial.folder):
            break
