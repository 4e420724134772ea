"""These tests are about what is in the page cache: nobody else empties it meanwhile."""

import pytest


@pytest.fixture(autouse=True)
def _alone_with_the_caches(page_cache):  # pylint: disable=unused-argument
    yield
