/* SPDX-License-Identifier: Apache-2.0 */
/* A shared library that is not a plugin. */
int tessera_other_library(void);

int tessera_other_library(void) { return 0; }
