"""The package of the build that runs these tests, or of the environment it is installed in."""

import os
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))  # the modules these tests share
if (build := os.environ.get("OFFPATH_BUILD_DIR")) and (Path(build) / "python/offpath").exists():
    package = str(Path(build) / "python")
    sys.path.insert(0, package)
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [package, os.environ.get("PYTHONPATH")]))
