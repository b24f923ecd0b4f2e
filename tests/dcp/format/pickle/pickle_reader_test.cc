// SPDX-License-Identifier: Apache-2.0

#include "dcp/format/pickle/pickle_reader.h"

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "dcp/format/pickle/pickle_globals.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/dcp/format/pickle_cases.h"
#include "tests/testing/status_matchers.h"

namespace dcp {
namespace {

using ::dcp::testing::BadPickle;
using ::dcp::testing::ExpectRefused;
using ::dcp::testing::ReadMetadata;
using ::dcp::testing::ReadStateDict;
using ::dcp::testing::Repeated;
using ::dcp::testing::StatusIs;
using ::testing::HasSubstr;
using Kind = Value::Kind;

class BadPickles : public ::testing::TestWithParam<BadPickle> {};

TEST_P(BadPickles, AreRefusedWithTheReason) { ExpectRefused(GetParam()); }

std::string PickledBytes(absl::string_view text) { return std::string(text); }

INSTANTIATE_TEST_SUITE_P(
    All, BadPickles,
    ::testing::ValuesIn<BadPickle>({
        {"Empty", "", "pickle at byte 0: the opcode STOP is missing"},
        {"NoStop", "N", "pickle at byte 1: the opcode STOP is missing"},
        {"StopOnEmptyStack", "\x80\x02.", "at byte 2: too few values"},
        {"Protocol99", "\x80\x63N.", "protocol 99 exceeds 5"},
        {"UnknownOpcode", "\xff.", "opcode 0xff is not allowed"},
        {"Underflow", "\x80\x02R.", "too few values"},
        {"NoMark", "K\001t.", "the stack has no mark"},
        {"PopThroughMark", "N(R.", "too few values"},
        {"StopBehindMark", "N(.", "too few values"},
        {"ManyMarks", Repeated("(", 100000) + ".", "too few values"},
        {"OddItems", "}(K\001u.", "a key without a value"},
        {"ListAsKey", "}]K\001s.", "a list cannot be a key"},
        {"DictAsKey", "(}Nd.", "a dict cannot be a key"},
        {"AppendToDict", "}Na.", "expected a list to append to, found a dict"},
        {"SetItemOfList", "]NNs.",
         "expected a dict to set items in, found a list"},
        {"HugeFrame",
         PickledBytes(PICKLE("\x95\xff\xff\xff\xff\xff\xff\xff\xffN.")),
         "a frame of"},
        {"MemoIndex", "Nr\xfe\xff\xff\xff.",
         "memo index 4294967294 is too far beyond the 0 in use"},
        {"MemoUnset", "h\x07.", "memo index 7 is not set"},
        {"MemoGap", PickledBytes(PICKLE("Nq\005h\004.")),
         "memo index 4 is not set"},
        {"Inst", "(ios\nsystem\n.", "opcode 0x69"},
        {"Obj", "(ctorch\nSize\no.", "opcode 0x6f"},
        {"Extension", "\x82\x01.", "opcode 0x82"},
        {"PersistentText", "Px\n.", "opcode 0x50"},
        {"Persistent", "NQ.", "a persistent id is not allowed"},
        {"OutOfBand", "\x97.", "opcode 0x97"},
        {"BuildOfAClass",
         "ctorch.distributed.checkpoint.metadata\nMetadata\n}b.",
         "BUILD target is a global"},
        {"BuildTwice", "ctorch\nSize\n)R}b}b.", "already has a state"},
        {"ListInItself",
         "]q\x01h\x01"
         "a.",
         "a container contains itself"},
        {"DictInItself", "}q\x01Nh\x01s.", "a container contains itself"},
        {"DeepLists", Repeated("]", 100000) + Repeated("a", 99999) + ".",
         "nested deeper than 1000"},
        {"DeepTuples", "N" + Repeated("\x85", 200000) + ".",
         "nested deeper than 1000"},
        {"DeepDicts",
         Repeated("}K\x01", 50000) + "N" + Repeated("s", 50000) + ".",
         "nested deeper than 1000"},
        {"Laughs",
         "]q\x01" + Repeated("(h\001h\001h\001h\001h\001h\001lq\001", 30) + ".",
         "shared parts expand to more than 1048576 values"},
        {"SharedText",
         "X" + std::string("\0\0\x04\0", 4) + std::string(1 << 18, 'x') +
             "q\x01(" + Repeated("h\x01", 10000) + "l.",
         "shared parts expand"},
        {"MemoLine", "Npx\n.", "malformed memo index"},
    }),
    [](const auto& test) { return std::string(test.param.name); });

TEST(PickleReader, TheStateOfAnObjectMayReferToIt) {
  ValueArena arena;
  ASSERT_OK_AND_ASSIGN(
      const PickleResult result,
      ReadStateDict("ccollections\nOrderedDict\n)Rq\001}K\001h\001sb.", arena));
  const Value parent = result.root.state().items()[1];
  ASSERT_TRUE(parent.is(Value::Kind::kEnclosing));
  EXPECT_EQ(parent.enclosing().identity(), result.root.identity());
}

// A list of `count` dicts, each with a size that is memoized and put into two
// places, as in an index.
std::string ManySizes(int count) {
  std::string pickle = "](";
  for (int i = 0; i < count; ++i) {
    const char slot[] = {'r', static_cast<char>(i), static_cast<char>(i >> 8),
                         0, 0};
    pickle.append("}(K\001ctorch\nSize\n");
    pickle.append({'K', static_cast<char>(i % 200), '\x85', '\x85', 'R'});
    pickle.append(slot, sizeof(slot));
    pickle.append("K\002");
    pickle.append({'j', slot[1], slot[2], 0, 0});
    pickle.append("u");
  }
  return pickle + "e.";
}

// Every size becomes a token with the first dimension, and the pickle is long
// enough for the arena to be cleared many times.
TEST(PickleReader, FreesReplacedValuesAndKeepsOthers) {
  constexpr int kCount = 20000;
  const std::string pickle = ManySizes(kCount);
  int num_seen = 0;
  const auto replace = [&](const Value& object) -> std::optional<Value> {
    if (!object.IsCallOf("torch", "Size")) return std::nullopt;
    ++num_seen;
    const Value dim = object.args().items()[0].items()[0];
    return Value::Token(9, static_cast<uint64_t>(dim.int_value()));
  };
  ValueArena arena;
  ASSERT_OK_AND_ASSIGN(
      const PickleResult result,
      ReadPickle(AsBytes(pickle),
                 {.allow_global = IsMetadataGlobal, .replace = replace},
                 arena));
  EXPECT_EQ(num_seen, kCount);
  ASSERT_EQ(result.root.items().size(), size_t{kCount});
  for (int i = 0; i < kCount; ++i) {
    const absl::Span<const Value> items =
        result.root.items()[static_cast<size_t>(i)].items();
    ASSERT_EQ(items.size(), 4u);
    ASSERT_EQ(items[1].token(), static_cast<uint64_t>(i % 200));
    ASSERT_TRUE(DeepEqual(items[1], items[3]));
  }
  ValueArena whole;
  ASSERT_OK(ReadMetadata(pickle, whole));
  EXPECT_LE(arena.num_bytes(), whole.num_bytes() / 2);
}

TEST(PickleReader, AnObjectIsOfferedAgainWithItsState) {
  std::vector<bool> had_state;
  const auto replace = [&](const Value& object) -> std::optional<Value> {
    had_state.push_back(!object.state().is_none());
    return std::nullopt;
  };
  ValueArena arena;
  ASSERT_OK_AND_ASSIGN(
      const PickleResult result,
      ReadPickle(AsBytes(PICKLE("ctorch\nSize\n)\x81}K\001K\002sb.")),
                 {.allow_global = IsMetadataGlobal, .replace = replace},
                 arena));
  EXPECT_THAT(had_state, ::testing::ElementsAre(false, true));
  EXPECT_TRUE(result.root.IsCallOf("torch", "Size"));
}

TEST(PickleReaderDeathTest, ReplacingRequiresAnEmptyArena) {
  const auto replace = [](const Value&) { return std::nullopt; };
  ValueArena arena;
  arena.List();
  EXPECT_DEATH(
      (void)ReadPickle(AsBytes("N."),
                       {.allow_global = IsMetadataGlobal, .replace = replace},
                       arena),
      "values of others would be freed");
}

TEST(PickleReader, IgnoresBytesAfterStop) {
  ValueArena arena;
  ASSERT_OK_AND_ASSIGN(const PickleResult result,
                       ReadStateDict("\x80\x02K\x07.rest", arena));
  EXPECT_EQ(result.length, 5u);
  EXPECT_EQ(result.root.int_value(), 7);
}

TEST(PickleReader, SharedContainersStayShared) {
  ValueArena arena;
  ASSERT_OK_AND_ASSIGN(const PickleResult result,
                       ReadStateDict("(]q\001h\001t.", arena));
  EXPECT_EQ(result.root.items()[0].identity(),
            result.root.items()[1].identity());
  EXPECT_EQ(result.expanded_values, 3u);
}

TEST(PickleReader, KeepsRepeatedKeys) {
  ValueArena arena;
  ASSERT_OK_AND_ASSIGN(const PickleResult result,
                       ReadStateDict("}(NK\001NK\002u.", arena));
  EXPECT_EQ(ToString(result.root), "{None: 1, None: 2}");
}

TEST(PickleReader, MemoMayBeginAtOne) {
  ValueArena arena;
  ASSERT_OK_AND_ASSIGN(const PickleResult result,
                       ReadStateDict("K\007q\001K\010q\002h\001\x87.", arena));
  EXPECT_EQ(result.root.items().size(), 3u);
}

TEST(PickleReader, BuildAfterReduceKeepsTheAttributesOfAnOrderedDict) {
  ValueArena arena;
  ASSERT_OK_AND_ASSIGN(
      const PickleResult result,
      ReadStateDict("ccollections\nOrderedDict\n)R}\x8c\011_metadataNsb.",
                    arena));
  EXPECT_EQ(ToString(result.root.state()), "{'_metadata': None}");
  EXPECT_TRUE(IsMapping(result.root));
}

TEST(PickleReader, SetsAreCallsWithOneList) {
  ValueArena arena;
  ASSERT_OK_AND_ASSIGN(const PickleResult result,
                       ReadStateDict("\x8f(K\001K\002\x90.", arena));
  EXPECT_EQ(ToString(result.root), "builtins.set([1, 2])");
  EXPECT_THAT(ReadStateDict("](K\001\x90.", arena),
              StatusIs(absl::StatusCode::kDataLoss, HasSubstr("not a set")));
}

TEST(PickleReader, PersistentIdsAreKeptAsValues) {
  ValueArena arena;
  ASSERT_OK_AND_ASSIGN(const PickleResult result,
                       ReadStateDict("(K\001K\002tQ.", arena));
  ASSERT_TRUE(result.root.is(Kind::kPersistent));
  EXPECT_EQ(ToString(result.root.persistent_id()), "(1, 2)");
}

TEST(PickleReader, TheNextPickleReadsIntoTheSameArena) {
  ValueArena arena;
  const absl::string_view two = "]N\x85.}.";
  ASSERT_OK_AND_ASSIGN(const PickleResult first, ReadStateDict(two, arena));
  ASSERT_OK_AND_ASSIGN(const PickleResult second,
                       ReadStateDict(two.substr(first.length), arena));
  EXPECT_EQ(ToString(first.root), "(None,)");
  EXPECT_EQ(ToString(second.root), "{}");
}

}  // namespace
}  // namespace dcp
