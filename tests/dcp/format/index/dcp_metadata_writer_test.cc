// SPDX-License-Identifier: Apache-2.0

#include "dcp/format/index/dcp_metadata_writer.h"

#include <string>
#include <variant>

#include "absl/strings/str_cat.h"
#include "dcp/base/bytes.h"
#include "dcp/format/index/dcp_metadata.h"
#include "gtest/gtest.h"
#include "tests/testing/status_matchers.h"

namespace dcp {
namespace {

MetadataEntry Tensor(std::string fqn, DType dtype, Dims size,
                     std::vector<ChunkStorageMetadata> chunks) {
  return {.fqn = fqn,
          .path = {PathElement(fqn)},
          .value = TensorStorageMetadata{.dtype = dtype,
                                         .size = std::move(size),
                                         .chunks = std::move(chunks)}};
}

void ExpectReadBack(const Metadata& metadata) {
  ASSERT_OK_AND_ASSIGN(const Metadata again,
                       ParseDcpMetadata(AsBytes(WriteDcpMetadata(metadata))));
  EXPECT_EQ(again.has_planner_data, metadata.has_planner_data);
  EXPECT_EQ(again.save_id, metadata.save_id);
  EXPECT_EQ(again.version, "1.0.0");
  ASSERT_EQ(again.entries.size(), metadata.entries.size());
  for (size_t i = 0; i < again.entries.size(); ++i) {
    const MetadataEntry& a = metadata.entries[i];
    const MetadataEntry& b = again.entries[i];
    EXPECT_EQ(a.fqn, b.fqn);
    EXPECT_EQ(a.path, b.path) << a.fqn;
    ASSERT_EQ(a.value.index(), b.value.index());
    const auto* tensor = std::get_if<TensorStorageMetadata>(&a.value);
    if (tensor == nullptr) continue;
    const auto& other = std::get<TensorStorageMetadata>(b.value);
    EXPECT_EQ(tensor->dtype, other.dtype);
    EXPECT_EQ(tensor->size, other.size);
    ASSERT_EQ(tensor->chunks.size(), other.chunks.size());
    for (size_t k = 0; k < tensor->chunks.size(); ++k) {
      EXPECT_EQ(tensor->chunks[k].box, other.chunks[k].box);
      const StorageInfo& x = tensor->chunks[k].storage;
      const StorageInfo& y = other.chunks[k].storage;
      EXPECT_EQ(metadata.files[x.file], again.files[y.file]);
      EXPECT_EQ(x.offset, y.offset);
      EXPECT_EQ(x.length, y.length);
    }
  }
}

TEST(DcpMetadataWriter, IsReadBack) {
  Metadata metadata;
  metadata.files = {"__0_0.distcp", "__1_0.distcp"};
  metadata.save_id = "0d5d2e3a";
  metadata.entries = {
      Tensor("w", DType::kBFloat16, {4, 3},
             {{.box = {{0, 0}, {2, 3}}, .storage = {0, 0, 1577}},
              {.box = {{2, 0}, {2, 3}}, .storage = {1, 1 << 30, 1577}}}),
      Tensor("scalar", DType::kInt64, {},
             {{.box = {{}, {}}, .storage = {0, 1600, 1500}}}),
      Tensor("five", DType::kFloat8E4M3FN, {1, 2, 3, 4, 5},
             {{.box = {{0, 0, 0, 0, 0}, {1, 2, 3, 4, 5}},
               .storage = {1, int64_t{1} << 40, 1500}}}),
      {.fqn = "opt.groups.0.lr",
       .path = {PathElement("opt"), PathElement("groups"),
                PathElement(int64_t{0}), PathElement("lr")},
       .value = BytesStorageMetadata{{0, 4000, 1261}}}};
  ExpectReadBack(metadata);
  metadata.has_planner_data = false;
  metadata.save_id.clear();
  for (MetadataEntry& entry : metadata.entries) entry.path.clear();
  ExpectReadBack(metadata);
  ExpectReadBack(Metadata{});
}

TEST(DcpMetadataWriter, GivesEveryKeyOnceToChunksThatShareAnOffset) {
  Metadata metadata;
  metadata.files = {"f"};
  metadata.entries = {Tensor("w", DType::kFloat32, {5},
                             {{.box = {{5}, {0}}, .storage = {0, 0, 10}},
                              {.box = {{0}, {0}}, .storage = {0, 100, 10}},
                              {.box = {{0}, {5}}, .storage = {0, 100, 10}},
                              {.box = {{5}, {0}}, .storage = {0, 0, 10}}})};
  ExpectReadBack(metadata);
}

TEST(DcpMetadataWriter, WritesTablesLargerThanOneBatch) {
  Metadata metadata;
  metadata.files = {"f"};
  for (const int num_entries : {999, 1000, 1001, 2500}) {
    metadata.entries.clear();
    for (int i = 0; i < num_entries; ++i) {
      metadata.entries.push_back(
          Tensor(absl::StrCat("t", i), DType::kFloat32, {1},
                 {{.box = {{0}, {1}}, .storage = {0, 0, 10}}}));
    }
    std::vector<ChunkStorageMetadata> chunks;
    for (int64_t i = 0; i < num_entries; ++i) {
      chunks.push_back({.box = {{i}, {1}}, .storage = {0, 0, 10}});
    }
    metadata.entries.push_back(
        Tensor("many", DType::kFloat32, {num_entries}, chunks));
    ExpectReadBack(metadata);
  }
}

}  // namespace
}  // namespace dcp
