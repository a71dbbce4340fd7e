"""Who looks at a cell's output: a person in a frontend, or nobody yet."""


def is_watched(kernel) -> bool:
    """Whether the cell that runs came from a frontend with widgets, as far as can be told.

    nbclient and papermill send no cell's id; what they execute is read later, from the file.
    """
    return "cellId" in kernel.get_parent("shell").get("metadata", {})
