# SPDX-License-Identifier: Apache-2.0
"""Describes the wheel; build_wheel puts the programs and libraries in place."""

import os
import pathlib
import re

from setuptools import Distribution
from setuptools import setup
from wheel.bdist_wheel import bdist_wheel

HERE = pathlib.Path(__file__).resolve().parent


class Binary(Distribution):
    """A distribution with libraries for one platform."""

    def has_ext_modules(self):
        return True


class PlatformWheel(bdist_wheel):
    """One wheel for every CPython: nothing in it is compiled against Python."""

    def get_tag(self):
        return "py3", "none", os.environ["TESSERA_PLATFORM"]


def description():
    """README.md without the links to files that are not in the wheel."""
    text = (HERE / "README.md").read_text()
    return re.sub(r"\[([^]]+)\]\((?!https?:|#)[^)]*\)", r"\1", text)


setup(
    name="tessera",
    version=os.environ["TESSERA_VERSION"],
    description="Fast, durable checkpoints for PyTorch, without pickles that "
    "run code",
    long_description=description(),
    long_description_content_type="text/markdown",
    license="Apache-2.0",
    license_files=["LICENSE", "licenses.txt"],
    classifiers=[
        "Development Status :: 4 - Beta",
        "Intended Audience :: Developers",
        "Intended Audience :: Science/Research",
        "License :: OSI Approved :: Apache Software License",
        "Operating System :: POSIX :: Linux",
        "Programming Language :: C++",
        "Programming Language :: Python :: 3",
        "Topic :: Scientific/Engineering :: Artificial Intelligence",
        "Typing :: Typed",
    ],
    python_requires=">=3.9",
    extras_require={
        "client": ["grpcio>=1.60", "numpy", "protobuf>=4.25"],
        "numpy": ["numpy"],
        "torch": ["torch>=2.4", "numpy"],
    },
    packages=["tessera", "tessera.client", "tessera.torch"],
    package_data={
        "tessera": ["bin/*", "lib/*", "py.typed", "tessera.h"],
        "tessera.client": ["api.binpb"],
    },
    entry_points={
        "console_scripts": [
            "dcp-convert = tessera._programs:dcp_convert",
            "dcp-server = tessera._programs:dcp_server",
            "fsdp-config = tessera._programs:fsdp_config",
        ]
    },
    cmdclass={"bdist_wheel": PlatformWheel},
    distclass=Binary,
    zip_safe=False,
)
