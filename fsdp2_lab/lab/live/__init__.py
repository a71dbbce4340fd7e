"""What a launch shows while it runs, and what stays of it in a notebook."""
