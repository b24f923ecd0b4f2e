// SPDX-License-Identifier: Apache-2.0
// LoadPlugin: finds the shared library of a plugin and loads it. A library is
// loaded once and stays until the process ends. Any thread.
#ifndef DCP_IO_PLUGIN_LOAD_PLUGIN_H_
#define DCP_IO_PLUGIN_LOAD_PLUGIN_H_

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "dcp/io/plugin/store_plugin.h"

namespace dcp {

// `library` is looked for in the folder $TESSERA_PLUGINS and nowhere else if
// that is set, otherwise in ../lib/tessera next to the folder of the program,
// and in the folder of the program; never in the working directory, where
// anybody may have put it. Unimplemented, with the folders and what to do,
// where there is none; FailedPrecondition for one that does not load or was
// made for another version of the interface.
absl::StatusOr<const tessera_plugin*> LoadPlugin(absl::string_view library);

}  // namespace dcp

#endif  // DCP_IO_PLUGIN_LOAD_PLUGIN_H_
