"""Study 1, `mnist-cpu-vs-gpu`: one small CNN on MNIST."""

from scenarios.spec import Adam, Conv, Dense, Flatten, MaxPool, Scenario

SCENARIO = Scenario(
    name="mnist-cnn",
    title="Small CNN on MNIST",
    dataset="mnist",
    image=(28, 28, 1),
    layers=(
        Conv(32),
        MaxPool(),
        Conv(64),
        MaxPool(),
        Flatten(),
        Dense(128),
        Dense(10, activation="softmax"),
    ),
    loss="categorical",
    optimizer=Adam(learning_rate=1e-3, beta_1=0.9, beta_2=0.999, epsilon=1e-7),
    batch=64,
    epochs=5,
)
