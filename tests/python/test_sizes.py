"""Sizes as people read them."""

import pytest
from offpath.sizes import size_text


@pytest.mark.parametrize(
    ("size", "text"),
    [(0, "0 B"), (1023, "1023 B"), (1024, "1.0 KiB"), (1536, "1.5 KiB"), (2**31, "2.0 GiB"), (2**52, "4096.0 TiB")],
)
def test_sizes_read_in_powers_of_1024(size, text):
    assert size_text(size) == text


@pytest.mark.parametrize(("size", "text"), [(128, "128 B"), (4096, "4 KiB"), (2**20, "1 MiB"), (2**30, "1 GiB")])
def test_axes_of_figures_have_no_decimals_that_say_nothing(size, text):
    assert size_text(size, "g") == text
