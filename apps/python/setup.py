"""The version is that of the library."""
import re
from pathlib import Path

from setuptools import setup

header = Path(__file__).resolve().parents[2] / "include" / "calm" / "version.hpp"
number = int(re.search(r"^#define CALM_VERSION (\d+)$", header.read_text(), re.MULTILINE)[1])
setup(version=f"{number // 10000}.{number // 100 % 100}.{number % 100}")
