// SPDX-License-Identifier: Apache-2.0
// Checkpoints that DeepSpeed, verl, accelerate and others wrote, read and
// compared with the contents according to their own libraries.

#include <algorithm>
#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "dcp/checkpoint/convert/convert.h"
#include "dcp/checkpoint/open/checkpoint.h"
#include "dcp/checkpoint/verify/verify.h"
#include "dcp/io/file_system.h"
#include "dcp/tensor/placement.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/dcp/checkpoint/fixtures.h"
#include "tests/testing/golden.h"
#include "tests/testing/status_matchers.h"
#include "tests/testing/temp_dir.h"

namespace dcp {
namespace {

using ::dcp::testing::Canonical;
using ::dcp::testing::CopyGolden;
using ::dcp::testing::GoldenCase;
using ::dcp::testing::LoadAll;
using ::dcp::testing::OpenCheckpoint;
using ::dcp::testing::ReadGoldenCase;
using ::dcp::testing::TempDir;

constexpr absl::string_view kSuffix = ".expected.json";

// "dialects/deepspeed/zero2_ws3" and so on.
std::vector<std::string> Names() {
  const std::string root = "tests/golden/";
  std::vector<std::string> names;
  for (const auto& entry :
       std::filesystem::recursive_directory_iterator(root + "dialects")) {
    const std::string path = entry.path().string();
    if (!absl::EndsWith(path, kSuffix)) continue;
    names.push_back(
        path.substr(root.size(), path.size() - root.size() - kSuffix.size()));
  }
  std::sort(names.begin(), names.end());
  return names;
}

// Whether the library does not report a tensor's contents: ranks have separate
// states, and so has FSDP1's optimizer with flat parameters, which have no
// recorded names.
bool IsUnknown(absl::string_view name, absl::string_view test) {
  if (absl::StartsWith(name, "extra.") || absl::StartsWith(name, "rng")) {
    return true;
  }
  return absl::EndsWith(test, "verl_fsdp1_ws2") &&
         absl::ConsumePrefix(&name, "optimizer.state.") &&
         absl::ascii_isdigit(name[0]);
}

// The names in a parameter list, sorted: DeepSpeed's round_robin_gradients uses
// another order than the library reports.
std::string Sorted(absl::string_view list) {
  std::vector<std::string> texts = absl::StrSplit(list, ',');
  for (std::string& text : texts) {
    absl::StrReplaceAll({{"[", ""}, {"]", ""}}, &text);
  }
  std::sort(texts.begin(), texts.end());
  return absl::StrJoin(texts, ",");
}

// A case's path, copied; a Trainer's is one folder below.
std::string CopyCase(const TempDir& dir, const std::string& name) {
  const std::string path = CopyGolden(dir, name);
  const std::string below = JoinPath(path, "checkpoint-1");
  return std::filesystem::exists(below) ? below : path;
}

// All cases' optimizers got model.parameters().
OpenOptions InOrder() {
  return {.dialect = {.optimizer_in_model_order = true}};
}

absl::StatusOr<std::unique_ptr<Checkpoint>> OpenCase(const std::string& path) {
  return Checkpoint::Open(testing::Disk(), path, InOrder());
}

// All tensors, by name.
std::map<std::string, std::string> TensorsAt(const std::string& path) {
  absl::StatusOr<std::unique_ptr<Checkpoint>> checkpoint = OpenCase(path);
  EXPECT_OK(checkpoint);
  if (!checkpoint.ok()) return {};
  EXPECT_OK((*checkpoint)->LocateAll());
  absl::StatusOr<std::map<std::string, std::string>> tensors =
      LoadAll(**checkpoint);
  EXPECT_OK(tensors);
  return tensors.ok() ? *std::move(tensors)
                      : std::map<std::string, std::string>();
}

class DialectTest : public ::testing::TestWithParam<std::string> {};

TEST_P(DialectTest, HoldsTheLibrarysContents) {
  const TempDir dir;
  ASSERT_OK_AND_ASSIGN(const std::unique_ptr<Checkpoint> checkpoint,
                       OpenCase(CopyCase(dir, GetParam())));
  ASSERT_OK_AND_ASSIGN(
      const std::unique_ptr<Checkpoint> expected,
      OpenCheckpoint(
          CopyGolden(dir, absl::StrCat(GetParam(), ".expected.safetensors"))));
  ASSERT_OK(checkpoint->LocateAll());
  std::map<std::string, std::string> found;
  std::map<std::string, std::string> wanted;
  ASSERT_OK_AND_ASSIGN(found, LoadAll(*checkpoint));
  ASSERT_OK_AND_ASSIGN(wanted, LoadAll(*expected));
  for (const CheckpointEntry& entry : expected->entries()) {
    SCOPED_TRACE(entry.fqn);
    const auto index = checkpoint->Find(entry.fqn);
    ASSERT_TRUE(index.has_value());
    const TensorEntry* const tensor = checkpoint->entries()[*index].tensor();
    ASSERT_NE(tensor, nullptr);
    EXPECT_EQ(tensor->dtype, entry.tensor()->dtype);
    EXPECT_EQ(tensor->shape, entry.tensor()->shape);
    EXPECT_EQ(absl::BytesToHexString(found[entry.fqn]),
              absl::BytesToHexString(wanted[entry.fqn]));
  }
  for (const CheckpointEntry& entry : checkpoint->entries()) {
    if (entry.tensor() == nullptr || IsUnknown(entry.fqn, GetParam())) continue;
    EXPECT_TRUE(wanted.contains(entry.fqn)) << entry.fqn;
  }
  const GoldenCase golden = ReadGoldenCase(GetParam());
  for (const auto& [name, value] : golden.objects) {
    SCOPED_TRACE(name);
    const auto index = checkpoint->Find(name);
    ASSERT_TRUE(index.has_value());
    const ObjectEntry* const object = checkpoint->entries()[*index].object();
    ASSERT_NE(object, nullptr);
    const bool in_any_order = absl::EndsWith(name, ".params") &&
                              absl::StrContains(GetParam(), "roundrobin");
    const std::string text = Canonical(object->value);
    EXPECT_EQ(in_any_order ? Sorted(text) : text,
              in_any_order ? Sorted(value) : value);
  }
}

TEST_P(DialectTest, IsVerified) {
  const TempDir dir;
  ASSERT_OK_AND_ASSIGN(
      const VerifyReport report,
      VerifyCheckpoint(testing::Disk(), CopyCase(dir, GetParam()), {}));
  EXPECT_TRUE(report.findings.empty()) << report.findings[0].problem;
  EXPECT_EQ(report.num_items_checked, report.num_items);
  // TorchSnapshot records no checksums for raw bytes.
  if (!absl::StrContains(GetParam(), "torchsnapshot")) {
    EXPECT_GT(report.num_crcs_checked, 0);
  }
}

TEST_P(DialectTest, IsWrittenAsDcpForAnyMesh) {
  const TempDir dir;
  const std::string path = CopyCase(dir, GetParam());
  const std::map<std::string, std::string> before = TensorsAt(path);
  for (const absl::string_view mesh : {"shard=1", "shard=3", "dp=2,other=2"}) {
    SCOPED_TRACE(mesh);
    ConvertOptions options;
    ASSERT_OK_AND_ASSIGN(options.mesh, ParseMesh(mesh));
    options.overwrite = true;
    options.open = InOrder();
    options.allow_losses = true;
    const std::string dst = JoinPath(dir.path(), "dcp");
    ASSERT_OK(
        ConvertCheckpoint(testing::Disk(), path, dst, std::move(options)));
    EXPECT_EQ(TensorsAt(dst), before);
  }
}

INSTANTIATE_TEST_SUITE_P(All, DialectTest, ::testing::ValuesIn(Names()),
                         [](const auto& info) {
                           std::string name = info.param;
                           for (char& c : name) {
                             if (!absl::ascii_isalnum(c)) c = '_';
                           }
                           return name;
                         });

}  // namespace
}  // namespace dcp
