// SPDX-License-Identifier: Apache-2.0

#include "dcp/checkpoint/files/file_reader.h"

#include <cerrno>
#include <cstdint>
#include <stop_token>
#include <string>

#include "dcp/base/bytes.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/dcp/checkpoint/fixtures.h"
#include "tests/testing/sim_storage.h"
#include "tests/testing/status_matchers.h"

namespace dcp {
namespace {

using ::dcp::testing::SimStorage;
using ::dcp::testing::StatusIs;
using ::testing::HasSubstr;

// In this file, byte i is i, modulo a prime.
class FileReaderTest : public ::testing::Test {
 protected:
  static constexpr uint64_t kSize = 20000;

  void SetUp() override {
    for (uint64_t i = 0; i < kSize; ++i) {
      contents_ += static_cast<char>(i % 251);
    }
    ASSERT_OK(WriteFile(storage_, "file", contents_));
    ASSERT_OK_AND_ASSIGN(file_,
                         storage_.OpenForRead("file", DirectMode::kOff, false));
  }
  void TearDown() override { EXPECT_OK(storage_.Close(file_)); }

  void ExpectReads(FileReader& reader, uint64_t start, uint64_t offset,
                   uint64_t length) {
    ASSERT_OK_AND_ASSIGN(const ByteSpan bytes, reader.Read(offset, length));
    EXPECT_EQ(AsText(bytes),
              absl::string_view(contents_).substr(start + offset, length))
        << offset << " " << length;
  }

  SimStorage storage_{SimStorage::Options()};
  std::string contents_;
  File file_;
};

TEST_F(FileReaderTest, ReadsAnyPartInAnyOrder) {
  FileReader reader(storage_, file_, 1000, 15000);
  ExpectReads(reader, 1000, 0, 4);
  ExpectReads(reader, 1000, 4, 100);
  ExpectReads(reader, 1000, 14000, 1000);
  ExpectReads(reader, 1000, 0, 15000);
  ExpectReads(reader, 1000, 13999, 1);
  ExpectReads(reader, 1000, 5, 0);
  ExpectReads(reader, 1000, 15000, 0);
}

TEST_F(FileReaderTest, RefusesReadsBehindThePart) {
  FileReader reader(storage_, file_, 1000, 100);
  EXPECT_THAT(reader.Read(90, 11),
              StatusIs(absl::StatusCode::kDataLoss,
                       HasSubstr("reach past the end at 100")));
  EXPECT_THAT(reader.Read(101, 0), StatusIs(absl::StatusCode::kDataLoss));
  EXPECT_THAT(reader.Read(1, UINT64_MAX),
              StatusIs(absl::StatusCode::kDataLoss));
  ExpectReads(reader, 1000, 90, 10);
}

TEST_F(FileReaderTest, JoinsSmallReadsInARow) {
  FileReader reader(storage_, file_, 0, kSize);
  const uint64_t before = storage_.num_operations();
  for (uint64_t offset = 0; offset < 4000; offset += 10) {
    ExpectReads(reader, 0, offset, 10);
  }
  EXPECT_EQ(storage_.num_operations() - before, 1u);
}

TEST_F(FileReaderTest, AfterAStopNothingIsRead) {
  std::stop_source stop;
  FileReader reader(storage_, file_, 0, kSize, stop.get_token());
  ExpectReads(reader, 0, 0, 10);
  stop.request_stop();
  ExpectReads(reader, 0, 10, 10);  // it is there
  const uint64_t before = storage_.num_operations();
  EXPECT_THAT(reader.Read(10000, 10), StatusIs(absl::StatusCode::kCancelled));
  EXPECT_EQ(storage_.num_operations(), before);
}

TEST_F(FileReaderTest, DoesNotKeepAFailedRead) {
  FileReader reader(storage_, file_, 0, kSize);
  ExpectReads(reader, 0, 0, 10);
  storage_.FailOperation(0, EIO);
  EXPECT_THAT(reader.Read(10000, 10), StatusIs(absl::StatusCode::kUnavailable));
  ExpectReads(reader, 0, 10000, 10);
}

}  // namespace
}  // namespace dcp
