"""Every test answers in a project folder of its own."""

import pytest


@pytest.fixture(autouse=True)
def _own_folder(home):
    return home
