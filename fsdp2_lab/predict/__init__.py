"""What a job will need before it runs: from formulas, or from the script itself with nothing allocated."""
