// SPDX-License-Identifier: Apache-2.0

#include "fsdp/checkpoint/state/torch_status.h"

#include <exception>
#include <new>
#include <string>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "c10/util/Exception.h"

namespace fsdp {
namespace {

template <typename... Kinds>
bool IsAnyOf(const c10::Error& error) {
  return ((dynamic_cast<const Kinds*>(&error) != nullptr) || ...);
}

// Backends have no type for a timeout: Gloo says "Timed out waiting", NCCL's
// watchdog "timeout", the store "wait timeout after" or "timed out after".
bool SaysTimeout(absl::string_view message) {
  const std::string text = absl::AsciiStrToLower(message);
  return absl::StrContains(text, "timed out") ||
         absl::StrContains(text, "timeout");
}

absl::StatusCode FindStatusCode(const c10::Error& error,
                                absl::string_view message) {
  if (IsAnyOf<c10::ValueError, c10::TypeError, c10::IndexError>(error)) {
    return absl::StatusCode::kInvalidArgument;
  }
  if (IsAnyOf<c10::NotImplementedError>(error)) {
    return absl::StatusCode::kUnimplemented;
  }
  if (IsAnyOf<c10::OutOfMemoryError>(error)) {
    return absl::StatusCode::kResourceExhausted;
  }
  if (IsAnyOf<c10::DistError>(error)) {
    return SaysTimeout(message) ? absl::StatusCode::kDeadlineExceeded
                                : absl::StatusCode::kUnavailable;
  }
  // LibTorch's CPU allocator has no exception type.
  if (absl::StrContains(message, "not enough memory") ||
      absl::StrContains(message, "can't allocate memory")) {
    return absl::StatusCode::kResourceExhausted;
  }
  if (absl::StrContains(message, "INTERNAL ASSERT FAILED")) {
    return absl::StatusCode::kInternal;
  }
  return absl::StatusCode::kFailedPrecondition;
}

absl::Status MakeError(absl::StatusCode code, absl::string_view message) {
  message = absl::StripAsciiWhitespace(message);
  return absl::Status(code,
                      message.empty() ? "an error without a message" : message);
}

}  // namespace

absl::Status internal::CatchTorchError(absl::FunctionRef<void()> call) {
  try {
    call();
  } catch (const c10::Error& error) {
    const std::string message = error.what_without_backtrace();
    return MakeError(FindStatusCode(error, message), message);
  } catch (const std::bad_alloc&) {
    return absl::ResourceExhaustedError("out of memory");
  } catch (const std::exception& error) {
    return MakeError(absl::StatusCode::kInternal, error.what());
  }
  return absl::OkStatus();
}

void ThrowIfError(const absl::Status& status) {
  if (status.ok()) return;
  const std::string message(status.message());
  switch (status.code()) {
    case absl::StatusCode::kInvalidArgument:
      TORCH_CHECK_VALUE(false, message);
    case absl::StatusCode::kUnimplemented:
      TORCH_CHECK_NOT_IMPLEMENTED(false, message);
    case absl::StatusCode::kUnavailable:
    case absl::StatusCode::kDeadlineExceeded:
      TORCH_CHECK_WITH(DistBackendError, false, message);
    default:
      TORCH_CHECK(false, absl::StatusCodeToString(status.code()), ": ",
                  message);
  }
}

}  // namespace fsdp
