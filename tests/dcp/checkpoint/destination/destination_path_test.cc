// SPDX-License-Identifier: Apache-2.0

#include "dcp/checkpoint/destination/destination_path.h"

#include "gtest/gtest.h"

namespace dcp {
namespace {

TEST(DestinationPath, SplitsThePath) {
  const DestinationPath file = "run/model.safetensors";
  EXPECT_EQ(file.text(), "run/model.safetensors");
  EXPECT_EQ(file.path(), "run/model.safetensors");
  EXPECT_EQ(file.parent(), "run");
  EXPECT_EQ(file.name(), "model.safetensors");
  EXPECT_EQ(file.format(), Format::kSafetensors);
  const DestinationPath directory = "/out.pt//";
  EXPECT_EQ(directory.text(), "/out.pt//");
  EXPECT_EQ(directory.path(), "/out.pt");
  EXPECT_EQ(directory.parent(), "/");
  EXPECT_EQ(directory.name(), "out.pt");
  EXPECT_EQ(directory.format(), std::nullopt);
  EXPECT_EQ(DestinationPath("out").parent(), ".");
  EXPECT_EQ(DestinationPath("s3://bucket/out").parent(), "s3://bucket");
}

TEST(DestinationPath, KnowsTheSuffixesOfFiles) {
  for (const char* path : {"z.gguf", "/a.b/z.gguf", "a-1.2.gguf"}) {
    EXPECT_EQ(DestinationPath(path).suffix(), "gguf") << path;
  }
  for (const char* path : {"", "out", "/llama-3.1-8b", "/run.5", "/model.v2",
                           "/.hidden", "/a.b/c", "x."}) {
    EXPECT_EQ(DestinationPath(path).suffix(), "") << path;
  }
}

}  // namespace
}  // namespace dcp
