"""Define the summary of a run: what the list of runs says about it, so that the list needs no record."""

from typing import Annotated, ClassVar

from pydantic import Field

from kit.model.document import Document, Items, Part

MAX_TEXT_LENGTH = 400
MAX_SECTIONS = 100

Text = Annotated[str, Field(max_length=MAX_TEXT_LENGTH)]
Number = Annotated[int, Field(ge=0)]


class SectionLink(Part):
    """A section of a report. anchor: its id on the page."""

    anchor: Text
    title: Text


class RunSummary(Document):
    """What a report says about its run, in short. It is written with the report, into the same folder.

    records: number of files of records when the report was written. If there are more now, the summary is outdated.
    headline: how fast the machine is, or why this is not known. detail: which framework wins, or "". reliability: the
    level of the run, or "". warnings: their number. problems: how many launches failed, were skipped or did not run, in
    words, or "". sections: those of the report that are not folded.
    """

    noun: ClassVar[str] = "summary of a run"
    remedy: ClassVar[str] = "Write the report again with `kit report`."

    records: Number
    headline: Text
    detail: Text
    reliability: Text
    warnings: Number
    problems: Text
    sections: Annotated[Items[SectionLink], Field(max_length=MAX_SECTIONS)]
