"""Networks with hidden layers."""

from __future__ import annotations

from functools import partial

from examples.record_curves import splits
from examples.record_curves.losses import VALIDATION_CROSS_ENTROPY
from examples.record_curves.optimizers import Adam, Sgd
from examples.record_curves.rates import Rate
from examples.record_curves.recipes import (
    classifier,
    convolutional,
    momentum,
    recurrent,
    regressor,
)
from examples.record_curves.sources import digits, friedman, mixture, moons
from examples.record_curves.training import Training

NETWORKS = (
    Training(
        name="mlp1-digits",
        split=digits,
        learner=classifier(64, 64, 10, optimizer=momentum()),
        rate=Rate(0.02),
        batch_size=64,
        epochs=25,
        steps_per_row=2,
    ),
    Training(
        name="mlp1-digits-small-batch",
        split=digits,
        learner=classifier(64, 64, 10, optimizer=Sgd),
        rate=Rate(0.02),
        batch_size=8,
        epochs=24,
        steps_per_row=16,
    ),
    Training(
        name="mlp1-digits-too-fast",
        split=digits,
        learner=classifier(64, 64, 10, optimizer=momentum()),
        rate=Rate(1.5),
        batch_size=32,
        epochs=30,
        steps_per_row=4,
    ),
    Training(
        name="mlp1-wine",
        split=partial(splits.classes, "wine", 128),
        learner=classifier(13, 16, 3, optimizer=Sgd),
        rate=Rate(0.02),
        batch_size=16,
        epochs=60,
        steps_per_row=2,
    ),
    Training(
        name="mlp1-digits-overfitting",
        split=lambda: splits.noisy(splits.digits(320), 0.4),
        learner=classifier(
            64, 128, 10, optimizer=Adam, metric=VALIDATION_CROSS_ENTROPY
        ),
        rate=Rate(0.003),
        batch_size=32,
        epochs=100,
        steps_per_row=5,
    ),
    Training(
        name="mlp2-classification-step-decay",
        split=mixture,
        learner=classifier(20, 64, 32, 4, optimizer=momentum()),
        rate=Rate(0.15, drops=(20, 32)),
        batch_size=32,
        epochs=45,
        steps_per_row=16,
    ),
    Training(
        name="mlp2-moons",
        split=moons,
        learner=classifier(2, 32, 32, 2, optimizer=Adam),
        rate=Rate(0.002),
        batch_size=64,
        epochs=50,
        steps_per_row=4,
    ),
    Training(
        name="mlp3-classification-cosine",
        split=mixture,
        learner=classifier(20, 64, 48, 32, 4, optimizer=momentum()),
        rate=Rate(0.1, cosine=50),
        batch_size=128,
        epochs=50,
        steps_per_row=4,
    ),
    Training(
        name="mlp4-friedman-warm-up",
        split=friedman,
        learner=regressor(10, 64, 64, 64, 64, 1, optimizer=Adam),
        rate=Rate(0.003, warm_up=10, cosine=60),
        batch_size=64,
        epochs=60,
        steps_per_row=4,
    ),
    Training(
        name="mlp2-friedman-diverging-late",
        split=friedman,
        learner=regressor(10, 64, 64, 1, optimizer=momentum()),
        rate=Rate(2.0, warm_up=80),
        batch_size=64,
        epochs=50,
        steps_per_row=4,
    ),
    Training(
        name="cnn-digits",
        split=digits,
        learner=convolutional(Adam),
        rate=Rate(0.002),
        batch_size=32,
        epochs=20,
        steps_per_row=4,
    ),
    Training(
        name="cnn-digits-step-decay",
        split=digits,
        learner=convolutional(momentum()),
        rate=Rate(0.3, drops=(12, 18)),
        batch_size=64,
        epochs=24,
        steps_per_row=2,
    ),
    Training(
        name="rnn-digits-warm-up",
        split=digits,
        learner=recurrent(Adam),
        rate=Rate(0.005, warm_up=5),
        batch_size=64,
        epochs=30,
        steps_per_row=2,
    ),
    Training(
        name="autoencoder-digits",
        split=lambda: splits.itself(splits.digits(1408)),
        learner=regressor(64, 32, 8, 32, 64, optimizer=Adam, kind="autoencoder"),
        rate=Rate(0.003),
        batch_size=64,
        epochs=60,
        steps_per_row=11,
    ),
)
