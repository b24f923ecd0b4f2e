// SPDX-License-Identifier: Apache-2.0
// Matchers and assertions for absl::Status and absl::StatusOr<T>, which this
// version of Abseil lacks: EXPECT_OK, ASSERT_OK, ASSERT_OK_AND_ASSIGN, IsOk,
// IsOkAndHolds and StatusIs. For tests only. For any thread on which GoogleTest
// allows assertions.

#ifndef TESTS_TESTING_STATUS_MATCHERS_H_
#define TESTS_TESTING_STATUS_MATCHERS_H_

#include <ostream>
#include <string>
#include <type_traits>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace dcp::testing {

// The codes that tests name most.
inline constexpr absl::StatusCode kInvalid = absl::StatusCode::kInvalidArgument;
inline constexpr absl::StatusCode kDataLoss = absl::StatusCode::kDataLoss;
inline constexpr absl::StatusCode kDenied = absl::StatusCode::kPermissionDenied;
inline constexpr absl::StatusCode kUnavailable = absl::StatusCode::kUnavailable;

namespace internal {

inline const absl::Status& ToStatus(const absl::Status& status) {
  return status;
}

template <typename T>
const absl::Status& ToStatus(const absl::StatusOr<T>& result) {
  return result.status();
}

// One type for Status and StatusOr<T>: the conversion operator of a
// polymorphic matcher picks the implementation.
class StatusIsMatcher {
 public:
  StatusIsMatcher(::testing::Matcher<absl::StatusCode> code,
                  ::testing::Matcher<std::string> message)
      : code_(std::move(code)), message_(std::move(message)) {}

  template <typename S>
  bool MatchAndExplain(const S& value,
                       ::testing::MatchResultListener* listener) const {
    const absl::Status& status = ToStatus(value);
    *listener << "whose status is " << status.ToString();
    return code_.Matches(status.code()) &&
           message_.Matches(std::string(status.message()));
  }

  void DescribeTo(std::ostream* os) const {
    *os << "has a code that ";
    code_.DescribeTo(os);
    *os << " and a message that ";
    message_.DescribeTo(os);
  }

  void DescribeNegationTo(std::ostream* os) const {
    *os << "not: ";
    DescribeTo(os);
  }

 private:
  ::testing::Matcher<absl::StatusCode> code_;
  ::testing::Matcher<std::string> message_;
};

class IsOkMatcher {
 public:
  template <typename S>
  bool MatchAndExplain(const S& value,
                       ::testing::MatchResultListener* listener) const {
    const absl::Status& status = ToStatus(value);
    if (!status.ok()) *listener << "whose status is " << status.ToString();
    return status.ok();
  }

  void DescribeTo(std::ostream* os) const { *os << "is OK"; }
  void DescribeNegationTo(std::ostream* os) const { *os << "is not OK"; }
};

template <typename Inner>
class IsOkAndHoldsMatcher {
 public:
  explicit IsOkAndHoldsMatcher(Inner inner) : inner_(std::move(inner)) {}

  template <typename T>
  bool MatchAndExplain(const absl::StatusOr<T>& value,
                       ::testing::MatchResultListener* listener) const {
    if (!value.ok()) {
      *listener << "whose status is " << value.status().ToString();
      return false;
    }
    return ::testing::ExplainMatchResult(inner_, *value, listener);
  }

  void DescribeTo(std::ostream* os) const {
    *os << "is OK and holds the expected value";
  }
  void DescribeNegationTo(std::ostream* os) const {
    *os << "is not OK or does not hold the expected value";
  }

 private:
  Inner inner_;
};

// GoogleMock's Matcher<StatusCode> is built from a code or from a matcher.
template <typename M>
::testing::Matcher<absl::StatusCode> CodeMatcher(M&& code) {
  return ::testing::SafeMatcherCast<absl::StatusCode>(std::forward<M>(code));
}

template <typename M>
::testing::Matcher<std::string> MessageMatcher(M&& message) {
  return ::testing::SafeMatcherCast<std::string>(std::forward<M>(message));
}

}  // namespace internal

// EXPECT_THAT(s, StatusIs(absl::StatusCode::kDataLoss, HasSubstr("offset"))).
template <typename Code, typename Message>
::testing::PolymorphicMatcher<internal::StatusIsMatcher> StatusIs(
    Code&& code, Message&& message) {
  return ::testing::MakePolymorphicMatcher(internal::StatusIsMatcher(
      internal::CodeMatcher(std::forward<Code>(code)),
      internal::MessageMatcher(std::forward<Message>(message))));
}

template <typename Code>
::testing::PolymorphicMatcher<internal::StatusIsMatcher> StatusIs(Code&& code) {
  return StatusIs(std::forward<Code>(code), ::testing::_);
}

inline ::testing::PolymorphicMatcher<internal::IsOkMatcher> IsOk() {
  return ::testing::MakePolymorphicMatcher(internal::IsOkMatcher());
}

// EXPECT_THAT(Parse("7"), IsOkAndHolds(7)).
template <typename Inner>
::testing::PolymorphicMatcher<
    internal::IsOkAndHoldsMatcher<std::decay_t<Inner>>>
IsOkAndHolds(Inner&& inner) {
  return ::testing::MakePolymorphicMatcher(
      internal::IsOkAndHoldsMatcher<std::decay_t<Inner>>(
          std::forward<Inner>(inner)));
}

}  // namespace dcp::testing

#define EXPECT_OK(expression) EXPECT_THAT((expression), ::dcp::testing::IsOk())
#define ASSERT_OK(expression) ASSERT_THAT((expression), ::dcp::testing::IsOk())

#define DCP_TESTING_CONCAT_INNER(a, b) a##b
#define DCP_TESTING_CONCAT(a, b) DCP_TESTING_CONCAT_INNER(a, b)
#define DCP_TESTING_ASSIGN(result, lhs, ...)   \
  auto result = (__VA_ARGS__);                 \
  ASSERT_THAT(result, ::dcp::testing::IsOk()); \
  lhs = *std::move(result)

// ASSERT_OK_AND_ASSIGN(auto x, MakeX()): ends the test with the status if MakeX
// fails. It must be a separate statement, not the body of an `if` without
// braces.
#define ASSERT_OK_AND_ASSIGN(lhs, ...)                                       \
  DCP_TESTING_ASSIGN(DCP_TESTING_CONCAT(dcp_testing_result_, __LINE__), lhs, \
                     __VA_ARGS__)

#endif  // TESTS_TESTING_STATUS_MATCHERS_H_
