"""Kernels of other versions than the installed one: each in a folder that stands before it in the path."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import batchkit as bk

ROOT = Path(bk.__file__).parents[1]
BUILD = Path(__file__).parents[1] / "build"


def path_for(version: str | None) -> str:
    """The PYTHONPATH under which a kernel is of ``version`` of ipykernel; None: the installed one."""
    path = [str(ROOT)]
    if version is not None:
        overlay = BUILD / "kernels" / version
        if not (overlay / "ipykernel").is_dir():
            pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--target", str(overlay)]
            subprocess.run([*pip, f"ipykernel=={version}"], check=True)
        path.insert(0, str(overlay))
    return os.pathsep.join(path)
