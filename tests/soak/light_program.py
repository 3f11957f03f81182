"""The demo's training, for long: its imports take a fifth of scikit-learn's.

All nodes of a test cluster share two processors, and a world of n ranks imports n times
there. What is left of a pause is FreeTrain's and MPI's.
"""

from __future__ import annotations

from freetrain.demo.train import main

if __name__ == "__main__":
    main(["--epochs", "100000", "--chunk-s", "0.02"])
