#include "dcp/format/pickle_reader.h"

#include <cstddef>
#include <ostream>
#include <string>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "tests/testing/status_matchers.h"

namespace dcp {
namespace {

using ::dcp::testing::StatusIs;
using ::testing::HasSubstr;
using Kind = Value::Kind;

// A literal with its NUL bytes.
#define PICKLE(literal) absl::string_view(literal, sizeof(literal) - 1)

absl::StatusOr<PickleResult> ReadStateDict(absl::string_view pickle,
                                           ValueArena& arena) {
  return ReadPickle(
      AsBytes(pickle),
      {.allow_global = IsStateDictGlobal, .allow_persistent_ids = true}, arena);
}

absl::StatusOr<PickleResult> ReadMetadata(absl::string_view pickle,
                                          ValueArena& arena) {
  return ReadPickle(AsBytes(pickle), {.allow_global = IsMetadataGlobal}, arena);
}

std::string Repeated(absl::string_view text, size_t count) {
  std::string result;
  for (size_t i = 0; i < count; ++i) result.append(text.data(), text.size());
  return result;
}

struct Form {
  absl::string_view pickle;
  absl::string_view text;
};

std::ostream& operator<<(std::ostream& os, const Form& form) {
  return os << form.text;
}

// What Python's pickle.dumps makes of each value, in the protocols 0, 2, 4 and
// 5 in turn.
class PythonPickle : public ::testing::TestWithParam<Form> {};

TEST_P(PythonPickle, ReadsAsItsValue) {
  ValueArena arena;
  ASSERT_OK_AND_ASSIGN(const PickleResult result,
                       ReadStateDict(GetParam().pickle, arena));
  EXPECT_EQ(ToString(result.root), GetParam().text);
  EXPECT_EQ(result.length, GetParam().pickle.size());
}

// Nothing but its whole length is a pickle, and no cut crashes.
TEST_P(PythonPickle, IsRefusedWhenCut) {
  for (size_t size = 0; size < GetParam().pickle.size(); ++size) {
    ValueArena arena;
    EXPECT_THAT(ReadStateDict(GetParam().pickle.substr(0, size), arena),
                StatusIs(absl::StatusCode::kDataLoss, HasSubstr("at byte")))
        << size;
  }
}

INSTANTIATE_TEST_SUITE_P(
    AllForms, PythonPickle,
    ::testing::ValuesIn<Form>(
        {{PICKLE("N."), "None"},
         {PICKLE("\200\002N."), "None"},
         {PICKLE("\200\004N."), "None"},
         {PICKLE("\200\005N."), "None"},
         {PICKLE("I01\012."), "True"},
         {PICKLE("\200\002\210."), "True"},
         {PICKLE("\200\004\210."), "True"},
         {PICKLE("\200\005\210."), "True"},
         {PICKLE("I300\012."), "300"},
         {PICKLE("\200\002M,\001."), "300"},
         {PICKLE("\200\004\225\004\000\000\000\000\000\000\000M,\001."), "300"},
         {PICKLE("\200\005\225\004\000\000\000\000\000\000\000M,\001."), "300"},
         {PICKLE("I-5\012."), "-5"},
         {PICKLE("\200\002J\373\377\377\377."), "-5"},
         {PICKLE(
              "\200\004\225\006\000\000\000\000\000\000\000J\373\377\377\377."),
          "-5"},
         {PICKLE(
              "\200\005\225\006\000\000\000\000\000\000\000J\373\377\377\377."),
          "-5"},
         {PICKLE("L1099511627776L\012."), "1099511627776"},
         {PICKLE("\200\002\212\006\000\000\000\000\000\001."), "1099511627776"},
         {PICKLE("\200\004\225\011\000\000\000\000\000\000\000\212\006\000\000"
                 "\000\000\000\001."),
          "1099511627776"},
         {PICKLE("\200\005\225\011\000\000\000\000\000\000\000\212\006\000\000"
                 "\000\000\000\001."),
          "1099511627776"},
         {PICKLE("L18446744073709551616L\012."), "18446744073709551616"},
         {PICKLE("\200\002\212\011\000\000\000\000\000\000\000\000\001."),
          "18446744073709551616"},
         {PICKLE("\200\004\225\014\000\000\000\000\000\000\000\212\011\000\000"
                 "\000\000\000\000\000\000\001."),
          "18446744073709551616"},
         {PICKLE("\200\005\225\014\000\000\000\000\000\000\000\212\011\000\000"
                 "\000\000\000\000\000\000\001."),
          "18446744073709551616"},
         {PICKLE("F0.1\012."), "0.1"},
         {PICKLE("\200\002G\077\271\231\231\231\231\231\232."), "0.1"},
         {PICKLE("\200\004\225\012\000\000\000\000\000\000\000G\077\271\231\231"
                 "\231\231\231\232."),
          "0.1"},
         {PICKLE("\200\005\225\012\000\000\000\000\000\000\000G\077\271\231\231"
                 "\231\231\231\232."),
          "0.1"},
         {PICKLE("V\351\012p0\012."), "'é'"},
         {PICKLE("\200\002X\002\000\000\000\303\251q\000."), "'é'"},
         {PICKLE("\200\004\225\006\000\000\000\000\000\000\000\214\002\303\251"
                 "\224."),
          "'é'"},
         {PICKLE("\200\005\225\006\000\000\000\000\000\000\000\214\002\303\251"
                 "\224."),
          "'é'"},
         {PICKLE("c_codecs\012encode\012p0\012("
                 "V\134u0000\377\012p1\012Vlatin1\012p2\012tp3\012Rp4\012."),
          "b'\\x00\\xff'"},
         {PICKLE("\200\002c_"
                 "codecs\012encode\012q\000X\003\000\000\000\000\303\277q\001X"
                 "\006\000\000\000latin1q\002\206q\003Rq\004."),
          "b'\\x00\\xff'"},
         {PICKLE(
              "\200\004\225\006\000\000\000\000\000\000\000C\002\000\377\224."),
          "b'\\x00\\xff'"},
         {PICKLE(
              "\200\005\225\006\000\000\000\000\000\000\000C\002\000\377\224."),
          "b'\\x00\\xff'"},
         {PICKLE("c__builtin__\012bytes\012p0\012(tRp1\012."), "b''"},
         {PICKLE("\200\002c__builtin__\012bytes\012q\000)Rq\001."), "b''"},
         {PICKLE("\200\004\225\004\000\000\000\000\000\000\000C\000\224."),
          "b''"},
         {PICKLE("\200\005\225\004\000\000\000\000\000\000\000C\000\224."),
          "b''"},
         {PICKLE("(lp0\012I1\012a(lp1\012I2\012aa."), "[1, [2]]"},
         {PICKLE("\200\002]q\000(K\001]q\001K\002ae."), "[1, [2]]"},
         {PICKLE("\200\004\225\014\000\000\000\000\000\000\000]\224(K\001]"
                 "\224K\002ae."),
          "[1, [2]]"},
         {PICKLE("\200\005\225\014\000\000\000\000\000\000\000]\224(K\001]"
                 "\224K\002ae."),
          "[1, [2]]"},
         {PICKLE("(dp0\012Va\012p1\012(I1\012I2\012I3\012I4\012tp2\012s."),
          "{'a': (1, 2, 3, 4)}"},
         {PICKLE("\200\002}q\000X\001\000\000\000aq\001("
                 "K\001K\002K\003K\004tq\002s."),
          "{'a': (1, 2, 3, 4)}"},
         {PICKLE("\200\004\225\023\000\000\000\000\000\000\000}"
                 "\224\214\001a\224(K\001K\002K\003K\004t\224s."),
          "{'a': (1, 2, 3, 4)}"},
         {PICKLE("\200\005\225\023\000\000\000\000\000\000\000}"
                 "\224\214\001a\224(K\001K\002K\003K\004t\224s."),
          "{'a': (1, 2, 3, 4)}"},
         {PICKLE("(t."), "()"},
         {PICKLE("\200\002)."), "()"},
         {PICKLE("\200\004)."), "()"},
         {PICKLE("\200\005)."), "()"},
         {PICKLE(
              "c__builtin__\012set\012p0\012((lp1\012I1\012atp2\012Rp3\012."),
          "builtins.set([1])"},
         {PICKLE("\200\002c__builtin__\012set\012q\000]"
                 "q\001K\001a\205q\002Rq\003."),
          "builtins.set([1])"},
         {PICKLE("\200\004\225\007\000\000\000\000\000\000\000\217\224("
                 "K\001\220."),
          "builtins.set([1])"},
         {PICKLE("\200\005\225\007\000\000\000\000\000\000\000\217\224("
                 "K\001\220."),
          "builtins.set([1])"},
         {PICKLE("c__builtin__\012frozenset\012p0\012(("
                 "lp1\012I2\012atp2\012Rp3\012."),
          "builtins.frozenset([2])"},
         {PICKLE("\200\002c__builtin__\012frozenset\012q\000]"
                 "q\001K\002a\205q\002Rq\003."),
          "builtins.frozenset([2])"},
         {PICKLE("\200\004\225\006\000\000\000\000\000\000\000(K\002\221\224."),
          "builtins.frozenset([2])"},
         {PICKLE("\200\005\225\006\000\000\000\000\000\000\000(K\002\221\224."),
          "builtins.frozenset([2])"},
         {PICKLE("c__builtin__\012bytearray\012p0\012(c_"
                 "codecs\012encode\012p1\012("
                 "Vx\012p2\012Vlatin1\012p3\012tp4\012Rp5\012tp6\012Rp7\012."),
          "builtins.bytearray(b'x')"},
         {PICKLE("\200\002c__builtin__\012bytearray\012q\000c_"
                 "codecs\012encode\012q\001X\001\000\000\000xq\002X\006\000\000"
                 "\000latin1q\003\206q\004Rq\005\205q\006Rq\007."),
          "builtins.bytearray(b'x')"},
         {PICKLE("\200\004\225\042\000\000\000\000\000\000\000\214\010builtins"
                 "\224\214\011bytearray\224\223\224C\001x\224\205\224R\224."),
          "builtins.bytearray(b'x')"},
         {PICKLE("\200\005\225\014\000\000\000\000\000\000\000\226\001\000\000"
                 "\000\000\000\000\000x\224."),
          "builtins.bytearray(b'x')"},
         {PICKLE("c__builtin__\012complex\012p0\012(F1.0\012F2."
                 "0\012tp1\012Rp2\012."),
          "builtins.complex(1.0, 2.0)"},
         {PICKLE("\200\002c__builtin__"
                 "\012complex\012q\000G\077\360\000\000\000\000\000\000G@"
                 "\000\000\000\000\000\000\000\206q\001Rq\002."),
          "builtins.complex(1.0, 2.0)"},
         {PICKLE("\200\004\225."
                 "\000\000\000\000\000\000\000\214\010builtins\224\214\007compl"
                 "ex\224\223\224G\077\360\000\000\000\000\000\000G@"
                 "\000\000\000\000\000\000\000\206\224R\224."),
          "builtins.complex(1.0, 2.0)"},
         {PICKLE("\200\005\225."
                 "\000\000\000\000\000\000\000\214\010builtins\224\214\007compl"
                 "ex\224\223\224G\077\360\000\000\000\000\000\000G@"
                 "\000\000\000\000\000\000\000\206\224R\224."),
          "builtins.complex(1.0, 2.0)"},
         {PICKLE("ccollections\012OrderedDict\012p0\012("
                 "tRp1\012Va\012p2\012I1\012s."),
          "collections.OrderedDict({'a': 1})"},
         {PICKLE("\200\002ccollections\012OrderedDict\012q\000)"
                 "Rq\001X\001\000\000\000aq\002K\001s."),
          "collections.OrderedDict({'a': 1})"},
         {PICKLE("\200\004\225)"
                 "\000\000\000\000\000\000\000\214\013collections\224\214\013Or"
                 "deredDict\224\223\224)R\224\214\001a\224K\001s."),
          "collections.OrderedDict({'a': 1})"},
         {PICKLE("\200\005\225)"
                 "\000\000\000\000\000\000\000\214\013collections\224\214\013Or"
                 "deredDict\224\223\224)R\224\214\001a\224K\001s."),
          "collections.OrderedDict({'a': 1})"},
         {PICKLE("ccollections\012defaultdict\012p0\012(c__builtin__"
                 "\012long\012p1\012tp2\012Rp3\012I1\012I2\012s."),
          "collections.defaultdict(builtins.int, {1: 2})"},
         {PICKLE("\200\002ccollections\012defaultdict\012q\000c__builtin__"
                 "\012long\012q\001\205q\002Rq\003K\001K\002s."),
          "collections.defaultdict(builtins.int, {1: 2})"},
         {PICKLE("\200\004\225;"
                 "\000\000\000\000\000\000\000\214\013collections\224\214\013de"
                 "faultdict\224\223\224\214\010builtins\224\214\003int\224\223"
                 "\224\205\224R\224K\001K\002s."),
          "collections.defaultdict(builtins.int, {1: 2})"},
         {PICKLE("\200\005\225;"
                 "\000\000\000\000\000\000\000\214\013collections\224\214\013de"
                 "faultdict\224\223\224\214\010builtins\224\214\003int\224\223"
                 "\224\205\224R\224K\001K\002s."),
          "collections.defaultdict(builtins.int, {1: 2})"},
         {PICKLE("ccollections\012Counter\012p0\012(("
                 "dp1\012Va\012p2\012I1\012stp3\012Rp4\012."),
          "collections.Counter({'a': 1})"},
         {PICKLE("\200\002ccollections\012Counter\012q\000}"
                 "q\001X\001\000\000\000aq\002K\001s\205q\003Rq\004."),
          "collections.Counter({'a': 1})"},
         {PICKLE("\200\004\225("
                 "\000\000\000\000\000\000\000\214\013collections\224\214\007Co"
                 "unter\224\223\224}\224\214\001a\224K\001s\205\224R\224."),
          "collections.Counter({'a': 1})"},
         {PICKLE("\200\005\225("
                 "\000\000\000\000\000\000\000\214\013collections\224\214\007Co"
                 "unter\224\223\224}\224\214\001a\224K\001s\205\224R\224."),
          "collections.Counter({'a': 1})"},
         {PICKLE("(lp0\012(lp1\012I1\012aag1\012a."), "[[1], [1]]"},
         {PICKLE("\200\002]q\000(]q\001K\001ah\001e."), "[[1], [1]]"},
         {PICKLE("\200\004\225\014\000\000\000\000\000\000\000]\224(]"
                 "\224K\001ah\001e."),
          "[[1], [1]]"},
         {PICKLE("\200\005\225\014\000\000\000\000\000\000\000]\224(]"
                 "\224K\001ah\001e."),
          "[[1], [1]]"},
         {PICKLE("ctorch\012Size\012p0\012((I2\012tp1\012tp2\012Rp3\012."),
          "torch.Size((2,))"},
         {PICKLE(
              "\200\002ctorch\012Size\012q\000K\002\205q\001\205q\002Rq\003."),
          "torch.Size((2,))"},
         {PICKLE("\200\004\225\032\000\000\000\000\000\000\000\214\005torch\224"
                 "\214\004Size\224\223\224K\002\205\224\205\224R\224."),
          "torch.Size((2,))"},
         {PICKLE("\200\005\225\032\000\000\000\000\000\000\000\214\005torch\224"
                 "\214\004Size\224\223\224K\002\205\224\205\224R\224."),
          "torch.Size((2,))"},
         {PICKLE("ctorch\012bfloat16\012p0\012."), "torch.bfloat16"},
         {PICKLE("\200\002ctorch\012bfloat16\012q\000."), "torch.bfloat16"},
         {PICKLE("\200\004\225\026\000\000\000\000\000\000\000\214\005torch\224"
                 "\214\010bfloat16\224\223\224."),
          "torch.bfloat16"},
         {PICKLE("\200\005\225\026\000\000\000\000\000\000\000\214\005torch\224"
                 "\214\010bfloat16\224\223\224."),
          "torch.bfloat16"},
         {PICKLE("ctorch\012device\012p0\012("
                 "Vcuda\012p1\012I1\012tp2\012Rp3\012."),
          "torch.device('cuda', 1)"},
         {PICKLE("\200\002ctorch\012device\012q\000X\004\000\000\000cudaq\001K"
                 "\001\206q\002Rq\003."),
          "torch.device('cuda', 1)"},
         {PICKLE("\200\004\225!"
                 "\000\000\000\000\000\000\000\214\005torch\224\214\006device"
                 "\224\223\224\214\004cuda\224K\001\206\224R\224."),
          "torch.device('cuda', 1)"},
         {PICKLE("\200\005\225!"
                 "\000\000\000\000\000\000\000\214\005torch\224\214\006device"
                 "\224\223\224\214\004cuda\224K\001\206\224R\224."),
          "torch.device('cuda', 1)"}}));

struct Corruption {
  absl::string_view name;
  std::string pickle;
  absl::string_view message;
  absl::StatusCode code = absl::StatusCode::kDataLoss;
};

std::ostream& operator<<(std::ostream& os, const Corruption& corruption) {
  return os << corruption.name;
}

class Refused : public ::testing::TestWithParam<Corruption> {};

TEST_P(Refused, WithItsReason) {
  ValueArena arena;
  EXPECT_THAT(ReadMetadata(GetParam().pickle, arena),
              StatusIs(GetParam().code, HasSubstr(GetParam().message)));
}

constexpr absl::StatusCode kDenied = absl::StatusCode::kPermissionDenied;

std::string Bytes(absl::string_view text) { return std::string(text); }

INSTANTIATE_TEST_SUITE_P(
    Structure, Refused,
    ::testing::ValuesIn<Corruption>({
        {"Empty", "", "pickle at byte 0: the end is missing"},
        {"NoStop", "N", "pickle at byte 1: the end is missing"},
        {"StopOnEmptyStack", "\x80\x02.", "at byte 2: too few values"},
        {"Protocol99", "\x80\x63N.", "protocol 99"},
        {"UnknownOpcode", "\xff.", "opcode 0xff is not allowed"},
        {"Underflow", "\x80\x02R.", "too few values"},
        {"NoMark", "K\001t.", "there is no mark"},
        {"PopThroughMark", "N(R.", "too few values"},
        {"StopBehindMark", "N(.", "too few values"},
        {"ManyMarks", Repeated("(", 100000) + ".", "too few values"},
        {"OddItems", "}(K\001u.", "a key without a value"},
        {"ListAsKey", "}]K\001s.", "a list is a key"},
        {"DictAsKey", "(}Nd.", "a dict is a key"},
        {"AppendToDict", "}Na.", "elements for a dict"},
        {"SetItemOfList", "]NNs.", "items for a list"},
        {"HugeStr",
         Bytes(PICKLE("\x8d\0\0\0\0\0\0\0\x40"
                      "abc.")),
         "4611686018427387904 bytes are wanted, 4 are left"},
        {"HugeBytes", Bytes(PICKLE("\x8e\xff\xff\xff\xff\xff\xff\xff\x7f.")),
         "bytes are wanted"},
        {"HugeFrame", Bytes(PICKLE("\x95\xff\xff\xff\xff\xff\xff\xff\xffN.")),
         "a frame of"},
        {"HugeLong",
         Bytes(PICKLE("\x8b\xff\xff\xff\x7f"
                      "abc.")),
         "bytes are wanted"},
        {"NegativeLong",
         Bytes(PICKLE("\x8b\xff\xff\xff\xff"
                      "abc.")),
         "bytes are wanted"},
        {"LongestInt",
         Bytes(PICKLE("\x8b\x01\x10\0\0")) + std::string(4097, 'x') + ".",
         "an int of 4097 bytes exceeds 4096"},
        {"BadUtf8", "\x8c\x02\xff\xfe.", "not UTF-8"},
        {"MemoIndex", "Nr\xfe\xff\xff\xff.",
         "memo slot 4294967294 while 0 are in use"},
        {"MemoUnset", "h\x07.", "memo slot 7 is not set"},
        {"MemoGap", Bytes(PICKLE("Nq\005h\004.")), "memo slot 4 is not set"},
        {"NoDecimal", "Ifoo\n.", "no int"},
        {"NoFloat", "Ffoo\n.", "no float"},
        {"NoString", "Sfoo\n.", "no str"},
        {"NoLineEnd", "I12", "a line does not end"},
    }),
    [](const auto& test) { return std::string(test.param.name); });

INSTANTIATE_TEST_SUITE_P(
    Hostile, Refused,
    ::testing::ValuesIn<Corruption>({
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
         "builtins.getattr is not allowed but", kDenied},
        {"GetattrOther",
         "cbuiltins\ngetattr\nctorch.distributed.checkpoint.metadata\n"
         "_MEM_FORMAT_ENCODING\n\x8c\007__doc__\x86R.",
         "builtins.getattr is not allowed but", kDenied},
        {"Set", "\x8f.", "global builtins.set is not allowed", kDenied},
        {"Inst", "(ios\nsystem\n.", "opcode 0x69"},
        {"Obj", "(ctorch\nSize\no.", "opcode 0x6f"},
        {"Extension", "\x82\x01.", "opcode 0x82"},
        {"PersistentText", "Px\n.", "opcode 0x50"},
        {"Persistent", "NQ.", "a persistent id is not allowed"},
        {"OutOfBand", "\x97.", "opcode 0x97"},
        {"NewObjExKeywords", "ctorch\nSize\n)}(\x8c\001a\x8c\001bu\x92.",
         "keyword arguments"},
        {"CallOfAList", "])R.", "a list cannot be called"},
        {"CallOfACall", "ctorch\nSize\n)R)R.", "an object cannot be called"},
        {"ArgumentsNoTuple", "ctorch\nSize\n]R.", "the arguments are a list"},
        {"BuildOfAClass",
         "ctorch.distributed.checkpoint.metadata\nMetadata\n}b.",
         "BUILD gives a state to a global"},
        {"BuildTwice", "ctorch\nSize\n)R}b}b.", "BUILD of an object twice"},
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

TEST(PickleReader, StateDictsRefuseForeignClassesToo) {
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

// Every size becomes a token with its first dimension, and the pickle is long
// enough for the arena to be cleared many times.
TEST(PickleReader, WhatIsReplacedIsFreedAndTheRestStays) {
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
  EXPECT_LT(arena.num_bytes(), whole.num_bytes() / 2);
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

TEST(PickleReaderDeathTest, ReplacingRequiresAnArenaOfItsOwn) {
  const auto replace = [](const Value&) { return std::nullopt; };
  ValueArena arena;
  arena.List();
  EXPECT_DEATH(
      (void)ReadPickle(AsBytes("N."),
                       {.allow_global = IsMetadataGlobal, .replace = replace},
                       arena),
      "values of others would be freed");
}

TEST(PickleReader, UnknownClassesCanBeKeptToBeLookedAt) {
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
  // What it returns is called, and made with keywords.
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

TEST(PickleReader, RangesHaveTheNameOfPython3) {
  ValueArena arena;
  ASSERT_OK_AND_ASSIGN(
      const PickleResult range,
      ReadStateDict("c__builtin__\nxrange\nK\003\x85R.", arena));
  EXPECT_TRUE(range.root.IsCallOf("builtins", "range"));
}

TEST(PickleReader, WhatPythonWouldInflateOrRunIsRefused) {
  ValueArena arena;
  constexpr auto kDamaged = absl::StatusCode::kDataLoss;
  EXPECT_THAT(
      ReadStateDict("cbuiltins\nbytearray\nJ\xff\xff\xff\x7f\x85R.", arena),
      StatusIs(kDamaged, HasSubstr("made of its length")));
  const std::string digits(5000, '9');
  EXPECT_THAT(ReadStateDict(
                  absl::StrCat("cbuiltins\nint\nV", digits, "\n\x85R."), arena),
              StatusIs(kDamaged, HasSubstr("an int of 5000 digits")));
  EXPECT_OK(ReadStateDict("cbuiltins\nint\nV17\n\x85R.", arena));
  EXPECT_THAT(ReadStateDict("cnumpy\ndtype\n\x8c\002O8\x85R.", arena),
              StatusIs(kDenied, HasSubstr("numpy objects")));
  EXPECT_OK(ReadStateDict("cnumpy\ndtype\n\x8c\002f8\x85R.", arena));
}

TEST(PickleReader, WhatFollowsStopIsLeftAlone) {
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

TEST(PickleReader, KeysThatStandTwiceAreKept) {
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

TEST(PickleReader, OrderedDictOfPairsAsPython2WroteIt) {
  ValueArena arena;
  ASSERT_OK_AND_ASSIGN(
      const PickleResult result,
      ReadStateDict("ccollections\nOrderedDict\n](](U\001aK\001ee\x85R.",
                    arena));
  EXPECT_EQ(ToString(result.root), "collections.OrderedDict({'a': 1})");
  EXPECT_THAT(ReadStateDict("ccollections\nOrderedDict\n](](Neee\x85R.", arena),
              StatusIs(absl::StatusCode::kDataLoss));
}

TEST(PickleReader, SetsAreCallsWithOneList) {
  ValueArena arena;
  ASSERT_OK_AND_ASSIGN(const PickleResult result,
                       ReadStateDict("\x8f(K\001K\002\x90.", arena));
  EXPECT_EQ(ToString(result.root), "builtins.set([1, 2])");
  EXPECT_THAT(ReadStateDict("](K\001\x90.", arena),
              StatusIs(absl::StatusCode::kDataLoss, HasSubstr("no set")));
}

TEST(PickleReader, EnumerationMembersByNameOrNumber) {
  ValueArena arena;
  ASSERT_OK_AND_ASSIGN(const PickleResult result,
                       ReadMetadata("cbuiltins\ngetattr\n"
                                    "ctorch.distributed.checkpoint.metadata\n"
                                    "_MEM_FORMAT_ENCODING\n"
                                    "\x8c\x15TORCH_PRESERVE_FORMAT\x86R.",
                                    arena));
  EXPECT_EQ(ToString(result.root),
            "torch.distributed.checkpoint.metadata._MEM_FORMAT_ENCODING(2)");
}

TEST(PickleReader, PersistentIdsAreKeptAsValues) {
  ValueArena arena;
  ASSERT_OK_AND_ASSIGN(const PickleResult result,
                       ReadStateDict("(K\001K\002tQ.", arena));
  ASSERT_TRUE(result.root.is(Kind::kPersistent));
  EXPECT_EQ(ToString(result.root.persistent_id()), "(1, 2)");
}

TEST(PickleReader, PathsOfPython313AreThoseOfOthers) {
  ValueArena arena;
  ASSERT_OK_AND_ASSIGN(
      const PickleResult result,
      ReadMetadata("cpathlib._local\nPosixPath\n\x8c\002/a\x85R.", arena));
  EXPECT_EQ(ToString(result.root), "pathlib.PosixPath('/a')");
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

TEST(AllowLists, HoldWhatTheirFilesNeedAndNoMore) {
  EXPECT_TRUE(IsStateDictGlobal("torch._utils", "_rebuild_tensor_v2"));
  EXPECT_TRUE(IsStateDictGlobal("torch", "float8_e4m3fn"));
  EXPECT_TRUE(IsStateDictGlobal("torch.cuda", "HalfStorage"));
  EXPECT_TRUE(IsStateDictGlobal("numpy._core.multiarray", "scalar"));
  EXPECT_FALSE(IsStateDictGlobal("torch", "load"));
  EXPECT_FALSE(IsStateDictGlobal("torch.cuda", "float32"));
  EXPECT_FALSE(IsStateDictGlobal("builtins", "getattr"));
  EXPECT_FALSE(IsStateDictGlobal("builtins", "eval"));
  EXPECT_TRUE(IsMetadataGlobal("torch", "bfloat16"));
  EXPECT_FALSE(IsMetadataGlobal("torch._utils", "_rebuild_tensor_v2"));
  EXPECT_FALSE(IsMetadataGlobal("torch.distributed.checkpoint._hf_utils",
                                "_HFStorageInfo"));
}

}  // namespace
}  // namespace dcp
