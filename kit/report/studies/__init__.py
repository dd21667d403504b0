"""The chapters of the report about published studies."""
