// SPDX-License-Identifier: Apache-2.0

#include "server/reading/dcp_index.h"

#include <algorithm>
#include <memory>
#include <string>

#include "dcp/base/bytes.h"
#include "dcp/format/index/dcp_metadata.h"
#include "dcp/io/file_system.h"
#include "gtest/gtest.h"
#include "tests/testing/golden.h"
#include "tests/testing/status_matchers.h"
#include "tests/testing/temp_dir.h"

namespace dcp::server {
namespace {

using ::dcp::testing::CopyGolden;
using ::dcp::testing::TempDir;

class DcpIndexTest : public ::testing::Test {
 protected:
  void Check(const std::string& golden) {
    SCOPED_TRACE(golden);
    const TempDir dir;
    const std::unique_ptr<FileSystem> fs = NewPosixFileSystem();
    ASSERT_OK_AND_ASSIGN(
        const std::unique_ptr<Checkpoint> checkpoint,
        Checkpoint::Open(*fs, CopyGolden(dir, golden), OpenOptions()));
    const std::string bytes = EncodeDcpIndex(*checkpoint);
    EXPECT_LT(bytes.size(), DcpIndexBytes(*checkpoint));
    ASSERT_OK_AND_ASSIGN(const Metadata metadata,
                         ParseDcpMetadata(AsBytes(bytes)));
    ASSERT_EQ(metadata.entries.size(), checkpoint->entries().size());
    for (const MetadataEntry& entry : metadata.entries) {
      const auto index = checkpoint->Find(entry.fqn);
      ASSERT_TRUE(index.has_value()) << entry.fqn;
      const CheckpointEntry& stored = checkpoint->entries()[*index];
      const auto* tensor = std::get_if<TensorStorageMetadata>(&entry.value);
      ASSERT_EQ(tensor != nullptr, stored.tensor() != nullptr);
      if (tensor == nullptr) continue;
      EXPECT_EQ(tensor->dtype, stored.tensor()->dtype);
      EXPECT_EQ(tensor->size, stored.tensor()->shape);
      ASSERT_EQ(tensor->chunks.size(), stored.tensor()->boxes.size());
      for (size_t c = 0; c < tensor->chunks.size(); ++c) {
        EXPECT_EQ(tensor->chunks[c].box, stored.tensor()->boxes[c]);
        const StorageInfo& storage = tensor->chunks[c].storage;
        const StorageInfo& item = stored.tensor()->locations[c].item;
        EXPECT_EQ(metadata.files[storage.file],
                  checkpoint->files().names()[item.file]);
        EXPECT_EQ(storage.offset, item.offset);
        EXPECT_EQ(storage.length, std::max<uint64_t>(item.length, 1));
      }
    }
  }
};

TEST_F(DcpIndexTest, DescribesEveryFormatAsDcpDoes) {
  for (const char* golden :
       {"torch-2.11/sharded", "torch-2.2/sharded", "torch-2.11/train",
        "torch-2.11/archive.pt", "torch-2.11/legacy.pt",
        "torch-2.11/hugging_face", "torch-2.11/hugging_face/sharded"}) {
    Check(golden);
  }
}

}  // namespace
}  // namespace dcp::server
