// SPDX-License-Identifier: Apache-2.0

#include "dcp/base/check.h"

#include <cstdio>
#include <cstdlib>

namespace dcp::internal {

void CheckFailed(const char* file, int line, const char* expression,
                 absl::string_view message) {
  std::fprintf(stderr, "%s:%d: check failed: %s %.*s\n", file, line, expression,
               static_cast<int>(message.size()), message.data());
  std::abort();
}

}  // namespace dcp::internal
