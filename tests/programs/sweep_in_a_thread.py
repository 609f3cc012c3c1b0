"""Run a sweep in a thread."""

import threading

from orchestrator import Exit, Observer, Sweep


def tiny():
    return Sweep.load(
        "search_spaces/listops.yaml",
        profile="laptop",
        overrides=[
            "training.steps=600",
            "training.interval=100",
            "model.d_model=16",
            "model.d_state=16",
            "model.heads=2",
            "data.length=48",
            "data.min_length=4",
            "data.max_length=40",
            "data.examples=1000",
            "data.held_out=200",
            "evaluate.examples=200",
            "budget.trials=2",
        ],
    )


class Stopper(Observer):
    def __init__(self, sweep):
        self.sweep, self.lines, self.closed = sweep, [], 0

    def say(self, line):
        self.lines.append(line)

    def show(self, progress):
        if progress.states.get("RUNNING") and not self.sweep.stopped:
            self.sweep.stopped = True
            print("stopping", self.sweep.stop().id, flush=True)

    def close(self):
        self.closed += 1


def run(sweep, observer, codes):
    codes.append(sweep.run(observer))


sweep = tiny()
sweep.stopped = False
for expected in (Exit.RESUMABLE, Exit.COMPLETE):
    codes, observer = [], Stopper(sweep)
    thread = threading.Thread(target=run, args=(sweep, observer, codes))
    thread.start()
    thread.join()
    assert codes == [expected], (codes, observer.lines)
    assert observer.closed == 1
    assert any("Data: " in line for line in observer.lines), observer.lines
    print(sweep.state, flush=True)
assert any("Resuming" in line for line in observer.lines), observer.lines
assert len(sweep.trials) == 2
best = sweep.best
assert best.evaluate().equal
