// SPDX-License-Identifier: Apache-2.0
// dcp-convert with checkpoints in Google's store, by the plugin: each format to
// it, from it and within it, and the error without the plugin.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "dcp/checkpoint/destination/litter.h"
#include "dcp/checkpoint/diff/diff.h"
#include "dcp/checkpoint/save/coordinator.h"
#include "dcp/checkpoint/save/save.h"
#include "dcp/io/file_system.h"
#include "dcp/io/file_systems/default_file_system.h"
#include "tests/server/server_process.h"
#include "tests/testing/gs_server.h"
#include "tests/testing/sample_state.h"
#include "tests/testing/status_matchers.h"
#include "tests/testing/temp_dir.h"

namespace dcp {
namespace {

using ::dcp::server::ServerProcess;
using ::dcp::testing::GsServer;
using ::dcp::testing::SampleState;
using ::dcp::testing::SampleTensor;
using ::dcp::testing::StatusIs;
using ::dcp::testing::TempDir;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr int kBadSource = 3;
constexpr int kRefused = 5;
constexpr int kUnchecked = 6;
constexpr char kUncheckedNote[] = "have neither CRC nor digest";

class GsConvertTest : public ::testing::Test {
 protected:
  // 18 MB, so that files have several parts.
  GsConvertTest() : fs_(NewDefaultFileSystem()), source_(dir_.Join("source")) {
    GsServer::Get();
    SampleState state;
    for (int i = 0; i < 3; ++i) {
      state.Add(SampleTensor(absl::StrCat("layer", i, ".weight"),
                             DType::kFloat32, {1500, 1000}));
    }
    SingleProcessCoordinator coordinator;
    EXPECT_OK(Save(*fs_, source_, state.state(), coordinator, {}));
  }

  // Runs the program, and returns the output.
  static std::string Run(std::vector<std::string> words, int code = 0) {
    words.insert(words.begin(), "tests/testing/programs/dcp-convert");
    ServerProcess process(words);
    EXPECT_EQ(process.Wait(), code) << process.said();
    return process.said();
  }

  static std::string Url(absl::string_view key) {
    return absl::StrCat("gs://", GsServer::kBucket, "/", key);
  }

  void ExpectIsSource(const std::string& path) {
    const absl::StatusOr<DiffReport> diff =
        DiffCheckpoints(*fs_, source_, path, DiffOptions());
    ASSERT_OK(diff);
    EXPECT_TRUE(diff->findings.empty()) << path;
  }

  const TempDir dir_;
  const std::unique_ptr<FileSystem> fs_;
  const std::string source_;
};

TEST_F(GsConvertTest, EveryFormatRoundTrips) {
  Run({"convert", source_, Url("dcp"), "--max-memory", "32MiB"});
  ExpectIsSource(Url("dcp"));
  Run({"verify", Url("dcp")});
  Run({"diff", source_, Url("dcp")});
  Run({"reshard", Url("dcp"), Url("resharded"), "--mesh", "shard=3"});
  ExpectIsSource(Url("resharded"));
  // Files with columns are written side by side.
  Run({"reshard", Url("resharded"), Url("columns"), "--mesh", "shard=3",
       "--place", "*=S(1)"});
  ExpectIsSource(Url("columns"));
  Run({"convert", Url("columns"), Url("model.pt")});
  ExpectIsSource(Url("model.pt"));
  Run({"convert", Url("model.pt"), Url("model.safetensors")});
  ExpectIsSource(Url("model.safetensors"));
  Run({"convert", Url("model.safetensors"), Url("hf"), "--to", "safetensors",
       "--max-shard-size", "9MB"});
  ExpectIsSource(Url("hf"));
  const std::string back = dir_.Join("back");
  Run({"convert", Url("hf"), back, "--to", "dcp"});
  ExpectIsSource(back);
}

// The header is written first, before the digests are known.
TEST_F(GsConvertTest, ADirectoryOfSafetensorsHasDigestsAndAFileHasNone) {
  Run({"convert", source_, Url("digests"), "--to", "safetensors",
       "--max-shard-size", "9MB"});
  EXPECT_THAT(Run({"verify", Url("digests")}), Not(HasSubstr(kUncheckedNote)));
  Run({"convert", source_, Url("digests.safetensors")});
  EXPECT_THAT(Run({"verify", Url("digests.safetensors")}, kUnchecked),
              HasSubstr(kUncheckedNote));
}

TEST_F(GsConvertTest, ReplacesADestinationOnlyOnRequest) {
  for (const char* const name : {"twice", "twice.pt"}) {
    Run({"convert", source_, Url(name)});
    EXPECT_THAT(Run({"convert", source_, Url(name)}, kRefused),
                HasSubstr("--overwrite"));
    Run({"convert", source_, Url(name), "--overwrite"});
    ExpectIsSource(Url(name));
  }
}

TEST_F(GsConvertTest, CleanFindsFilesThatNoIndexNames) {
  Run({"convert", source_, Url("cleaned")});
  const std::string left = Url("cleaned/__7_0.0123456789abcdef.distcp");
  ASSERT_OK(WriteFile(*fs_, left, "left"));
  EXPECT_THAT(Run({"clean", Url("cleaned")}), Not(HasSubstr("__7_0")));
  const absl::StatusOr<Litter> litter =
      FindLitter(*fs_, Url("cleaned"), INT64_MAX, {});
  ASSERT_OK(litter);
  EXPECT_TRUE(litter->uploads.empty());
  ASSERT_EQ(litter->files.size(), 1);
  EXPECT_EQ(litter->files[0].path, left);
  EXPECT_OK(RemoveLitter(*fs_, *litter, {}));
  EXPECT_THAT(fs_->Stat(left).status(), StatusIs(absl::StatusCode::kNotFound));
  ExpectIsSource(Url("cleaned"));
}

TEST_F(GsConvertTest, NamesTheMissingPlugin) {
  const std::string before = getenv("TESSERA_PLUGINS");
  setenv("TESSERA_PLUGINS", dir_.path().c_str(), 1);
  EXPECT_THAT(Run({"verify", Url("dcp")}, kBadSource),
              AllOf(HasSubstr("gs://tessera"), HasSubstr("libtessera-arrow.so"),
                    HasSubstr(dir_.path())));
  setenv("TESSERA_PLUGINS", before.c_str(), 1);
}

}  // namespace
}  // namespace dcp
