"""Which GPUs a launch takes, and how launches of one machine keep off each other's."""
