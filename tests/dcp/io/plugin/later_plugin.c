/* SPDX-License-Identifier: Apache-2.0 */
/* A plugin of a later version of the interface, of which only the first field
   is known. */
#include "dcp/io/plugin/store_plugin.h"

const tessera_plugin* tessera_get_plugin(void);

const tessera_plugin* tessera_get_plugin(void) {
  static const tessera_plugin plugin = {.abi_version =
                                            TESSERA_PLUGIN_ABI_VERSION + 1};
  return &plugin;
}
