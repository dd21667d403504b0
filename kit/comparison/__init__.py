"""The same cells of several runs side by side, and the gate."""
