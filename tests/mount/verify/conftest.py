"""These tests are about what is in the page cache: nobody else empties it meanwhile."""

import pytest

import kvmount


@pytest.fixture(autouse=True)
def page_cache(watchdog):  # pylint: disable=unused-argument
    with kvmount.page_cache():
        yield
