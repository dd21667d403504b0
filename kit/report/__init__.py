"""Turn the analysis of a run into one self-contained HTML file."""
