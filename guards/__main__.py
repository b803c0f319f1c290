"""``python -m onegraph.guards``."""

import sys

from onegraph.guards.cli import main

sys.exit(main())
