"""`python -m fsdp2_lab` is `fsdp2-lab`."""

import sys

from .cli import main

sys.exit(main())
