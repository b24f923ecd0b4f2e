// SPDX-License-Identifier: Apache-2.0

#include "dcp/checkpoint/read/tie_check.h"

#include <algorithm>
#include <cstdint>
#include <memory>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "dcp/base/limits.h"
#include "dcp/checkpoint/open/checkpoint.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/dcp/checkpoint/mapped_pair.h"
#include "tests/testing/sim_storage.h"
#include "tests/testing/status_matchers.h"

namespace dcp {
namespace {

using ::dcp::testing::MappedPair;
using ::dcp::testing::SimStorage;
using ::dcp::testing::StatusIs;
using ::testing::AllOf;
using ::testing::HasSubstr;

TEST(TieCheck, NamesBothTensorsAndTheFirstElement) {
  SimStorage fs;
  MappedPair pair;
  pair.TearHead(61);
  pair.TearHead(100);
  pair.Save(fs, "/torn");
  EXPECT_THAT(CheckTies(fs, *MappedPair::Open(fs, "/torn"), {}),
              StatusIs(absl::StatusCode::kFailedPrecondition,
                       AllOf(HasSubstr("head"), HasSubstr("emb"),
                             HasSubstr("2 elements differ, the first at "
                                       "[20, 1]"))));
}

TEST(TieCheck, AcceptsEqualTensorsAndNoMapping) {
  SimStorage fs;
  MappedPair().Save(fs, "/whole");
  EXPECT_OK(CheckTies(fs, *MappedPair::Open(fs, "/whole"),
                      {.memory_bytes = kMinMemoryBytes}));
  ASSERT_OK_AND_ASSIGN(const std::unique_ptr<Checkpoint> stored,
                       Checkpoint::Open(fs, "/whole", {}));
  EXPECT_OK(CheckTies(fs, *stored, {}));
}

// The last three rows in "x.w" are taken for padding.
constexpr absl::string_view kPadded = R"(tessera-mapping: 1
name: pair
params: {v: 27, pad: 3}
sides: {theirs: , ours: }
rules:
- theirs: x.{n:q|k}
  ours: y.{n:q|k}
- theirs: emb
  ours: table
  tolerates: {theirs: [head]}
- theirs:
  - x.w: (v + pad) c
  ours:
  - w: v c
  - {=0: pad c}
)";

TEST(TieCheck, ComparesPaddingWithZeroOnRequest) {
  SimStorage fs;
  MappedPair().Save(fs, "/src");
  const auto checkpoint = MappedPair::Open(fs, "/src", kPadded);
  EXPECT_OK(CheckTies(fs, *checkpoint, {}));
  EXPECT_THAT(
      CheckTies(fs, *checkpoint, {.checks_padding = true}),
      StatusIs(absl::StatusCode::kFailedPrecondition,
               HasSubstr("the padding of x.w, but 27 elements of it are not "
                         "zero, the first at [27, 0]")));
  for (const uint32_t part : {0u, 1u, 2u}) {
    EXPECT_THAT(
        CheckTies(fs, *checkpoint,
                  {.parts = {.first = part, .end = part + 1, .count = 3},
                   .checks_padding = true}),
        StatusIs(absl::StatusCode::kFailedPrecondition,
                 HasSubstr(absl::StrCat("9 elements of it are not zero, the "
                                        "first at [",
                                        27 + part, ", 0]"))));
  }
  // A tie is compared, too.
  MappedPair torn;
  torn.TearHead(0);
  torn.Save(fs, "/torn");
  EXPECT_THAT(CheckTies(fs, *MappedPair::Open(fs, "/torn", kPadded),
                        {.checks_padding = true}),
              StatusIs(absl::StatusCode::kFailedPrecondition,
                       HasSubstr("for equal to emb")));
}

// Wherever the difference is, exactly one part has it.
TEST(TieCheck, PartsTogetherCoverEverything) {
  for (const int64_t torn : {0, 1, 37, 60, 119}) {
    SimStorage fs;
    MappedPair pair;
    pair.TearHead(torn);
    pair.Save(fs, "/torn");
    const auto checkpoint = MappedPair::Open(fs, "/torn");
    for (const uint32_t count : {1u, 2u, 3u, 7u, 40u, 121u, 1000u}) {
      SCOPED_TRACE(absl::StrCat(torn, " ", count));
      int num_found = 0;
      for (uint32_t first = 0; first < count; first += 5) {
        const uint32_t end = std::min(first + 5, count);
        const absl::Status status =
            CheckTies(fs, *checkpoint,
                      {.parts = {.first = first, .end = end, .count = count}});
        if (!status.ok()) {
          ++num_found;
          EXPECT_THAT(status,
                      StatusIs(absl::StatusCode::kFailedPrecondition,
                               HasSubstr(absl::StrCat("[", torn / 3, ", ",
                                                      torn % 3, "]"))));
        }
      }
      EXPECT_EQ(num_found, 1);
    }
  }
}

}  // namespace
}  // namespace dcp
