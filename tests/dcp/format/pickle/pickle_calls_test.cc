// SPDX-License-Identifier: Apache-2.0

#include "dcp/format/pickle/pickle_calls.h"

#include <string>

#include "absl/strings/str_cat.h"
#include "dcp/format/pickle/pickle_globals.h"
#include "dcp/format/pickle/pickle_reader.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/dcp/format/pickle_cases.h"
#include "tests/testing/status_matchers.h"

namespace dcp {
namespace {

using ::dcp::testing::BadPickle;
using ::dcp::testing::ExpectRefused;
using ::dcp::testing::kDenied;
using ::dcp::testing::ReadMetadata;
using ::dcp::testing::ReadStateDict;
using ::dcp::testing::StatusIs;
using ::testing::HasSubstr;

class BadCalls : public ::testing::TestWithParam<BadPickle> {};

TEST_P(BadCalls, AreRefusedWithTheReason) { ExpectRefused(GetParam()); }

INSTANTIATE_TEST_SUITE_P(
    All, BadCalls,
    ::testing::ValuesIn<BadPickle>({
        {"System",
         "\x80\x02"
         "cos\nsystem\nX\001\0\0\0x\x85R.",
         "pickle at byte 2: global os.system is not allowed", kDenied},
        {"StackGlobal", "\x80\x04\x8c\005posix\x8c\006system\x93.",
         "global posix.system is not allowed", kDenied},
        {"Python2Eval", "c__builtin__\neval\n.",
         "global builtins.eval is not allowed", kDenied},
        {"AttributePath", "\x8c\x13torch.serialization\x8c\x09os.system\x93.",
         "global torch.serialization.os.system is not allowed", kDenied},
        {"NoName", "c\n\n.", "is not allowed", kDenied},
        {"OddName", "ca\x01\nb\n.", "global a\\x01.b is not allowed", kDenied},
        {"LongName", "c" + std::string(100000, 'a') + "\nb\n.",
         "a....b is not allowed", kDenied},
        {"Getattr", "cbuiltins\ngetattr\nctorch\nSize\n\x8c\002os\x86R.",
         "builtins.getattr is not allowed except", kDenied},
        {"GetattrOther",
         "cbuiltins\ngetattr\nctorch.distributed.checkpoint.metadata\n"
         "_MEM_FORMAT_ENCODING\n\x8c\007__doc__\x86R.",
         "builtins.getattr is not allowed except", kDenied},
        {"Set", "\x8f.", "global builtins.set is not allowed", kDenied},
        {"NewObjExKeywords", "ctorch\nSize\n)}(\x8c\001a\x8c\001bu\x92.",
         "keyword arguments"},
        {"CallOfAList", "])R.", "a list cannot be called"},
        {"CallOfACall", "ctorch\nSize\n)R)R.", "an object cannot be called"},
        {"ArgumentsNoTuple", "ctorch\nSize\n]R.",
         "the arguments are a list, not a tuple"},
    }),
    [](const auto& test) { return std::string(test.param.name); });

TEST(PickleCalls, StateDictsRefuseForeignClassesToo) {
  ValueArena arena;
  EXPECT_THAT(ReadStateDict("cmylib\nConfig\n)\x81.", arena),
              StatusIs(kDenied, HasSubstr("mylib.Config")));
  EXPECT_THAT(ReadStateDict("ctorch.nn.modules.linear\nLinear\n.", arena),
              StatusIs(kDenied));
  EXPECT_THAT(ReadStateDict("c_codecs\nencode\n(X\003\0\0\0", arena),
              StatusIs(absl::StatusCode::kDataLoss));
  EXPECT_THAT(
      ReadStateDict(
          PICKLE("c_codecs\nencode\n\x8c\003abc\x8c\011bz2_codec\x86R."),
          arena),
      StatusIs(kDenied, HasSubstr("_codecs.encode to bz2_codec")));
}

TEST(PickleCalls, UnknownClassesCanBeKeptForDisplay) {
  const auto read = [](absl::string_view pickle, ValueArena& arena) {
    return ReadPickle(
        AsBytes(pickle),
        {.allow_global = IsStateDictGlobal, .keep_unknown_globals = true},
        arena);
  };
  ValueArena arena;
  ASSERT_OK_AND_ASSIGN(
      const PickleResult config,
      read(PICKLE("cmylib\nConfig\n)\x81}X\001\0\0\0aK\001sb."), arena));
  EXPECT_TRUE(config.has_unknown_globals);
  EXPECT_TRUE(config.root.IsCallOf("mylib", "Config"));
  EXPECT_TRUE(config.root.is_new());
  // A call's result is called, and an object is made with keywords.
  EXPECT_OK(read("cmylib\nf\n)R)R.", arena));
  EXPECT_OK(read(PICKLE("cmylib\nf\n)}X\001\0\0\0aK\001s\x92."), arena));
  ASSERT_OK_AND_ASSIGN(const PickleResult known,
                       read("cargparse\nNamespace\n)\x81.", arena));
  EXPECT_FALSE(known.has_unknown_globals);
  for (const char* code : {"cos\nsystem\n.", "c__builtin__\neval\n.",
                           "cimportlib.util\nfind_spec\n.",
                           "ctorch\nhub.load\n.", "cmylib\nos.system\n."}) {
    EXPECT_THAT(read(code, arena), StatusIs(kDenied)) << code;
  }
  EXPECT_THAT(read("ccollections\nOrderedDict\n)R)R.", arena),
              StatusIs(absl::StatusCode::kDataLoss));
}

TEST(PickleCalls, RangesHaveThePython3Name) {
  ValueArena arena;
  ASSERT_OK_AND_ASSIGN(
      const PickleResult range,
      ReadStateDict("c__builtin__\nxrange\nK\003\x85R.", arena));
  EXPECT_TRUE(range.root.IsCallOf("builtins", "range"));
}

TEST(PickleCalls, RefusesCallsThatPythonWouldInflateOrRun) {
  ValueArena arena;
  constexpr auto kDamaged = absl::StatusCode::kDataLoss;
  EXPECT_THAT(
      ReadStateDict("cbuiltins\nbytearray\nJ\xff\xff\xff\x7f\x85R.", arena),
      StatusIs(kDamaged, HasSubstr("bytes made from a length")));
  const std::string digits(5000, '9');
  EXPECT_THAT(ReadStateDict(
                  absl::StrCat("cbuiltins\nint\nV", digits, "\n\x85R."), arena),
              StatusIs(kDamaged, HasSubstr("an int of 5000 digits")));
  EXPECT_OK(ReadStateDict("cbuiltins\nint\nV17\n\x85R.", arena));
  for (const char* dtype : {"O8", "|O", "<O8", "object", "i4,O", "2O", ""}) {
    EXPECT_THAT(ReadStateDict(
                    absl::StrCat("cnumpy\ndtype\nV", dtype, "\n\x85R."), arena),
                StatusIs(kDenied, HasSubstr("numpy objects")))
        << dtype;
  }
  EXPECT_THAT(ReadStateDict("cnumpy\ndtype\n](U\001aU\001O\x86"
                            "e\x85R.",
                            arena),
              StatusIs(kDenied, HasSubstr("numpy objects")));
  for (const char* dtype : {"f8", "|b1", "<i4", "U12", "M8[ns]", "V0"}) {
    EXPECT_OK(ReadStateDict(absl::StrCat("cnumpy\ndtype\nV", dtype, "\n\x85R."),
                            arena))
        << dtype;
  }
}

TEST(PickleCalls, ReadsPython2OrderedDicts) {
  ValueArena arena;
  ASSERT_OK_AND_ASSIGN(
      const PickleResult result,
      ReadStateDict("ccollections\nOrderedDict\n](](U\001aK\001ee\x85R.",
                    arena));
  EXPECT_EQ(ToString(result.root), "collections.OrderedDict({'a': 1})");
  EXPECT_THAT(
      ReadStateDict("ccollections\nOrderedDict\n](](Nee\x85R.", arena),
      StatusIs(absl::StatusCode::kDataLoss, HasSubstr("not a list of pairs")));
}

TEST(PickleCalls, EnumerationMembersByNameOrNumber) {
  ValueArena arena;
  ASSERT_OK_AND_ASSIGN(const PickleResult result,
                       ReadMetadata("cbuiltins\ngetattr\n"
                                    "ctorch.distributed.checkpoint.metadata\n"
                                    "_MEM_FORMAT_ENCODING\n"
                                    "\x8c\x15TORCH_PRESERVE_FORMAT\x86R.",
                                    arena));
  EXPECT_EQ(ToString(result.root),
            "torch.distributed.checkpoint.metadata._MEM_FORMAT_ENCODING(2)");
  ASSERT_OK_AND_ASSIGN(const PickleResult shard,
                       ReadMetadata("cbuiltins\ngetattr\n"
                                    "ctorch.distributed.checkpoint.planner\n"
                                    "WriteItemType\n"
                                    "\x8c\005SHARD\x86R.",
                                    arena));
  EXPECT_EQ(ToString(shard.root),
            "torch.distributed.checkpoint.planner.WriteItemType(2)");
  // A member of the other enumeration.
  EXPECT_THAT(ReadMetadata("cbuiltins\ngetattr\n"
                           "ctorch.distributed.checkpoint.planner\n"
                           "WriteItemType\n"
                           "\x8c\x15TORCH_PRESERVE_FORMAT\x86R.",
                           arena),
              StatusIs(kDenied, HasSubstr("builtins.getattr")));
}

TEST(PickleCalls, Python313PathsEqualOlderOnes) {
  ValueArena arena;
  ASSERT_OK_AND_ASSIGN(
      const PickleResult result,
      ReadMetadata("cpathlib._local\nPosixPath\n\x8c\002/a\x85R.", arena));
  EXPECT_EQ(ToString(result.root), "pathlib.PosixPath('/a')");
}

}  // namespace
}  // namespace dcp
