// SPDX-License-Identifier: Apache-2.0

#include "dcp/checkpoint/output/companion_files.h"

#include <unistd.h>

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "dcp/checkpoint/convert/convert.h"
#include "dcp/checkpoint/verify/verify.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/dcp/checkpoint/fixtures.h"
#include "tests/testing/status_matchers.h"
#include "tests/testing/temp_dir.h"

namespace dcp {
namespace {

using ::dcp::testing::BytesOf;
using ::dcp::testing::Disk;
using ::dcp::testing::ReadFile;
using ::dcp::testing::SafetensorsBytes;
using ::dcp::testing::StatusIs;
using ::dcp::testing::TempDir;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::UnorderedElementsAre;

std::string Model() {
  return SafetensorsBytes(
      {{"w", DType::kFloat32, {2}, BytesOf<float>({1, 2})}});
}

// A model as Hugging Face keeps it, in the directory "m".
void WriteModel(const TempDir& dir) {
  dir.WriteFile("m/model.safetensors", Model());
  dir.WriteFile("m/config.json", "{\"model_type\": \"llama\"}");
  // Longer than a block, so that it does not pass in one piece.
  dir.WriteFile("m/tokenizer.json", std::string((5 << 20) + 3, 't'));
  dir.WriteFile("m/merges.txt", "");
  dir.WriteFile("m/modeling_llama.py", "import os");
  dir.WriteFile("m/README.md", "a model");
}

ConvertOptions ToSafetensors() {
  ConvertOptions options;
  options.to = Format::kSafetensors;
  return options;
}

std::vector<std::string> NamesIn(const std::string& directory) {
  std::vector<std::string> names;
  const auto entries = Disk().List(directory);
  EXPECT_OK(entries);
  for (const DirectoryEntry& entry : *entries) names.push_back(entry.name);
  return names;
}

TEST(CompanionFiles, AreCopiedWithTheModel) {
  const TempDir dir;
  WriteModel(dir);
  ASSERT_OK_AND_ASSIGN(const ConvertPlan plan,
                       ConvertCheckpoint(Disk(), dir.Join("m"), dir.Join("out"),
                                         ToSafetensors()));
  EXPECT_THAT(NamesIn(dir.Join("out")),
              UnorderedElementsAre("model.safetensors", "config.json",
                                   "tokenizer.json", "merges.txt", ".digests"));
  for (const char* name : {"config.json", "tokenizer.json", "merges.txt"}) {
    EXPECT_TRUE(ReadFile(dir.Join(std::string("m/") + name)) ==
                ReadFile(dir.Join(std::string("out/") + name)))
        << name;
  }
  EXPECT_THAT(plan.code_left_out, ElementsAre("modeling_llama.py"));
  std::vector<std::string> files;
  for (const ConvertPlan::OutputFile& file : plan.files) {
    files.push_back(file.name);
  }
  EXPECT_THAT(files, ElementsAre("model.safetensors", "config.json",
                                 "merges.txt", "tokenizer.json"));
  ASSERT_OK_AND_ASSIGN(const VerifyReport report,
                       VerifyCheckpoint(Disk(), dir.Join("out"), {}));
  EXPECT_TRUE(report.findings.empty());
}

// A model with tensors in these types; the config names a type.
void WriteTyped(const TempDir& dir, const std::string& config, DType a,
                DType b) {
  dir.WriteFile(
      "m/model.safetensors",
      SafetensorsBytes({{"a", a, {2}, std::string(2 * ElementSize(a), '\0')},
                        {"b", b, {2}, std::string(2 * ElementSize(b), '\0')},
                        {"ids", DType::kInt64, {1}, std::string(8, '\1')}}));
  dir.WriteFile("m/config.json", config);
  dir.WriteFile("m/tokenizer_config.json", config);
}

constexpr char kTypedConfig[] =
    "{\n  \"hidden_size\" : 8,\n  \"torch_dtype\": \"float32\",\n"
    "  \"text_config\": {\"torch_dtype\": \"float32\"},\n"
    "  \"dtype\": \"float32\"}\n";

TEST(CompanionFiles, ConfigNamesTheTypeAfterACast) {
  const TempDir dir;
  WriteTyped(dir, kTypedConfig, DType::kFloat32, DType::kFloat16);
  ConvertOptions cast = ToSafetensors();
  cast.selection.casts = {"bf16"};
  ASSERT_OK_AND_ASSIGN(const ConvertPlan plan,
                       ConvertCheckpoint(Disk(), dir.Join("m"), dir.Join("out"),
                                         std::move(cast)));
  const std::string want =
      "{\n  \"hidden_size\" : 8,\n  \"torch_dtype\": \"bfloat16\",\n"
      "  \"text_config\": {\"torch_dtype\": \"float32\"},\n"
      "  \"dtype\": \"bfloat16\"}\n";
  EXPECT_EQ(ReadFile(dir.Join("out/config.json")), want);
  EXPECT_EQ(ReadFile(dir.Join("out/tokenizer_config.json")), kTypedConfig);
  ASSERT_EQ(plan.files[1].name, "config.json");
  EXPECT_EQ(plan.files[1].bytes, want.size());
  ASSERT_OK_AND_ASSIGN(const VerifyReport report,
                       VerifyCheckpoint(Disk(), dir.Join("out"), {}));
  EXPECT_TRUE(report.findings.empty());
}

TEST(CompanionFiles, KeepsTheConfigWithoutACommonType) {
  struct Case {
    const char* config;
    std::vector<std::string> casts;
  };
  for (const Case& c : {
           Case{kTypedConfig, {}},
           Case{kTypedConfig, {"a=bf16"}},
           Case{"{\"torch_dtype\": \"auto\"}", {"bf16"}},
           Case{"{\"torch_dtype\": \"float32\"", {"bf16"}},
           Case{"", {"bf16"}},
       }) {
    const TempDir dir;
    WriteTyped(dir, c.config, DType::kFloat32, DType::kFloat16);
    ConvertOptions options = ToSafetensors();
    options.selection.casts = c.casts;
    ASSERT_OK(ConvertCheckpoint(Disk(), dir.Join("m"), dir.Join("out"),
                                std::move(options)));
    EXPECT_EQ(ReadFile(dir.Join("out/config.json")), c.config);
  }
}

TEST(CompanionFiles, AreNotCopiedWhenSwitchedOff) {
  const TempDir dir;
  WriteModel(dir);
  ConvertOptions without = ToSafetensors();
  without.copy_config = false;
  ASSERT_OK(ConvertCheckpoint(Disk(), dir.Join("m"), dir.Join("plain"),
                              std::move(without)));
  EXPECT_THAT(NamesIn(dir.Join("plain")),
              UnorderedElementsAre("model.safetensors", ".digests"));
  // One file was named, not the model's directory.
  ASSERT_OK(ConvertCheckpoint(Disk(), dir.Join("m/model.safetensors"),
                              dir.Join("one"), ToSafetensors()));
  EXPECT_THAT(NamesIn(dir.Join("one")),
              UnorderedElementsAre("model.safetensors", ".digests"));
}

TEST(CompanionFiles, AreCopiedFromNextToAnIndex) {
  const TempDir dir;
  dir.WriteFile("m/a.safetensors", Model());
  dir.WriteFile("m/config.json", "{}");
  const std::string index = dir.WriteFile(
      "m/x.index.json", "{\"weight_map\": {\"w\": \"a.safetensors\"}}");
  ASSERT_OK(ConvertCheckpoint(Disk(), index, dir.Join("out"), ToSafetensors()));
  EXPECT_EQ(ReadFile(dir.Join("out/config.json")), "{}");
}

TEST(CompanionFiles, AreCopiedFromVerlsFolder) {
  const TempDir dir;
  dir.WriteFile("m/model.safetensors", Model());
  dir.WriteFile("m/huggingface/config.json", "{}");
  ASSERT_OK(ConvertCheckpoint(Disk(), dir.Join("m"), dir.Join("out"),
                              ToSafetensors()));
  EXPECT_EQ(ReadFile(dir.Join("out/config.json")), "{}");
}

TEST(CompanionFiles, AreCopiedFromANamedDirectory) {
  const TempDir dir;
  WriteModel(dir);
  dir.WriteFile("base/config.json", "{\"base\": 1}");
  const auto from = [&](const std::string& name) {
    ConvertOptions options = ToSafetensors();
    options.assets = dir.Join(name);
    return options;
  };
  ASSERT_OK(
      ConvertCheckpoint(Disk(), dir.Join("m"), dir.Join("out"), from("base")));
  EXPECT_EQ(ReadFile(dir.Join("out/config.json")), "{\"base\": 1}");
  EXPECT_THAT(
      NamesIn(dir.Join("out")),
      UnorderedElementsAre("model.safetensors", "config.json", ".digests"));
  dir.WriteFile("none/a.py", "");
  EXPECT_THAT(
      ConvertCheckpoint(Disk(), dir.Join("m"), dir.Join("x"), from("none")),
      StatusIs(absl::StatusCode::kNotFound,
               HasSubstr("none has no config, tokenizer or")));
  EXPECT_THAT(
      ConvertCheckpoint(Disk(), dir.Join("m"), dir.Join("x"), from("nowhere")),
      StatusIs(absl::StatusCode::kNotFound));
  EXPECT_THAT(Disk().Stat(dir.Join("x")),
              StatusIs(absl::StatusCode::kNotFound));
}

TEST(CompanionFiles, LinksIntoTheCacheOfAModelHubAreFollowed) {
  const TempDir dir;
  dir.WriteFile("hub/blobs/12ab", "{\"from\": \"the hub\"}");
  dir.WriteFile("hub/snapshots/rev/model.safetensors", Model());
  ASSERT_EQ(symlink("../../blobs/12ab",
                    dir.Join("hub/snapshots/rev/config.json").c_str()),
            0);
  ASSERT_OK(ConvertCheckpoint(Disk(), dir.Join("hub/snapshots/rev"),
                              dir.Join("out"), ToSafetensors()));
  EXPECT_EQ(ReadFile(dir.Join("out/config.json")), "{\"from\": \"the hub\"}");
}

TEST(CompanionFiles, ALinkThatLeadsElsewhereIsRefused) {
  const TempDir dir;
  const std::string secret = dir.WriteFile("secret", "key");
  dir.WriteFile("m/model.safetensors", Model());
  ASSERT_EQ(symlink("../secret", dir.Join("m/config.json").c_str()), 0);
  const auto convert = [&] {
    return ConvertCheckpoint(Disk(), dir.Join("m"), dir.Join("out"),
                             ToSafetensors());
  };
  EXPECT_THAT(convert(), StatusIs(absl::StatusCode::kFailedPrecondition,
                                  HasSubstr("copy_config = false")));
  EXPECT_THAT(Disk().Stat(dir.Join("out")),
              StatusIs(absl::StatusCode::kNotFound));
  // Nor may a link lead out through a directory called blobs.
  ASSERT_EQ(symlink(dir.Join(".").c_str(), dir.Join("blobs").c_str()), 0);
  EXPECT_THAT(ConvertCheckpoint(Disk(), dir.Join("m/../m"), dir.Join("out"),
                                ToSafetensors()),
              StatusIs(absl::StatusCode::kFailedPrecondition));
}

TEST(CompanionFiles, OverwriteLosesNoConfig) {
  const TempDir dir;
  WriteModel(dir);
  const std::string out = dir.Join("out");
  ASSERT_OK(ConvertCheckpoint(Disk(), dir.Join("m"), out, ToSafetensors()));
  dir.WriteFile("m/config.json", "{\"new\": 1}");
  ConvertOptions again = ToSafetensors();
  again.overwrite = true;
  ASSERT_OK(ConvertCheckpoint(Disk(), dir.Join("m"), out, std::move(again)));
  EXPECT_EQ(ReadFile(dir.Join("out/config.json")), "{\"new\": 1}");
  EXPECT_THAT(NamesIn(dir.path()), UnorderedElementsAre("m", "out"));
  // Otherwise a source without a tokenizer would remove the destination's.
  ConvertOptions bare = ToSafetensors();
  bare.overwrite = true;
  EXPECT_THAT(ConvertCheckpoint(Disk(), dir.Join("m/model.safetensors"), out,
                                std::move(bare)),
              StatusIs(absl::StatusCode::kFailedPrecondition,
                       HasSubstr("lost: config.json, merges.txt")));
  EXPECT_EQ(ReadFile(dir.Join("out/config.json")), "{\"new\": 1}");
}

TEST(CompanionFiles, APlanNamesThem) {
  const TempDir dir;
  WriteModel(dir);
  ASSERT_OK_AND_ASSIGN(
      const ConvertPlan plan,
      PlanConvert(Disk(), dir.Join("m"), dir.Join("out"), ToSafetensors()));
  ASSERT_EQ(plan.files.size(), 4u);
  EXPECT_EQ(plan.files[1].name, "config.json");
  EXPECT_EQ(plan.files[1].bytes, 23u);
  EXPECT_THAT(plan.code_left_out, ElementsAre("modeling_llama.py"));
}

TEST(CompanionFiles, RefusesALargeFile) {
  const TempDir dir;
  dir.WriteFile("m/model.safetensors", Model());
  dir.WriteFile("m/tokenizer.json", "");
  ASSERT_EQ(truncate(dir.Join("m/tokenizer.json").c_str(),
                     static_cast<off_t>(kMaxCompanionBytes) + 1),
            0);
  EXPECT_THAT(ConvertCheckpoint(Disk(), dir.Join("m"), dir.Join("out"),
                                ToSafetensors()),
              StatusIs(absl::StatusCode::kFailedPrecondition,
                       HasSubstr("more than 134217728")));
}

TEST(CompanionFiles, NamesAreSortedForTheSearch) {
  for (const char* name : {"added_tokens.json", "vocab.txt", "config.json",
                           "chat_template.jinja", "tokenizer.model"}) {
    EXPECT_TRUE(IsCompanionName(name)) << name;
  }
  for (const char* name : {"", "a.py", "config.yaml", "model.safetensors"}) {
    EXPECT_FALSE(IsCompanionName(name)) << name;
  }
}

// A peft folder: the library looks for these names.
TEST(CompanionFiles, AdaptersKeepTheirNames) {
  const TempDir dir;
  dir.WriteFile("m/adapter_model.safetensors", Model());
  dir.WriteFile("m/adapter_config.json", "{\"r\": 8}");
  dir.WriteFile("m/README.md", "an adapter");
  dir.WriteFile("m/runs/log", "");
  ASSERT_OK_AND_ASSIGN(const ConvertPlan plan,
                       ConvertCheckpoint(Disk(), dir.Join("m"), dir.Join("out"),
                                         ToSafetensors()));
  EXPECT_THAT(NamesIn(dir.Join("out")),
              UnorderedElementsAre("adapter_model.safetensors",
                                   "adapter_config.json", ".digests"));
  EXPECT_THAT(plan.not_copied, ElementsAre("README.md", "runs/"));
}

TEST(CompanionFiles, ModelsOfDiffusersKeepTheirNames) {
  const TempDir dir;
  dir.WriteFile("unet/diffusion_pytorch_model.safetensors",
                SafetensorsBytes({{"a", DType::kUInt8, {1}, "a"},
                                  {"b", DType::kUInt8, {1}, "b"}}));
  dir.WriteFile("unet/config.json", "{}");
  ConvertOptions options = ToSafetensors();
  options.max_shard_bytes = 1;
  ASSERT_OK(ConvertCheckpoint(Disk(), dir.Join("unet"), dir.Join("out"),
                              std::move(options)));
  EXPECT_THAT(
      NamesIn(dir.Join("out")),
      UnorderedElementsAre("diffusion_pytorch_model-00001-of-00002.safetensors",
                           "diffusion_pytorch_model-00002-of-00002.safetensors",
                           "diffusion_pytorch_model.safetensors.index.json",
                           "config.json", ".digests"));
  ASSERT_OK(VerifyCheckpoint(Disk(), dir.Join("out"), {}));
}

// sentence-transformers: without the folders, embeddings are in another space.
TEST(CompanionFiles, ModulesBehindTheModelComeAlong) {
  const TempDir dir;
  dir.WriteFile("m/model.safetensors", Model());
  dir.WriteFile("m/config.json", "{}");
  dir.WriteFile("m/modules.json", R"([
      {"idx": 0, "name": "0", "path": "", "type": "T"},
      {"idx": 1, "name": "1", "path": "1_Pooling", "type": "P"},
      {"idx": 2, "name": "2", "path": "2_Dense", "type": "D"},
      {"idx": 3, "name": "3", "path": "3_Normalize", "type": "N"}])");
  dir.WriteFile("m/1_Pooling/config.json", "{\"mean\": true}");
  dir.WriteFile("m/2_Dense/config.json", "{\"out\": 2}");
  dir.WriteFile("m/2_Dense/model.safetensors", Model());
  dir.WriteFile("m/2_Dense/notes.txt", "");
  dir.WriteFile("m/onnx/model.onnx", "");
  ConvertOptions options = ToSafetensors();
  options.selection.casts = {"bf16"};
  ASSERT_OK_AND_ASSIGN(const ConvertPlan plan,
                       ConvertCheckpoint(Disk(), dir.Join("m"), dir.Join("out"),
                                         std::move(options)));
  for (const char* name :
       {"modules.json", "1_Pooling/config.json", "2_Dense/config.json",
        "2_Dense/model.safetensors"}) {
    EXPECT_EQ(ReadFile(dir.Join(std::string("m/") + name)),
              ReadFile(dir.Join(std::string("out/") + name)))
        << name;
  }
  EXPECT_THAT(plan.not_copied,
              UnorderedElementsAre("onnx/", "2_Dense/notes.txt"));
  ASSERT_OK_AND_ASSIGN(const VerifyReport report,
                       VerifyCheckpoint(Disk(), dir.Join("out"), {}));
  EXPECT_TRUE(report.findings.empty());
  EXPECT_EQ(report.num_items_unchecked, 0u);
  EXPECT_THAT(ConvertCheckpoint(Disk(), dir.Join("m"), dir.Join("out"),
                                ToSafetensors()),
              StatusIs(absl::StatusCode::kAlreadyExists));
}

TEST(CompanionFiles, ModulesElsewhereAreRefused) {
  const TempDir dir;
  dir.WriteFile("m/model.safetensors", Model());
  dir.WriteFile("m/modules.json", R"([{"path": "../secrets"}])");
  dir.WriteFile("secrets/config.json", "{}");
  EXPECT_THAT(ConvertCheckpoint(Disk(), dir.Join("m"), dir.Join("out"),
                                ToSafetensors()),
              StatusIs(absl::StatusCode::kDataLoss, HasSubstr("../secrets")));
  // A folder that is a link does not belong to the model.
  dir.WriteFile("m/modules.json", R"([{"path": "1_Pooling"}])");
  ASSERT_EQ(
      symlink(dir.Join("secrets").c_str(), dir.Join("m/1_Pooling").c_str()), 0);
  ASSERT_OK(ConvertCheckpoint(Disk(), dir.Join("m"), dir.Join("out"),
                              ToSafetensors()));
  EXPECT_FALSE(Disk().Stat(dir.Join("out/1_Pooling")).ok());
}

}  // namespace
}  // namespace dcp
