"""Study 3, `cifar-epochs`: CNN on CIFAR-10, loss from logits."""

from scenarios.spec import Adam, Conv, Dense, Flatten, MaxPool, Scenario

SCENARIO = Scenario(
    name="cifar-cnn",
    title="CNN on CIFAR-10",
    dataset="cifar-10",
    image=(32, 32, 3),
    layers=(
        Conv(32),
        MaxPool(),
        Conv(64),
        MaxPool(),
        Conv(64),
        Flatten(),
        Dense(64),
        Dense(10, activation="linear"),
    ),
    loss="categorical",
    optimizer=Adam(learning_rate=1e-3, beta_1=0.9, beta_2=0.999, epsilon=1e-7),
    batch=32,
    epochs=15,
)
