"""The browser that draws pages for tests and pictures, without a window."""

from __future__ import annotations

import shutil
from pathlib import Path

BROWSER = next(filter(None, map(shutil.which, ("chromium-headless-shell", "chromium", "google-chrome"))), None)
# How long a page runs: eight seconds of its own clock, which does not wait for anything but answers.
FIRST_SECONDS = ("--virtual-time-budget=8000", "--timeout=100000")
COLOURS = {"dark": "--blink-settings=preferredColorScheme=0", "light": "--blink-settings=preferredColorScheme=1"}


def browser(profile: Path, *options: str, colours: str = "light") -> list[str]:
    """A command that lacks the address of a page. ``colours`` are those that the user prefers."""
    return [str(BROWSER), "--headless=new", "--no-sandbox", "--disable-gpu", f"--user-data-dir={profile}",
            COLOURS[colours], *options]  # fmt: skip
