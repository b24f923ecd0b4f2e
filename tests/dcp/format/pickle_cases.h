// SPDX-License-Identifier: Apache-2.0
// Shared by the pickle reader's tests: calls as for each kind of file, and
// pickles that it must refuse, each with the reason. One thread.
#ifndef TESTS_DCP_FORMAT_PICKLE_CASES_H_
#define TESTS_DCP_FORMAT_PICKLE_CASES_H_

#include <cstddef>
#include <ostream>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "dcp/base/bytes.h"
#include "dcp/format/pickle/pickle_globals.h"
#include "dcp/format/pickle/pickle_reader.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/status_matchers.h"

// A literal with the NUL bytes in it.
#define PICKLE(literal) absl::string_view(literal, sizeof(literal) - 1)

namespace dcp::testing {

inline absl::StatusOr<PickleResult> ReadStateDict(absl::string_view pickle,
                                                  ValueArena& arena) {
  return ReadPickle(
      AsBytes(pickle),
      {.allow_global = IsStateDictGlobal, .allow_persistent_ids = true}, arena);
}

inline absl::StatusOr<PickleResult> ReadMetadata(absl::string_view pickle,
                                                 ValueArena& arena) {
  return ReadPickle(AsBytes(pickle), {.allow_global = IsMetadataGlobal}, arena);
}

inline std::string Repeated(absl::string_view text, size_t count) {
  std::string result;
  for (size_t i = 0; i < count; ++i) result.append(text.data(), text.size());
  return result;
}

struct BadPickle {
  absl::string_view name;
  std::string pickle;
  absl::string_view message;
  absl::StatusCode code = absl::StatusCode::kDataLoss;
};

inline std::ostream& operator<<(std::ostream& os, const BadPickle& bad) {
  return os << bad.name;
}

// Expects that the reader for .metadata refuses the pickle for that reason.
inline void ExpectRefused(const BadPickle& bad) {
  ValueArena arena;
  EXPECT_THAT(ReadMetadata(bad.pickle, arena),
              StatusIs(bad.code, ::testing::HasSubstr(bad.message)))
      << bad.name;
}

}  // namespace dcp::testing

#endif  // TESTS_DCP_FORMAT_PICKLE_CASES_H_
