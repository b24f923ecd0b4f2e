// CheckStop: the look of a long loop at whether it is to end. What can block or
// takes long gets a std::stop_token and calls this between its steps.
// Header-only; any thread.
#ifndef DCP_BASE_STOP_H_
#define DCP_BASE_STOP_H_

#include <stop_token>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"

namespace dcp {

// Cancelled once `stop` was requested; `what` completes "stopped while ".
inline absl::Status CheckStop(const std::stop_token& stop,
                              absl::string_view what) {
  if (!stop.stop_requested()) return absl::OkStatus();
  return absl::CancelledError(absl::StrCat("stopped while ", what));
}

}  // namespace dcp

#endif  // DCP_BASE_STOP_H_
