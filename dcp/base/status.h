// SPDX-License-Identifier: Apache-2.0
// Macros and one function that carry absl::Status upwards. Context is
// prepended as an error rises, so that a message reads from the outside in:
// "load layers.3.w: read __0_0.distcp [4096, +8388608): Input/output error".
// Header-only; any thread.
#ifndef DCP_BASE_STATUS_H_
#define DCP_BASE_STATUS_H_

#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/cord.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"

namespace dcp {

// `status` with "<parts...>: " before the message and with the payloads kept;
// OK stays OK.
template <typename... Parts>
absl::Status Annotate(const absl::Status& status, const Parts&... parts) {
  if (status.ok()) return status;
  absl::Status annotated(status.code(),
                         absl::StrCat(parts..., ": ", status.message()));
  status.ForEachPayload([&](absl::string_view type, const absl::Cord& payload) {
    annotated.SetPayload(type, payload);
  });
  return annotated;
}

}  // namespace dcp

#define DCP_STATUS_CONCAT_INNER_(a, b) a##b
#define DCP_STATUS_CONCAT_(a, b) DCP_STATUS_CONCAT_INNER_(a, b)

// Returns from the enclosing function when `expr` is not OK.
#define DCP_RETURN_IF_ERROR(expr)                             \
  do {                                                        \
    if (absl::Status dcp_status_ = (expr); !dcp_status_.ok()) \
      return dcp_status_;                                     \
  } while (false)

// DCP_ASSIGN_OR_RETURN(auto x, Compute()): assigns, or returns the error.
#define DCP_ASSIGN_OR_RETURN(lhs, expr)                                    \
  DCP_ASSIGN_OR_RETURN_IMPL_(DCP_STATUS_CONCAT_(dcp_status_or_, __LINE__), \
                             lhs, expr)
#define DCP_ASSIGN_OR_RETURN_IMPL_(result, lhs, expr)  \
  auto result = (expr);                                \
  if (!result.ok()) return std::move(result).status(); \
  lhs = std::move(result).value()

#endif  // DCP_BASE_STATUS_H_
