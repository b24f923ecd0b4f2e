// SPDX-License-Identifier: Apache-2.0

#include "dcp/format/pickle/pickle_leaves.h"

#include <string>

#include "absl/strings/string_view.h"
#include "dcp/base/bytes.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/dcp/format/pickle_cases.h"
#include "tests/testing/status_matchers.h"

namespace dcp {
namespace {

using ::dcp::testing::BadPickle;
using ::dcp::testing::ExpectRefused;

class BadOperands : public ::testing::TestWithParam<BadPickle> {};

TEST_P(BadOperands, AreRefusedWithTheReason) { ExpectRefused(GetParam()); }

std::string Bytes(absl::string_view text) { return std::string(text); }

INSTANTIATE_TEST_SUITE_P(
    All, BadOperands,
    ::testing::ValuesIn<BadPickle>({
        {"HugeStr",
         Bytes(PICKLE("\x8d\0\0\0\0\0\0\0\x40"
                      "abc.")),
         "expected 4611686018427387904 bytes, found 4"},
        {"HugeBytes", Bytes(PICKLE("\x8e\xff\xff\xff\xff\xff\xff\xff\x7f.")),
         "bytes, found"},
        {"HugeLong",
         Bytes(PICKLE("\x8b\xff\xff\xff\x7f"
                      "abc.")),
         "bytes, found"},
        {"NegativeLong",
         Bytes(PICKLE("\x8b\xff\xff\xff\xff"
                      "abc.")),
         "bytes, found"},
        {"LongestInt",
         Bytes(PICKLE("\x8b\x01\x10\0\0")) + std::string(4097, 'x') + ".",
         "an int of 4097 bytes exceeds 4096"},
        {"BadUtf8", "\x8c\x02\xff\xfe.", "not UTF-8"},
        {"NoDecimal", "Ifoo\n.", "not an int"},
        {"NoFloat", "Ffoo\n.", "not a float"},
        {"NoString", "Sfoo\n.", "not a str"},
        {"NoLineEnd", "I12", "a line has no end"},
    }),
    [](const auto& test) { return std::string(test.param.name); });

// Checks the operand's meaning, and that all bytes are taken.
std::string ReadLeaves(absl::Status (*read)(uint8_t, PickleInput&, ValueArena&,
                                            Value&),
                       uint8_t opcode, absl::string_view operand) {
  PickleInput input(AsBytes(operand));
  ValueArena arena;
  Value value;
  EXPECT_OK(read(opcode, input, arena, value));
  EXPECT_EQ(input.num_left(), 0u);
  return ToString(value);
}

TEST(PickleLeaves, ScalarsKeepTheirSign) {
  EXPECT_EQ(ReadLeaves(ReadScalar, 'K', "\xff"), "255");
  EXPECT_EQ(ReadLeaves(ReadScalar, 'M', "\xff\xff"), "65535");
  EXPECT_EQ(ReadLeaves(ReadScalar, 'J', "\xfe\xff\xff\xff"), "-2");
  EXPECT_EQ(ReadLeaves(ReadScalar, 0x8a, PICKLE("\x00")), "0");
  EXPECT_EQ(ReadLeaves(ReadScalar, 0x8a, "\x01\x80"), "-128");
  EXPECT_EQ(ReadLeaves(ReadScalar, 'G', PICKLE("\xbf\xe0\0\0\0\0\0\0")),
            "-0.5");
}

TEST(PickleLeaves, TextsAndBytesDiffer) {
  EXPECT_EQ(ReadLeaves(ReadText, 0x8c, "\x02\xc3\xa9"), "'é'");
  EXPECT_EQ(ReadLeaves(ReadText, 'U', "\x01y"), "'y'");
  EXPECT_EQ(ReadLeaves(ReadText, 'C', "\x02\xc3\xa9"), "b'\\xc3\\xa9'");
}

TEST(PickleLeaves, LinesArePythonText) {
  EXPECT_EQ(ReadLeaves(ReadLine, 'I', "01\n"), "True");
  EXPECT_EQ(ReadLeaves(ReadLine, 'I', "1\n"), "1");
  EXPECT_EQ(ReadLeaves(ReadLine, 'L', "-7L\n"), "-7");
  EXPECT_EQ(ReadLeaves(ReadLine, 'F', "1e-3\n"), "0.001");
  EXPECT_EQ(ReadLeaves(ReadLine, 'S', "'a'\n"), "'a'");
}

}  // namespace
}  // namespace dcp
