"""Give each framework a color and a shape, which are the same in all charts and tables of all reports.

The first three colors differ for readers with any kind of color blindness, and in gray print. Shapes make the marks
differ without color. The style sheet defines the colors `--c1` to `--c8` for light and dark pages.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

ORDER = ("tensorflow", "onnxruntime", "torch")  # then other frameworks, by name

# Outlines in pixels around the middle of a mark. All have about the same area.
SHAPES = (
    "M-5,0a5,5 0 1,0 10,0a5,5 0 1,0 -10,0Z",  # circle
    "M0,-6.4L6.4,0L0,6.4L-6.4,0Z",  # diamond
    "M-4.5,-4.5H4.5V4.5H-4.5Z",  # square
    "M0,-6L5.8,4.4H-5.8Z",  # triangle
    "M0,6L5.8,-4.4H-5.8Z",  # triangle, point down
    "M-2,-6H2V-2H6V2H2V6H-2V2H-6V-2H-2Z",  # plus
    "M-5.6,-3.2L0,-6.4L5.6,-3.2V3.2L0,6.4L-5.6,3.2Z",  # hexagon
    "M-6,-5H6L2.2,0L6,5H-6L-2.2,0Z",  # hourglass
)


@dataclass(frozen=True)
class Mark:
    """How a framework is drawn. number: from 1; the class of the style sheet is `cNUMBER`. outline: path of the shape.

    title: display name of the framework.
    """

    number: int
    outline: str
    title: str

    @property
    def color(self) -> str:
        """Return the class of the style sheet that sets the color."""
        return f"c{self.number}"


def sort_key(framework: str) -> tuple[int, str]:
    """Return the key that sorts frameworks into the order in which they are shown everywhere."""
    return (ORDER.index(framework) if framework in ORDER else len(ORDER), framework)


def make_marks(titles: Mapping[str, str]) -> dict[str, Mark]:
    """Return the mark of each framework, in the fixed order. titles: framework to its display name.

    The frameworks in ORDER always have the same mark. If there are more frameworks than marks, marks are used again.
    """
    others = sorted(titles.keys() - set(ORDER))
    numbers = {framework: index % len(SHAPES) for index, framework in enumerate((*ORDER, *others))}
    return {
        framework: Mark(numbers[framework] + 1, SHAPES[numbers[framework]], titles[framework])
        for framework in sorted(titles, key=sort_key)
    }


def numbered_marks(names: Sequence[str]) -> dict[str, Mark]:
    """Return a mark for each name, in this order, for example of machines. If there are too many names, marks are used
    again."""
    numbers = (index % len(SHAPES) for index in range(len(names)))
    return {name: Mark(number + 1, SHAPES[number], name) for name, number in zip(names, numbers, strict=False)}
