"""``python -m retrograd`` is the ``retrograd`` command."""

import sys

from retrograd.cli import main

sys.exit(main())
