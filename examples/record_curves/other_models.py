"""What is not made of layers."""

from __future__ import annotations

from functools import partial

from examples.record_curves import splits
from examples.record_curves.rates import Rate
from examples.record_curves.recipes import boosting, centres, factors
from examples.record_curves.sources import blobs, diabetes, digits, friedman
from examples.record_curves.training import Training

OTHERS = (
    Training(
        name="factors-low-rank",
        split=partial(splits.ratings, 8000),
        learner=factors(6, 0.05),
        rate=Rate(0.02),
        batch_size=40,
        epochs=60,
        steps_per_row=50,
    ),
    Training(
        name="factors-low-rank-overfitting",
        split=partial(splits.ratings, 8000),
        learner=factors(30, 0.0),
        rate=Rate(0.04),
        batch_size=100,
        epochs=80,
        steps_per_row=40,
    ),
    Training(
        name="k-means-digits",
        split=digits,
        learner=centres(10),
        rate=Rate(1.0),
        batch_size=32,
        epochs=12,
        steps_per_row=2,
    ),
    Training(
        name="k-means-blobs",
        split=blobs,
        learner=centres(12),
        rate=Rate(1.0),
        batch_size=64,
        epochs=25,
        steps_per_row=4,
    ),
    Training(
        name="boosting-diabetes-overfitting",
        split=diabetes,
        learner=boosting(4),
        rate=Rate(0.1),
        batch_size=176,
        epochs=100,
        steps_per_row=1,
    ),
    Training(
        name="boosting-friedman",
        split=friedman,
        learner=boosting(3),
        rate=Rate(0.05),
        batch_size=512,
        epochs=100,
        steps_per_row=1,
    ),
)
