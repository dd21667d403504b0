"""Make the page that compares several machines, and write it. Each module makes one part as plain data."""
