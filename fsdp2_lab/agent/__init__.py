"""Between launcher and script: torchrun's agent, and how each rank starts. Plain torchrun needs none of it."""
