"""An example scenario with every kind of layer, small enough for tests."""

from dataclasses import replace

from scenarios.spec import Adam, Conv, Dense, Dropout, Flatten, MaxPool, Scenario

SCENARIO = Scenario(
    name="tiny-cnn",
    title="Tiny CNN on MNIST",
    dataset="mnist",
    image=(28, 28, 1),
    layers=(
        MaxPool(),
        Conv(4, padding="same"),
        MaxPool(3),
        Dropout(0.1),
        Flatten(),
        Dense(16),
        Dense(10, activation="softmax"),
    ),
    loss="categorical",
    optimizer=Adam(learning_rate=3e-3, beta_1=0.9, beta_2=0.999, epsilon=1e-7),
    batch=32,
    epochs=2,
)

VARIANTS = (replace(SCENARIO, variant="large-batch", title="Tiny CNN on MNIST, batch 256", batch=256),)
