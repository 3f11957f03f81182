"""Models without hidden layers."""

from __future__ import annotations

from functools import partial

from examples.record_curves import splits
from examples.record_curves.rates import Rate
from examples.record_curves.recipes import (
    linear_regression,
    logistic_regression,
    momentum,
    vector_machine,
)
from examples.record_curves.sources import cancer, diabetes, digits
from examples.record_curves.training import Training

LINEAR = (
    Training(
        name="linear-diabetes",
        split=diabetes,
        learner=linear_regression(10, 1),
        rate=Rate(0.005),
        batch_size=16,
        epochs=30,
        steps_per_row=2,
    ),
    Training(
        name="linear-diabetes-diverging",
        split=diabetes,
        learner=linear_regression(10, 1),
        rate=Rate(0.32),
        batch_size=32,
        epochs=300,
        steps_per_row=11,
    ),
    Training(
        name="linear-linnerud",
        split=partial(splits.numbers, "linnerud", 16),
        learner=linear_regression(3, 3),
        rate=Rate(0.01),
        batch_size=4,
        epochs=200,
        steps_per_row=4,
    ),
    Training(
        name="logistic-breast-cancer",
        split=cancer,
        learner=logistic_regression(30, 2),
        rate=Rate(0.05),
        batch_size=32,
        epochs=25,
        steps_per_row=1,
    ),
    Training(
        name="logistic-breast-cancer-slow",
        split=cancer,
        learner=logistic_regression(30, 2),
        rate=Rate(0.0002),
        batch_size=32,
        epochs=150,
        steps_per_row=7,
    ),
    Training(
        name="logistic-digits-large-batch",
        split=digits,
        learner=logistic_regression(64, 10, momentum()),
        rate=Rate(0.2),
        batch_size=352,
        epochs=60,
        steps_per_row=1,
    ),
    Training(
        name="logistic-iris",
        split=partial(splits.classes, "iris", 120),
        learner=logistic_regression(4, 3),
        rate=Rate(0.1),
        batch_size=20,
        epochs=60,
        steps_per_row=2,
    ),
    Training(
        name="svm-breast-cancer",
        split=cancer,
        learner=vector_machine(30, 2),
        rate=Rate(0.01),
        batch_size=16,
        epochs=30,
        steps_per_row=4,
    ),
    Training(
        name="svm-digits-step-decay",
        split=digits,
        learner=vector_machine(64, 10),
        rate=Rate(1.0, drops=(15, 27)),
        batch_size=32,
        epochs=36,
        steps_per_row=4,
    ),
)
