// SPDX-License-Identifier: Apache-2.0
// Reads pickles from Python's own pickler, in all protocols.

#include <cstddef>
#include <ostream>

#include "dcp/format/pickle/pickle_reader.h"
#include "gtest/gtest.h"
#include "tests/dcp/format/pickle_cases.h"
#include "tests/testing/status_matchers.h"

namespace dcp {
namespace {

using ::dcp::testing::ReadStateDict;
using ::dcp::testing::StatusIs;
using ::testing::HasSubstr;

struct Form {
  absl::string_view pickle;
  absl::string_view text;
};

std::ostream& operator<<(std::ostream& os, const Form& form) {
  return os << form.text;
}

// The results of Python's pickle.dumps for each value, in the protocols 0, 2, 4
// and 5 in turn.
class PythonPickle : public ::testing::TestWithParam<Form> {};

TEST_P(PythonPickle, ReadsAsTheOriginalValue) {
  ValueArena arena;
  ASSERT_OK_AND_ASSIGN(const PickleResult result,
                       ReadStateDict(GetParam().pickle, arena));
  EXPECT_EQ(ToString(result.root), GetParam().text);
  EXPECT_EQ(result.length, GetParam().pickle.size());
}

// Only the whole length is a pickle, and no cut crashes the reader.
TEST_P(PythonPickle, IsRefusedWhenTruncated) {
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

}  // namespace
}  // namespace dcp
