# SPDX-License-Identifier: Apache-2.0
"""Importing this module calls tessera.torch.register(file_system=True).

It is for programs that take the name of a module to import, such as TorchTitan's
--experimental.custom_import.
"""

from tessera.torch._register import register

register(file_system=True)
