# SPDX-License-Identifier: Apache-2.0
"""LibTorch's headers that most files include, by the time that they take."""

LIBTORCH_HEADERS = [
    "c10/util/Exception.h",
    "torch/csrc/distributed/c10d/ProcessGroup.hpp",
    "torch/nn.h",
    "torch/optim.h",
]
