"""Setup of all tests."""

import signal

import pytest


@pytest.fixture(autouse=True)
def interrupts():
    """Ctrl-C raises KeyboardInterrupt, also where the tests run in the background, which ignores it."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)
