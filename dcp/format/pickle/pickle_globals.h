// SPDX-License-Identifier: Apache-2.0
// The allow-lists of globals for reading pickles, and a list of globals that
// are never kept. Pure; any thread.
#ifndef DCP_FORMAT_PICKLE_PICKLE_GLOBALS_H_
#define DCP_FORMAT_PICKLE_PICKLE_GLOBALS_H_

#include "absl/strings/string_view.h"

namespace dcp {

// The globals in training state: collections, torch's tensors, types and
// devices, builtins that construct data, paths, numpy scalars and arrays, and
// classes in Python's standard library, Lightning and OmegaConf that only hold
// data. For data.pkl in items and state dicts.
bool IsStateDictGlobal(absl::string_view module, absl::string_view name);

// Globals with no use but to run code, such as os.system and eval. The list
// stops obvious attacks early; safety does not depend on it.
bool IsCodeGlobal(absl::string_view module, absl::string_view name);

// The globals in .metadata.
bool IsMetadataGlobal(absl::string_view module, absl::string_view name);

}  // namespace dcp

#endif  // DCP_FORMAT_PICKLE_PICKLE_GLOBALS_H_
