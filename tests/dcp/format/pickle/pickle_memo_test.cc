// SPDX-License-Identifier: Apache-2.0

#include "dcp/format/pickle/pickle_memo.h"

#include <string>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "tests/testing/status_matchers.h"

namespace dcp {
namespace {

using ::dcp::testing::StatusIs;
using ::testing::HasSubstr;

// A literal with the NUL bytes in it.
#define PICKLE(literal) absl::string_view(literal, sizeof(literal) - 1)

size_t NumHeld(absl::string_view pickle) {
  return PickleMemo(AsBytes(pickle)).held().size();
}

TEST(PickleMemo, KeepsOnlySlotsThatAreRead) {
  PickleMemo memo(AsBytes(PICKLE("\x94\x94\x94h\001.")));
  ASSERT_OK(memo.Put(Value::Int(10)));
  ASSERT_OK(memo.Put(Value::Int(11)));
  ASSERT_OK(memo.Put(Value::Int(12)));
  ASSERT_EQ(memo.held().size(), 1u);
  EXPECT_EQ(memo.held()[0].int_value(), 11);
  ASSERT_OK_AND_ASSIGN(const Value value, memo.Get(1));
  EXPECT_EQ(value.int_value(), 11);
}

// A kept value may be moved; it is read at the new place.
TEST(PickleMemo, KeptValuesCanBeMoved) {
  PickleMemo memo(AsBytes(PICKLE("\x94h\0.")));
  ASSERT_OK(memo.Put(Value::Int(1)));
  memo.held()[0] = Value::Int(2);
  ASSERT_OK_AND_ASSIGN(const Value value, memo.Get(0));
  EXPECT_EQ(value.int_value(), 2);
}

TEST(PickleMemo, FindsEveryReadingOpcode) {
  EXPECT_EQ(NumHeld(PICKLE("h\003h\003j\004\0\0\0g5\n.")), 3u);
  EXPECT_EQ(NumHeld("g70000\n."), 0u);  // cannot be set
  EXPECT_EQ(NumHeld("gno\n."), 0u);
}

// Operands are skipped whatever they look like, and so are all bytes after
// STOP.
TEST(PickleMemo, OperandsAreNotOpcodes) {
  for (const absl::string_view operand : {PICKLE("Kh"),
                                          PICKLE("Mhh"),
                                          PICKLE("Jhhhh"),
                                          PICKLE("Ghhhhhhhh"),
                                          PICKLE("\x80h"),
                                          PICKLE("\x95hhhhhhhh"),
                                          PICKLE("qh"),
                                          PICKLE("rhhhh"),
                                          PICKLE("U\002hh"),
                                          PICKLE("C\002hh"),
                                          PICKLE("\x8a\002hh"),
                                          PICKLE("\x8c\002hh"),
                                          PICKLE("X\002\0\0\0hh"),
                                          PICKLE("T\002\0\0\0hh"),
                                          PICKLE("B\002\0\0\0hh"),
                                          PICKLE("\x8b\002\0\0\0hh"),
                                          PICKLE("\x8d\002\0\0\0\0\0\0\0hh"),
                                          PICKLE("\x8e\002\0\0\0\0\0\0\0hh"),
                                          PICKLE("\x96\002\0\0\0\0\0\0\0hh"),
                                          PICKLE("Ihh\n"),
                                          PICKLE("Lhh\n"),
                                          PICKLE("Fhh\n"),
                                          PICKLE("Shh\n"),
                                          PICKLE("Vhh\n"),
                                          PICKLE("phh\n"),
                                          PICKLE("chh\nhh\n"),
                                          PICKLE(".hh")}) {
    EXPECT_EQ(NumHeld(operand), 0u) << operand;
    EXPECT_EQ(NumHeld(absl::StrCat(operand, PICKLE("h\0."))),
              operand[0] == '.' ? 0u : 1u)
        << operand;
  }
}

TEST(PickleMemo, StopsAtTheEndOfTruncatedPickles) {
  const absl::string_view pickle =
      PICKLE("X\002\0\0\0hhg5\ncab\ncd\nj\004\0\0\0\x8d\377\377\377\377\377");
  for (size_t size = 0; size <= pickle.size(); ++size) {
    // A copy, so that a sanitizer sees the end.
    const std::string cut(pickle.substr(0, size));
    EXPECT_LE(NumHeld(cut), 2u);
  }
}

TEST(PickleMemo, SlotsFarApartAreRefused) {
  PickleMemo memo(AsBytes(PICKLE("h\0h\001h\002.")));
  EXPECT_THAT(
      memo.Put(uint64_t{1} << 40, Value()),
      StatusIs(absl::StatusCode::kDataLoss,
               HasSubstr(
                   "memo index 1099511627776 is too far beyond the 0 in use")));
  EXPECT_THAT(memo.Get(0), StatusIs(absl::StatusCode::kDataLoss,
                                    HasSubstr("memo index 0 is not set")));
  ASSERT_OK(memo.Put(2, Value::Int(2)));
  EXPECT_THAT(memo.Get(1), StatusIs(absl::StatusCode::kDataLoss));
  // MEMOIZE counts the slots in use: one.
  ASSERT_OK(memo.Put(Value::Int(1)));
  ASSERT_OK_AND_ASSIGN(const Value value, memo.Get(1));
  EXPECT_EQ(value.int_value(), 1);
}

}  // namespace
}  // namespace dcp
