"""`python -m bench`, which is what `make bench` runs."""

import sys

from bench.run import main

sys.exit(main())
