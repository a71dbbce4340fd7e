"""The notebook side: stages become scripts, scripts become runs. Never imports the rank side."""
