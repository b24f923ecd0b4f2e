// Universal checkpoints of DeepSpeed in which one thing was changed.
#include "dcp/checkpoint/open/dialects/deepspeed/universal_state.h"

#include <filesystem>
#include <memory>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "dcp/checkpoint/open/checkpoint.h"
#include "dcp/format/torch_tensor.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/dcp/checkpoint/fixtures.h"
#include "tests/dcp/checkpoint/open/dialects/archive_editor.h"
#include "tests/testing/golden.h"
#include "tests/testing/status_matchers.h"
#include "tests/testing/temp_dir.h"

namespace dcp {
namespace {

using absl::StatusCode;
using ::dcp::testing::ArchiveEditor;
using ::dcp::testing::CopyGolden;
using ::dcp::testing::Disk;
using ::dcp::testing::EntryOf;
using ::dcp::testing::OpenCheckpoint;
using ::dcp::testing::StatusIs;
using ::dcp::testing::TempDir;
using ::testing::HasSubstr;

// A vector of five elements in storage 0.
Value Five(ArchiveEditor& editor) {
  return MakeTensor(editor.arena(), DType::kFloat32, {5}, false, "0");
}

class Universal {
 public:
  explicit Universal(absl::string_view name)
      : path_(CopyGolden(dir_, absl::StrCat("dialects/deepspeed/", name))) {}
  const std::string& path() const { return path_; }
  std::string FileOf(absl::string_view name) const {
    return absl::StrCat(path_, "/global_step1_universal/zero/", name);
  }

 private:
  TempDir dir_;
  std::string path_;
};

TEST(UniversalState, FilesThatDoNotFitAreRefused) {
  const Universal missing("universal_zero2_ws3");
  std::filesystem::remove(missing.FileOf("norm.bias/fp32.pt"));
  EXPECT_THAT(OpenCheckpoint(missing.path()),
              StatusIs(StatusCode::kNotFound,
                       HasSubstr("zero/norm.bias/fp32.pt is missing")));
  const Universal moment("universal_zero2_ws3");
  {
    ArchiveEditor e(moment.FileOf("norm.bias/exp_avg.pt"));
    e.Set({"param"}, Five(e));
    e.Save();
  }
  EXPECT_THAT(
      OpenCheckpoint(moment.path()),
      StatusIs(StatusCode::kDataLoss, HasSubstr("norm.bias: exp_avg.pt")));
  const Universal bare("universal_zero3_ws2");
  {
    ArchiveEditor e(bare.FileOf("embed.weight/fp32.pt"));
    e.SetRoot(Five(e));
    e.Save();
  }
  EXPECT_THAT(OpenCheckpoint(bare.path()),
              StatusIs(StatusCode::kDataLoss,
                       HasSubstr("embed.weight: fp32.pt: expected shape")));
}

// The vocabulary had been padded for model parallelism.
TEST(UniversalState, AParameterMayBeSmaller) {
  const Universal copied("universal_zero2_ws3");
  for (const char* key : {"fp32", "exp_avg", "exp_avg_sq"}) {
    ArchiveEditor e(copied.FileOf(absl::StrCat("embed.weight/", key, ".pt")));
    e.Set({"param"},
          MakeTensor(e.arena(), DType::kFloat32, {11, 6}, false, "0"));
    e.Set({"vocab_tensor"}, Value::Bool(true));
    e.Save();
  }
  ASSERT_OK_AND_ASSIGN(const std::unique_ptr<Checkpoint> checkpoint,
                       OpenCheckpoint(copied.path()));
  EXPECT_EQ(EntryOf(*checkpoint, "model.embed.weight").tensor()->shape,
            Dims({11, 6}));
}

TEST(UniversalState, TheModulesWeightsCanBeReadInstead) {
  const Universal copied("universal_zero2_ws3");
  ASSERT_OK_AND_ASSIGN(
      const std::unique_ptr<Checkpoint> checkpoint,
      Checkpoint::Open(Disk(), copied.path(),
                       {.dialect = {.low_precision_weights = true}}));
  EXPECT_TRUE(checkpoint->Find("model.embed.weight").has_value());
  EXPECT_TRUE(
      checkpoint->Find("optimizer.state.embed.weight.exp_avg").has_value());
}

}  // namespace
}  // namespace dcp
