"""Tests in here run a real engine, in an environment of their own: `make test-engines`, never `make test`."""

import os

collect_ignore_glob = [] if os.environ.get("KVPOLICY_ENGINE_TESTS") else ["*"]
