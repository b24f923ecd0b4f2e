#include "fsdp/desync_check.h"

#include <atomic>
#include <cstdlib>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "fsdp/fsdp_param_group.h"
#include "fsdp/fsdp_state.h"

namespace fsdp {
namespace {

std::atomic<bool>& Enabled() {
  static std::atomic<bool> enabled = [] {
    const char* value = std::getenv("TESSERA_FSDP_DEBUG");
    return value != nullptr && std::string(value) == "1";
  }();
  return enabled;
}

}  // namespace

void set_debug_mode(bool enabled) { Enabled() = enabled; }

bool debug_mode() { return Enabled(); }

void CheckInStep(const FsdpParamGroup&, const char*, const std::string&) {
  if (!debug_mode()) return;
}

}  // namespace fsdp
