"""The sections of the report.

To add a section, add a module that defines SECTION, and its template next to it. The report finds both by itself.
"""
