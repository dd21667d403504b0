"""Name the fields of a cell that a sweep varies."""

from collections.abc import Mapping
from typing import Literal, get_args

SweptField = Literal["hidden_layers", "batch", "workers"]  # in the order in which cells are sorted

SWEPT: tuple[SweptField, ...] = get_args(SweptField)
TITLES: Mapping[SweptField, str] = {
    "hidden_layers": "hidden layers",
    "batch": "batch size",
    "workers": "loader workers",
}
