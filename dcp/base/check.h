// SPDX-License-Identifier: Apache-2.0
// Assertions for bugs, never for data: a broken invariant prints the
// expression, the place and a message, and aborts. Errors in data from a file,
// a flag or a peer are reported as absl::Status instead. Any thread.
#ifndef DCP_BASE_CHECK_H_
#define DCP_BASE_CHECK_H_

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"

namespace dcp::internal {

[[noreturn]] void CheckFailed(const char* file, int line,
                              const char* expression,
                              absl::string_view message);

}  // namespace dcp::internal

// DCP_CHECK(a < b, "a=", a, " b=", b): the values after the condition are
// joined as absl::StrCat joins them; there is at least one.
#define DCP_CHECK(condition, ...)                         \
  do {                                                    \
    if (__builtin_expect(!(condition), 0))                \
      ::dcp::internal::CheckFailed(                       \
          __FILE__, __LINE__, #condition,                 \
          ::absl::StrCat("" __VA_OPT__(, ) __VA_ARGS__)); \
  } while (false)

// Like DCP_CHECK, but only in builds without NDEBUG, for hot paths.
#ifdef NDEBUG
#define DCP_DCHECK(condition, ...) \
  do {                             \
    (void)sizeof(!(condition));    \
  } while (false)
#else
#define DCP_DCHECK(condition, ...) \
  DCP_CHECK(condition __VA_OPT__(, ) __VA_ARGS__)
#endif

#endif  // DCP_BASE_CHECK_H_
