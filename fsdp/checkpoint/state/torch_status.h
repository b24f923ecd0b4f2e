// SPDX-License-Identifier: Apache-2.0
// The bridge between the two ways to report an error: LibTorch and fsdp/ raise
// exceptions, dcp/ returns absl::Status. The only file in fsdp/checkpoint that
// knows exceptions; the others call LibTorch through CatchTorch when the call
// can fail. Any thread.
#ifndef FSDP_CHECKPOINT_STATE_TORCH_STATUS_H_
#define FSDP_CHECKPOINT_STATE_TORCH_STATUS_H_

#include <optional>
#include <type_traits>
#include <utility>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace fsdp {

namespace internal {

absl::Status CatchTorchError(absl::FunctionRef<void()> call);

template <typename T>
struct IsStatusOr : std::false_type {};
template <typename T>
struct IsStatusOr<absl::StatusOr<T>> : std::true_type {};

}  // namespace internal

// Calls `call()` and returns the result as a Status or StatusOr. An exception
// becomes an error with the exception's message, without a stack trace:
//   ValueError, TypeError, IndexError     InvalidArgument
//   NotImplementedError                   Unimplemented
//   out of memory                         ResourceExhausted
//   a collective or the store timed out   DeadlineExceeded
//   ... or failed otherwise               Unavailable
//   LibTorch's other checks               FailedPrecondition
//   anything else                         Internal
template <typename F>
auto CatchTorch(F&& call) {
  using Result = std::invoke_result_t<F&>;
  if constexpr (std::is_void_v<Result>) {
    return internal::CatchTorchError([&] { call(); });
  } else if constexpr (std::is_same_v<Result, absl::Status>) {
    absl::Status result;
    absl::Status error = internal::CatchTorchError([&] { result = call(); });
    return error.ok() ? result : error;
  } else {
    std::optional<Result> result;
    absl::Status error =
        internal::CatchTorchError([&] { result.emplace(call()); });
    if constexpr (internal::IsStatusOr<Result>::value) {
      return error.ok() ? *std::move(result) : Result(std::move(error));
    } else {
      return error.ok() ? absl::StatusOr<Result>(*std::move(result))
                        : absl::StatusOr<Result>(std::move(error));
    }
  }
}

// For a program that prefers exceptions: throws an error as the exception that
// CatchTorch turns into it (c10::ValueError, ...), if there is one, else as
// c10::Error.
void ThrowIfError(const absl::Status& status);

}  // namespace fsdp

#endif  // FSDP_CHECKPOINT_STATE_TORCH_STATUS_H_
