// SPDX-License-Identifier: Apache-2.0

#include "dcp/checkpoint/files/wrapper_names.h"

#include <cstddef>
#include <vector>

#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"

namespace dcp {

std::string WithoutWrappers(absl::string_view name) {
  const std::vector<absl::string_view> components = absl::StrSplit(name, '.');
  std::vector<absl::string_view> kept;
  for (size_t i = 0; i < components.size(); ++i) {
    const absl::string_view component = components[i];
    const bool is_wrapper = component == "_fsdp_wrapped_module" ||
                            component == "_checkpoint_wrapped_module" ||
                            component == "_orig_mod" ||
                            (component == "module" && kept.empty());
    if (!is_wrapper || i + 1 == components.size()) kept.push_back(component);
  }
  return absl::StrJoin(kept, ".");
}

}  // namespace dcp
