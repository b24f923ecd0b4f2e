// SPDX-License-Identifier: Apache-2.0

#include "tools/terminal/exit_code.h"

#include "dcp/base/error_misfit.h"
#include "dcp/base/error_side.h"

namespace dcp::tools {
namespace {

// The code of an error on neither side: the operation itself refused, or the
// checkpoint that a reading verb was given is at fault.
ExitCode CodeWithoutSide(absl::StatusCode code) {
  switch (code) {
    case absl::StatusCode::kInvalidArgument:
      return kExitUsage;
    case absl::StatusCode::kResourceExhausted:
      return kExitRefused;
    default:
      return kExitSource;
  }
}

}  // namespace

ExitCode ExitCodeFor(const absl::Status& status) {
  if (IsMisfit(status)) return kExitSource;
  switch (status.code()) {
    case absl::StatusCode::kOk:
      return kExitDone;
    case absl::StatusCode::kCancelled:
      return kExitInterrupted;
    case absl::StatusCode::kAlreadyExists:
    case absl::StatusCode::kFailedPrecondition:
      return kExitRefused;
    default:
      break;
  }
  switch (StatusSide(status)) {
    case ErrorSide::kSource:
      return kExitSource;
    case ErrorSide::kDestination:
      return status.code() == absl::StatusCode::kResourceExhausted
                 ? kExitRefused
                 : kExitDestination;
    case ErrorSide::kNone:
      break;
  }
  return CodeWithoutSide(status.code());
}

absl::string_view SideName(const absl::Status& status) {
  switch (StatusSide(status)) {
    case ErrorSide::kSource:
      return "source";
    case ErrorSide::kDestination:
      return "destination";
    case ErrorSide::kNone:
      break;
  }
  return "";
}

}  // namespace dcp::tools
