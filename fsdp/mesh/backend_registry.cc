// SPDX-License-Identifier: Apache-2.0
// The table of backends, by name.
//
// Tested by tests/fsdp/mesh/process_group_test.cc.
#include "fsdp/mesh/backend_registry.h"

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "c10/util/Exception.h"

namespace fsdp {
namespace {

std::map<std::string, BackendKind>& Registry() {
  // Never destroyed: groups may be made until the process ends.
  static auto* const registry = new std::map<std::string, BackendKind>();
  return *registry;
}

}  // namespace

bool RegisterBackend(BackendKind kind) {
  const std::string name = kind.name;
  const bool is_new = Registry().emplace(name, std::move(kind)).second;
  TORCH_CHECK(is_new, "the backend ", name, " is registered twice");
  return true;
}

const BackendKind* FindBackend(const std::string& name) {
  const auto found = Registry().find(name);
  return found == Registry().end() ? nullptr : &found->second;
}

std::vector<const BackendKind*> RegisteredBackends() {
  std::vector<const BackendKind*> kinds;
  for (const auto& [name, kind] : Registry()) kinds.push_back(&kind);
  return kinds;
}

}  // namespace fsdp
