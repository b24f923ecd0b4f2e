// SPDX-License-Identifier: Apache-2.0

#include "dcp/checkpoint/output/safetensors_output.h"

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "dcp/base/bytes.h"
#include "dcp/format/safetensors/safetensors.h"
#include "dcp/format/safetensors/safetensors_index.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/dcp/checkpoint/fixtures.h"
#include "tests/testing/status_matchers.h"
#include "tests/testing/temp_dir.h"

namespace dcp {
namespace {

using ::dcp::testing::Disk;
using ::dcp::testing::StatusIs;
using ::dcp::testing::TempDir;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

class SafetensorsOutputTest : public ::testing::Test {
 protected:
  void Add(const std::string& fqn, DType dtype, const Dims& shape) {
    auto tensor = std::make_unique<TensorEntry>();
    tensor->dtype = dtype;
    tensor->shape = shape;
    entries_.push_back({.fqn = fqn,
                        .path = {},
                        .tensor = tensor.get(),
                        .dtype = dtype,
                        .object = nullptr});
    tensors_.push_back(std::move(tensor));
  }

  // The header in one of the output's files.
  SafetensorsHeader ReadHeader(OutputFile& file) {
    const std::string literal = file.literal(0, {});
    absl::StatusOr<SafetensorsHeader> header = ReadSafetensorsHeader(
        file.layout.size(),
        [&](uint64_t offset, uint64_t length) -> absl::StatusOr<ByteSpan> {
          return AsBytes(literal).subspan(offset, length);
        });
    EXPECT_OK(header);
    return *std::move(header);
  }

  std::vector<std::string> FileNames(const Output& output) {
    std::vector<std::string> names;
    for (const OutputFile& file : output.files) {
      names.push_back(file.layout.name());
    }
    return names;
  }

  const TempDir dir_;
  SourceFiles files_{Disk(), dir_.path(), {}, DirectMode::kOff, false};
  std::vector<std::unique_ptr<TensorEntry>> tensors_;
  std::vector<OutputEntry> entries_;
};

TEST_F(SafetensorsOutputTest, WideTypesComeFirst) {
  Add("c", DType::kUInt8, {3});
  Add("b", DType::kFloat32, {2});
  Add("a", DType::kFloat32, {});
  Add("d", DType::kInt64, {1});
  ASSERT_OK_AND_ASSIGN(
      Output output,
      BuildSafetensorsFile(entries_, files_, "model.safetensors"));
  EXPECT_THAT(FileNames(output), ElementsAre("model.safetensors"));
  EXPECT_TRUE(output.needs_digests);
  const SafetensorsHeader header = ReadHeader(output.files[0]);
  std::vector<std::string> names;
  for (const SafetensorsTensor& tensor : header.tensors) {
    names.push_back(tensor.name);
    EXPECT_EQ((header.data_offset + tensor.begin) % ElementSize(tensor.dtype),
              0u);
  }
  EXPECT_THAT(names, ElementsAre("d", "a", "b", "c"));
  EXPECT_THAT(header.metadata, ElementsAre(std::pair("format", "pt")));
}

TEST_F(SafetensorsOutputTest, WritesAFileWithoutTensors) {
  ASSERT_OK_AND_ASSIGN(
      Output output,
      BuildSafetensorsFile(entries_, files_, "model.safetensors"));
  EXPECT_THAT(ReadHeader(output.files[0]).tensors, ::testing::IsEmpty());
}

TEST_F(SafetensorsOutputTest, RefusesValuesThatTheFormatCannotHold) {
  Add("a", DType::kComplex128, {1});
  EXPECT_THAT(BuildSafetensorsFile(entries_, files_, "m.safetensors"),
              StatusIs(absl::StatusCode::kFailedPrecondition,
                       HasSubstr("a is complex128")));
  entries_.clear();
  Add("__metadata__", DType::kFloat32, {1});
  EXPECT_THAT(BuildSafetensorsDirectory(entries_, files_, 0),
              StatusIs(absl::StatusCode::kFailedPrecondition,
                       HasSubstr("__metadata__")));
}

TEST_F(SafetensorsOutputTest, OneShardNeedsNoIndex) {
  Add("a", DType::kUInt8, {10});
  ASSERT_OK_AND_ASSIGN(const Output output,
                       BuildSafetensorsDirectory(entries_, files_, 10));
  EXPECT_THAT(FileNames(output), ElementsAre("model.safetensors"));
  EXPECT_TRUE(output.index_name.empty());
  EXPECT_EQ(output.digests_name, ".digests");
}

TEST_F(SafetensorsOutputTest, ShardsAreFilledInOrder) {
  Add("a", DType::kUInt8, {6});
  Add("b", DType::kUInt8, {4});
  Add("large", DType::kUInt8, {100});
  Add("c", DType::kUInt8, {1});
  ASSERT_OK_AND_ASSIGN(Output output,
                       BuildSafetensorsDirectory(entries_, files_, 10));
  EXPECT_THAT(FileNames(output),
              ElementsAre("model-00001-of-00003.safetensors",
                          "model-00002-of-00003.safetensors",
                          "model-00003-of-00003.safetensors"));
  EXPECT_EQ(output.index_name, "model.safetensors.index.json");
  const std::string index = output.index();
  EXPECT_THAT(index, HasSubstr("\"total_size\": 111"));
  ASSERT_OK_AND_ASSIGN(const auto weight_map,
                       ParseSafetensorsIndex(AsBytes(index)));
  EXPECT_EQ(weight_map.at("b"), "model-00001-of-00003.safetensors");
  EXPECT_EQ(weight_map.at("large"), "model-00002-of-00003.safetensors");
  EXPECT_EQ(weight_map.at("c"), "model-00003-of-00003.safetensors");
}

}  // namespace
}  // namespace dcp
