// Every checkpoint that a PyTorch wrote, read and compared with what PyTorch
// said is in it.

#include "tests/testing/golden.h"

#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "dcp/checkpoint/open/checkpoint.h"
#include "dcp/format/json.h"
#include "dcp/tensor/dtype.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/dcp/checkpoint/fixtures.h"
#include "tests/testing/status_matchers.h"
#include "tests/testing/temp_dir.h"

namespace dcp {
namespace {

using ::dcp::testing::CopyGolden;
using ::dcp::testing::GoldenCase;
using ::dcp::testing::GoldenCases;
using ::dcp::testing::LoadAll;
using ::dcp::testing::OpenCheckpoint;
using ::dcp::testing::TempDir;

std::string Canonical(const Value& value);

std::string CanonicalItems(absl::string_view kind,
                           absl::Span<const Value> items) {
  return absl::StrCat("[\"", kind, "\",[",
                      absl::StrJoin(items, ",",
                                    [](std::string* out, const Value& item) {
                                      *out += Canonical(item);
                                    }),
                      "]]");
}

std::string CanonicalCall(const Value& value) {
  if (value.IsCallOf("torch", "Size")) {
    return absl::StrCat("[\"size\",[",
                        absl::StrJoin(value.args().items()[0].items(), ",",
                                      [](std::string* out, const Value& dim) {
                                        absl::StrAppend(out, dim.int_value());
                                      }),
                        "]]");
  }
  return absl::StrCat("unexpected ", ToString(value));
}

std::string CanonicalDict(absl::Span<const Value> items) {
  std::vector<std::string> pairs;
  for (size_t i = 0; i < items.size(); i += 2) {
    pairs.push_back(absl::StrCat("[", Canonical(items[i]), ",",
                                 Canonical(items[i + 1]), "]"));
  }
  return absl::StrCat("[\"dict\",[", absl::StrJoin(pairs, ","), "]]");
}

// Like canon() in tests/interop/values.py, for the kinds of values in golden
// files.
std::string Canonical(const Value& value) {
  switch (value.kind()) {
    case Value::Kind::kNone:
      return "[\"none\"]";
    case Value::Kind::kBool:
      return value.bool_value() ? R"(["bool","true"])" : R"(["bool","false"])";
    case Value::Kind::kInt:
    case Value::Kind::kBigInt:
      return absl::StrCat("[\"int\",\"", ToString(value), "\"]");
    case Value::Kind::kFloat:
      return absl::StrFormat("[\"float\",\"%.13a\"]", value.float_value());
    case Value::Kind::kStr:
      return absl::StrCat("[\"str\",", QuoteJson(value.text()), "]");
    case Value::Kind::kBytes:
      return absl::StrCat("[\"bytes\",\"", absl::BytesToHexString(value.text()),
                          "\"]");
    case Value::Kind::kTuple:
      return CanonicalItems("tuple", value.items());
    case Value::Kind::kList:
      return CanonicalItems("list", value.items());
    case Value::Kind::kDict:
      return CanonicalDict(value.items());
    case Value::Kind::kGlobal:
      return absl::StrCat("[\"dtype\",\"", value.name(), "\"]");
    default:
      return CanonicalCall(value);
  }
}

// Expects these contents and nothing else.
void ExpectHolds(Checkpoint& checkpoint, const GoldenCase& golden) {
  std::map<std::string, std::string> loaded;
  ASSERT_OK_AND_ASSIGN(loaded, LoadAll(checkpoint));
  EXPECT_EQ(loaded.size(), golden.tensors.size());
  std::map<std::string, std::string> objects;
  for (const CheckpointEntry& entry : checkpoint.entries()) {
    if (const ObjectEntry* object = entry.object()) {
      objects[entry.fqn] = Canonical(object->value);
      continue;
    }
    SCOPED_TRACE(entry.fqn);
    const auto it = golden.tensors.find(entry.fqn);
    ASSERT_NE(it, golden.tensors.end());
    EXPECT_EQ(TorchName(entry.tensor()->dtype), it->second.dtype);
    EXPECT_EQ(entry.tensor()->shape, it->second.shape);
    EXPECT_EQ(absl::BytesToHexString(loaded[entry.fqn]),
              absl::BytesToHexString(it->second.bytes));
  }
  EXPECT_EQ(objects, golden.objects);
}

TEST(Golden, HasEveryVersionAndKind) {
  std::map<std::string, int> num_of_version;
  std::set<std::string> kinds;
  for (const GoldenCase& golden : GoldenCases()) {
    ++num_of_version[golden.name.substr(0, golden.name.find('/'))];
    kinds.insert(golden.kind);
  }
  EXPECT_THAT(num_of_version,
              ::testing::ElementsAre(
                  std::pair("torch-2.11", 7), std::pair("torch-2.15", 7),
                  std::pair("torch-2.2", 4), std::pair("torch-2.4", 4),
                  std::pair("torch-2.6", 4), std::pair("torch-2.9", 7)));
  EXPECT_THAT(kinds, ::testing::ElementsAre("dcp", "dcp-safetensors-items",
                                            "hf", "pt"));
}

TEST(Golden, EveryCheckpointHoldsWhatPyTorchSays) {
  for (const GoldenCase& golden : GoldenCases()) {
    SCOPED_TRACE(golden.name);
    const TempDir dir;
    ASSERT_OK_AND_ASSIGN(const std::unique_ptr<Checkpoint> checkpoint,
                         OpenCheckpoint(CopyGolden(dir, golden.path)));
    ASSERT_OK(checkpoint->LocateAll());
    ExpectHolds(*checkpoint, golden);
  }
}

}  // namespace
}  // namespace dcp
