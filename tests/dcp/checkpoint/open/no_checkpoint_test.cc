// SPDX-License-Identifier: Apache-2.0

#include "dcp/checkpoint/open/no_checkpoint.h"

#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/dcp/checkpoint/fixtures.h"
#include "tests/testing/status_matchers.h"
#include "tests/testing/temp_dir.h"

namespace dcp {
namespace {

using absl::StatusCode;
using ::dcp::testing::Disk;
using ::dcp::testing::OpenCheckpoint;
using ::dcp::testing::StatusIs;
using ::dcp::testing::TempDir;
using ::testing::HasSubstr;

// The error for a directory with these files.
absl::Status Why(const std::vector<std::string>& files) {
  const TempDir dir;
  dir.WriteFile("d/notes.txt", "");
  for (const std::string& file : files) dir.WriteFile("d/" + file, "");
  const auto directory = ListDirectory(Disk(), dir.Join("d"));
  EXPECT_OK(directory);
  return WhyNoCheckpoint(*directory, {});
}

TEST(NoCheckpoint, NamesMissingFiles) {
  EXPECT_THAT(Why({}), StatusIs(StatusCode::kNotFound,
                                HasSubstr("neither .metadata (which a save")));
}

TEST(NoCheckpoint, ListsTheCheckpointsBelow) {
  EXPECT_THAT(
      Why({"step-10/x", "step-2/x", "step-1/x", "tmp_step-3/x",
           "step-4.tmp/x"}),
      StatusIs(StatusCode::kFailedPrecondition,
               HasSubstr("it has step-1, step-2, step-10; give the path of one "
                         "of them")));
  for (const absl::string_view name :
       {"global_step100", "global_step_100", "iter_0000100", "checkpoint-5",
        "epoch3", "epoch_3-step_7", "step=7", "ep1-ba20"}) {
    EXPECT_THAT(Why({absl::StrCat(name, "/x")}),
                StatusIs(StatusCode::kFailedPrecondition,
                         HasSubstr(absl::StrCat("it has ", name,
                                                "; give the path of that"))));
  }
  std::vector<std::string> many;
  for (int i = 1; i <= 13; ++i) many.push_back(absl::StrCat("step_", i, "/x"));
  EXPECT_THAT(Why(many), StatusIs(StatusCode::kFailedPrecondition,
                                  HasSubstr("step_10 and 3 more; give")));
}

TEST(NoCheckpoint, NamesThePartsOfAStep) {
  EXPECT_THAT(Why({"actor/x", "critic/x", "data.pt"}),
              StatusIs(StatusCode::kFailedPrecondition,
                       HasSubstr("it has actor, critic; give")));
  EXPECT_THAT(Why({"weights/x", "context/x"}),
              StatusIs(StatusCode::kFailedPrecondition,
                       HasSubstr("it has weights; give the path of that")));
  EXPECT_THAT(Why({"b.pt", "a.ckpt"}),
              StatusIs(StatusCode::kFailedPrecondition,
                       HasSubstr("it has a.ckpt, b.pt; give")));
}

TEST(NoCheckpoint, RecognisesSavesThatDidNotFinish) {
  EXPECT_THAT(Why({".metadata.tmp", "__0_0.distcp"}),
              StatusIs(StatusCode::kNotFound,
                       HasSubstr("there is .metadata.tmp but no .metadata")));
  EXPECT_THAT(Why({"__3_0.distcp"}),
              StatusIs(StatusCode::kNotFound,
                       HasSubstr("each machine wrote to its own disk")));
  EXPECT_THAT(Why({"batched/x"}),
              StatusIs(StatusCode::kNotFound,
                       HasSubstr("no .snapshot_metadata, which is written "
                                 "last")));
}

TEST(NoCheckpoint, RefusesOtherKindsByName) {
  for (const absl::string_view name :
       {"_CHECKPOINT_METADATA", "_METADATA", "manifest.ocdbt",
        "ocdbt.process_0/d/x", ".zarray"}) {
    EXPECT_THAT(Why({std::string(name)}),
                StatusIs(StatusCode::kUnimplemented,
                         HasSubstr("export it to safetensors with Orbax")))
        << name;
  }
  const std::pair<std::vector<std::string>, const char*> others[] = {
      {{"items/manifest.ocdbt"}, "MaxText"},
      {{"checkpoint", "target.encoder.layers_0/.zarray"}, "a T5X checkpoint"},
      {{"checkpoint", "model.ckpt-7.index"}, "a checkpoint of TensorFlow"},
      {{"checkpoint_metadata.json", "model/x"}, "a checkpoint of nanotron"},
      {{"checkpoint_last-shard0.pt", "checkpoint_last-shard1.pt"},
       "a checkpoint of fairscale"},
      {{"config.json", "flax_model.msgpack"}, "weights of Flax"},
      {{"config.json", "llama.Q4_0.gguf"}, "a GGUF file"},
  };
  for (const auto& [files, text] : others) {
    EXPECT_THAT(Why(files),
                StatusIs(StatusCode::kUnimplemented, HasSubstr(text)));
  }
  EXPECT_THAT(Why({"model_and_optim/.metadata", "train/rank0.pt"}),
              StatusIs(StatusCode::kFailedPrecondition,
                       HasSubstr("it has model_and_optim; give the path")));
  EXPECT_THAT(Why({"llama.nemo"}),
              StatusIs(StatusCode::kUnimplemented,
                       HasSubstr("llama.nemo: this is an archive of NeMo")));
}

TEST(NoCheckpoint, RefusesCustomLayoutsOfTorchCheckpointing) {
  const TempDir dir;
  dir.WriteFile("d/model_rank0.json", "");
  const auto open = [&](absl::string_view index) {
    dir.WriteFile("d/metadata.pkl", index);
    return OpenCheckpoint(dir.Join("d")).status();
  };
  EXPECT_THAT(
      open("\x80\x04}\x8c\x17nested_path_to_metadata"),
      StatusIs(StatusCode::kUnimplemented, HasSubstr("custom layouts")));
  EXPECT_THAT(open(""), StatusIs(StatusCode::kNotFound, HasSubstr("neither")));
}

TEST(NoCheckpoint, NamesWhereComposersLinksLead) {
  const TempDir dir;
  dir.WriteFile("d/latest-rank0.pt.symlink", "s3://b/run/ep1-ba2-rank0.pt\n");
  for (const std::string& path :
       {dir.Join("d"), dir.Join("d/latest-rank0.pt.symlink")}) {
    EXPECT_THAT(OpenCheckpoint(path),
                StatusIs(StatusCode::kFailedPrecondition,
                         HasSubstr("link of Composer to "
                                   "'s3://b/run/ep1-ba2-rank0.pt'")));
  }
}

TEST(NoCheckpoint, RefusesNemosArchives) {
  const TempDir dir;
  EXPECT_THAT(OpenCheckpoint(dir.WriteFile("llama.nemo", "")),
              StatusIs(StatusCode::kUnimplemented,
                       HasSubstr("unpack it with tar and give its "
                                 "model_weights.ckpt or model_weights")));
}

TEST(NoCheckpoint, ThePartsOfAPipelineAreNamed) {
  const TempDir dir;
  dir.WriteFile("p/model_index.json", "{}");
  dir.WriteFile("p/unet/diffusion_pytorch_model.safetensors", "");
  dir.WriteFile("p/text_encoder/model.safetensors", "");
  dir.WriteFile("p/scheduler/scheduler_config.json", "{}");
  EXPECT_THAT(OpenCheckpoint(dir.Join("p")),
              StatusIs(absl::StatusCode::kFailedPrecondition,
                       HasSubstr("models text_encoder, unet; give the path")));
}

}  // namespace
}  // namespace dcp
