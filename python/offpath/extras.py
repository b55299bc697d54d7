"""The error for a missing package that an extra of this one installs."""

from __future__ import annotations


def missing(package: str, extra: str) -> str:
    """One line: no index has Offpath, so pip gets an extra from where it got the package."""
    return (
        f"{package} is not installed: install the extra `{extra}` from where you installed offpath, such as "
        f"pip install '.[{extra}]' in the checkout"
    )
