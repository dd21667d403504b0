"""The report: records -> view (what is said) -> charts -> one HTML file that needs nothing else."""
