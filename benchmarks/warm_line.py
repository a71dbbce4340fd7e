"""One rank that prints a line: what a launch costs by itself."""

print("here")
