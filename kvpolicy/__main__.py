"""`python -m kvpolicy` is `kvp`."""

import sys

from kvpolicy.cli.main import main

sys.exit(main())
