"""Search a small recurrent network from Python, and use the best one."""

import sys

from orchestrator import Sweep

SEARCH = {
    "task": "listops",
    "data": {"length": 64, "min_length": 10, "max_length": 60, "examples": 512, "held_out": 128},
    "model": {"layer": "rotrnn", "depth": 1, "d_model": 16, "d_state": 16, "heads": 4},
    "training": {"steps": 60, "interval": 20, "batch_size": 16, "recurrent_learning_rate": 1e-3},
    "search": {"learning_rate": {"log_uniform": [1e-4, 1e-2]}},
    "objective": {"maximize": "val/accuracy"},
    "sampler": {"tpe": {"seed": 0}},
    "budget": {"trials": 4},
}


def main(root="mlruns"):
    """Run the sweep, or resume it, and print its trials and an answer of the best network."""
    sweep = Sweep.from_dict(SEARCH, name="small", root=root)
    sweep.run()
    print(sweep.trials[["state", "value", "params.learning_rate"]])
    print(f"best: {sweep.best.key}, {sweep.best.value:.3f} on validation")
    print(sweep.best.predictor().predict(["( ( ( [MAX 2 ) 9 ) ] )"]))


if __name__ == "__main__":
    main(*sys.argv[1:])
