// SPDX-License-Identifier: Apache-2.0
// CheckStop: how a long loop finds out whether it should end. Functions that
// can block or take long have a std::stop_token and call this between their
// steps. Header-only; any thread.
#ifndef DCP_BASE_STOP_H_
#define DCP_BASE_STOP_H_

#include <stop_token>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"

namespace dcp {

// Cancelled if `stop` was requested; `what` completes "stopped while ".
inline absl::Status CheckStop(const std::stop_token& stop,
                              absl::string_view what) {
  if (!stop.stop_requested()) return absl::OkStatus();
  return absl::CancelledError(absl::StrCat("stopped while ", what));
}

}  // namespace dcp

#endif  // DCP_BASE_STOP_H_
