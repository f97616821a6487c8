"""Python imports this module when it starts and its folder is in PYTHONPATH."""

import darwin_calls

darwin_calls.install()
