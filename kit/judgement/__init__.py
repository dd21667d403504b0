"""What is concluded from the records of a run: cautions, and what holds each cell back."""
