// SPDX-License-Identifier: Apache-2.0
// LoadPlugin: finds and loads a plugin's shared library. A library is loaded
// once and stays until the process ends. Any thread.
#ifndef DCP_IO_PLUGIN_LOAD_PLUGIN_H_
#define DCP_IO_PLUGIN_LOAD_PLUGIN_H_

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "dcp/io/plugin/store_plugin.h"

namespace dcp {

// If $TESSERA_PLUGINS is set, `library` is looked up in that folder only;
// otherwise in ../lib/tessera next to the program's folder, and in the
// program's folder; never in the working directory, because anyone may write
// there. Unimplemented, with the folders and instructions, if there is none;
// FailedPrecondition if it does not load or was made for another interface
// version.
absl::StatusOr<const tessera_plugin*> LoadPlugin(absl::string_view library);

}  // namespace dcp

#endif  // DCP_IO_PLUGIN_LOAD_PLUGIN_H_
