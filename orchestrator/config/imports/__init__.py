"""Search spaces of other tools as search-space files: W&B, Optuna, Hydra, Ray Tune and `argparse`.

Each module reads one format and knows nothing of the others. Files are data: none is executed or unpickled.
"""
