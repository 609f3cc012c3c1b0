"""A linear classifier of handwritten digits, trained by stochastic gradient descent."""

import joblib
from sklearn.datasets import load_digits
from sklearn.linear_model import SGDClassifier


def train(trial):
    """Train one trial; a resumed trial continues from its last checkpoint."""
    x, y = load_digits(return_X_y=True)
    model = SGDClassifier(
        alpha=trial.params["alpha"], penalty=trial.params["penalty"], random_state=trial.seed
    )
    if trial.resume:
        model = joblib.load(trial.resume / "model.joblib")
    for epoch in range(trial.start, trial.steps):
        model.partial_fit(x[:1400], y[:1400], classes=range(10))
        joblib.dump(model, trial.folder / "model.joblib")
        metrics = {"val/accuracy": model.score(x[1400:], y[1400:])}
        if not trial.report(epoch + 1, metrics, checkpoint=trial.folder):
            return  # stopped early, or the sweep is stopping
