"""What both sides agree on: settings, records, errors, places. Imports neither torch nor IPython."""
