// SPDX-License-Identifier: Apache-2.0
// DeepSpeed's checkpoints with one change each, and small ones built by hand.
// dialects_test compares unchanged checkpoints.
#include "dcp/checkpoint/dialects/deepspeed/deepspeed_opener.h"

#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "dcp/checkpoint/open/checkpoint.h"
#include "dcp/format/torch/torch_tensor.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/dcp/checkpoint/fixtures.h"
#include "tests/dcp/checkpoint/open/dialects/archive_editor.h"
#include "tests/dcp/checkpoint/open/dialects/ranks/rank_checkpoint.h"
#include "tests/dcp/format/rank_values.h"
#include "tests/testing/golden.h"
#include "tests/testing/status_matchers.h"
#include "tests/testing/temp_dir.h"

namespace dcp {
namespace {

using absl::StatusCode;
using ::dcp::testing::ArchiveEditor;
using ::dcp::testing::CopyGolden;
using ::dcp::testing::Disk;
using ::dcp::testing::GetEntry;
using ::dcp::testing::LoadAll;
using ::dcp::testing::MakeInts;
using ::dcp::testing::OpenCheckpoint;
using ::dcp::testing::RankCheckpoint;
using ::dcp::testing::StatusIs;
using ::dcp::testing::TempDir;
using ::dcp::testing::WarningText;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

using Bytes = std::map<std::string, std::string>;

constexpr char kState[] = "optimizer_state_dict";

absl::StatusOr<std::unique_ptr<Checkpoint>> OpenLowPrecision(
    const std::string& path) {
  return Checkpoint::Open(Disk(), path,
                          {.dialect = {.low_precision_weights = true}});
}

// A checkpoint from tests/golden/dialects/deepspeed, copied for changes.
class Copied {
 public:
  explicit Copied(absl::string_view name)
      : path_(CopyGolden(dir_, absl::StrCat("dialects/deepspeed/", name))) {}

  const std::string& path() const { return path_; }
  std::string FilePath(absl::string_view name) const {
    return absl::StrCat(path_, "/global_step1/", name);
  }
  std::string Optim(int rank) const {
    return FilePath(
        absl::StrCat("zero_pp_rank_", rank, "_mp_rank_00_optim_states.pt"));
  }
  std::string Model() const { return FilePath("mp_rank_00_model_states.pt"); }

 private:
  TempDir dir_;
  std::string path_;
};

using Change = std::function<void(const Copied&)>;

// A float32 vector in storage 0, which has at least `length` elements.
Value MakeVector(ArchiveEditor& editor, int64_t length) {
  return MakeTensor(editor.arena(), DType::kFloat32, {length}, false, "0");
}

struct ChangedCase {
  std::string what;
  Change change;
  StatusCode code;
  std::string message;
};

// Checks that each changed zero2_ws3 is refused.
void ExpectRefused(const std::vector<ChangedCase>& cases) {
  for (const ChangedCase& test : cases) {
    SCOPED_TRACE(test.what);
    const Copied copied("zero2_ws3");
    ASSERT_OK(OpenCheckpoint(copied.path()));
    test.change(copied);
    EXPECT_THAT(OpenCheckpoint(copied.path()),
                StatusIs(test.code, HasSubstr(test.message)));
  }
}

TEST(DeepSpeedOpener, ChangedNumbersOfPartitionsAreRefused) {
  ExpectRefused({
      {"a rank's file removed",
       [](const Copied& c) { std::filesystem::remove(c.Optim(1)); },
       StatusCode::kNotFound, "2 of 3 optim files"},
      {"two ranks swapped",
       [](const Copied& c) {
         std::filesystem::rename(c.Optim(1), c.FilePath("x"));
         std::filesystem::rename(c.Optim(2), c.Optim(1));
         std::filesystem::rename(c.FilePath("x"), c.Optim(2));
       },
       StatusCode::kDataLoss, "rank 1 has"},
      {"partition_count changed",
       [](const Copied& c) {
         ArchiveEditor e(c.Optim(0));
         e.Set({kState, "partition_count"}, Value::Int(1'000'000'000));
         e.Save();
       },
       StatusCode::kNotFound, "3 of 1000000000 optim files"},
      {"partition_count differs between groups",
       [](const Copied& c) {
         ArchiveEditor e(c.Optim(0));
         e.Set({kState, "partition_count"},
               e.arena().List({Value::Int(3), Value::Int(1)}));
         e.Save();
       },
       StatusCode::kUnimplemented, "expert-parallel"},
  });
}

TEST(DeepSpeedOpener, ChangedPartitionsAreRefused) {
  ExpectRefused({
      {"exp_avg cut short",
       [](const Copied& c) {
         ArchiveEditor e(c.Optim(1));
         const Value states = e.At({kState, "base_optimizer_state", "state"});
         e.arena().Update(states.items()[1],
                          {e.arena().Str("exp_avg"), MakeVector(e, 1)});
         e.Save();
       },
       StatusCode::kDataLoss, "rank 1 has 1"},
      {"a master that is not flat",
       [](const Copied& c) {
         ArchiveEditor e(c.Optim(2));
         const Value matrix =
             MakeTensor(e.arena(), DType::kFloat32, {1, 1}, false, "0");
         e.Set({kState, "single_partition_of_fp32_groups"},
               e.arena().List({matrix, matrix}));
         e.Save();
       },
       StatusCode::kDataLoss, "rank_2_mp_rank_00_optim_states.pt"},
      {"a group's master missing",
       [](const Copied& c) {
         ArchiveEditor e(c.Optim(0));
         e.Set({kState, "single_partition_of_fp32_groups"}, e.arena().List());
         e.Save();
       },
       StatusCode::kDataLoss, "has no item 0"},
      {"a negative padding between parameters",
       [](const Copied& c) {
         ArchiveEditor e(c.Optim(0));
         const Value gaps = e.arena().List({Value::Int(-4)});
         e.Set({kState, "param_alignment_paddings"},
               e.arena().List({gaps, gaps}));
         e.Save();
       },
       StatusCode::kDataLoss, "param_alignment_paddings holds -4"},
      {"100,000 groups",
       [](const Copied& c) {
         ArchiveEditor e(c.Model());
         e.Set({"param_shapes"},
               e.arena().List(std::vector<Value>(100'000, e.arena().Dict())));
         e.Save();
       },
       StatusCode::kDataLoss, "param_shapes has 100000"},
      {"a storage that is shorter than its number of elements",
       [](const Copied& c) {
         ArchiveEditor e(c.Optim(0));
         const Value vector = MakeVector(e, 1'000'000);
         e.Set({kState, "single_partition_of_fp32_groups"},
               e.arena().List({vector, vector}));
         e.Save();
       },
       StatusCode::kDataLoss, "rank_0_mp_rank_00_optim_states.pt"},
  });
}

TEST(DeepSpeedOpener, ShapesThatCannotBeAreRefused) {
  const int64_t huge = int64_t{1} << 62;
  const struct {
    std::vector<Dims> shapes;
    std::string message;
  } cases[] = {
      {{{huge}}, "too large"},
      {{{huge, 4}}, "too large"},
      {{{int64_t{1} << 59}, {int64_t{1} << 59}, {int64_t{1} << 59}},
       "too large"},
      {{{-1}}, "a shape"},
      {{{1000}}, "elements 0 to 1000"},
      {{{1}}, "its parameters have 1 elements"},
  };
  for (const auto& test : cases) {
    SCOPED_TRACE(test.message);
    const Copied copied("zero2_ws3");
    ArchiveEditor e(copied.Model());
    const Value group = e.arena().Dict();
    for (const Dims& shape : test.shapes) {
      e.arena().Update(
          group,
          {e.arena().Str(absl::StrCat("w", group.items().size())),
           e.arena().Call(e.arena().Global("torch", "Size"),
                          e.arena().Tuple({MakeInts(e.arena(), shape)}))});
    }
    e.Set({"param_shapes"}, e.arena().List({group, group}));
    e.Save();
    EXPECT_THAT(OpenCheckpoint(copied.path()),
                StatusIs(StatusCode::kDataLoss, HasSubstr(test.message)));
  }
}

TEST(DeepSpeedOpener, ChangedPiecesAreRefused) {
  const auto open = [](const Change& change) {
    const Copied copied("zero3_ws2");
    change(copied);
    return OpenCheckpoint(copied.path()).status();
  };
  EXPECT_THAT(open([](const Copied& c) {
                std::filesystem::remove(
                    c.FilePath("zero_pp_rank_1_mp_rank_00_model_states.pt"));
              }),
              StatusIs(StatusCode::kNotFound, HasSubstr("1 of 2 model files")));
  EXPECT_THAT(open([](const Copied& c) {
                std::filesystem::remove(c.Optim(0));
                std::filesystem::remove(c.Optim(1));
              }),
              StatusIs(StatusCode::kNotFound,
                       HasSubstr("*_optim_states.pt, which are missing")));
  EXPECT_THAT(
      open([](const Copied& c) {
        ArchiveEditor e(c.Optim(1));
        const Value vector = MakeVector(e, 1);
        e.Set({kState, "fp32_flat_groups"}, e.arena().List({vector, vector}));
        e.Save();
      }),
      StatusIs(StatusCode::kDataLoss, HasSubstr("rank 1 has 2")));
  EXPECT_THAT(open([](const Copied& c) {
                ArchiveEditor e(
                    c.FilePath("zero_pp_rank_1_mp_rank_00_model_states.pt"));
                e.Set({"frozen_param_fragments"}, e.arena().Dict());
                e.Save();
              }),
              StatusIs(StatusCode::kDataLoss,
                       HasSubstr("frozen_param_fragments has no")));
  const Copied copied("zero3_ws2");
  EXPECT_THAT(OpenLowPrecision(copied.path()),
              StatusIs(StatusCode::kInvalidArgument,
                       HasSubstr("leave out the option")));
}

TEST(DeepSpeedOpener, OldAndForeignWritersAreNamed) {
  const auto open = [](const Change& change) {
    const Copied copied("zero2_ws3");
    change(copied);
    return OpenCheckpoint(copied.path()).status();
  };
  EXPECT_THAT(open([](const Copied& c) {
                ArchiveEditor e(c.Model());
                e.Set({"ds_autoep_layers"}, e.arena().List());
                e.Save();
              }),
              StatusIs(StatusCode::kUnimplemented, HasSubstr("expert")));
  EXPECT_THAT(open([](const Copied& c) {
                ArchiveEditor e(c.Optim(0));
                e.Set({kState, "local_sub_partitions_of_fp32_groups"},
                      e.arena().List());
                e.Save();
              }),
              StatusIs(StatusCode::kUnimplemented, HasSubstr("0.3.17")));
  EXPECT_THAT(open([](const Copied& c) {
                ArchiveEditor e(c.Model());
                e.Set({"param_shapes"}, Value());
                e.Save();
              }),
              StatusIs(StatusCode::kUnimplemented,
                       HasSubstr("DeepSpeed 0.19.8, which records no names")));
}

TEST(DeepSpeedOpener, TheModulesWeightsCanBeReadInstead) {
  for (const bool has_names : {true, false}) {
    const Copied copied("zero1_bf16opt_ws2");
    if (!has_names) {
      ArchiveEditor e(copied.Model());
      e.Set({"param_shapes"}, Value());
      e.Save();
    }
    ASSERT_OK_AND_ASSIGN(const std::unique_ptr<Checkpoint> checkpoint,
                         OpenLowPrecision(copied.path()));
    ASSERT_OK_AND_ASSIGN(const Bytes found, LoadAll(*checkpoint));
    ASSERT_OK_AND_ASSIGN(const std::unique_ptr<Checkpoint> file,
                         OpenCheckpoint(copied.Model()));
    ASSERT_OK_AND_ASSIGN(const Bytes wanted, LoadAll(*file));
    size_t num_compared = 0;
    for (const CheckpointEntry& entry : file->entries()) {
      absl::string_view name = entry.fqn;
      if (!absl::ConsumePrefix(&name, "module.")) continue;
      const std::string fqn = absl::StrCat("model.", name);
      EXPECT_EQ(GetEntry(*checkpoint, fqn).tensor()->dtype,
                entry.tensor()->dtype);
      EXPECT_EQ(found.at(fqn), wanted.at(entry.fqn));
      ++num_compared;
    }
    EXPECT_GT(num_compared, 10u);
    EXPECT_EQ(GetEntry(*checkpoint, "model.embed.weight").tensor()->dtype,
              DType::kBFloat16);
    EXPECT_EQ(found.contains("optimizer.state.embed.weight.exp_avg"),
              has_names);
    EXPECT_EQ(
        absl::StrContains(WarningText(*checkpoint), "names of parameters"),
        !has_names);
  }
}

TEST(DeepSpeedOpener, TheModelAloneIsReadWithAWarning) {
  const Copied copied("zero2_ws3");
  for (int rank = 0; rank < 3; ++rank) {
    std::filesystem::remove(copied.Optim(rank));
  }
  ASSERT_OK_AND_ASSIGN(const std::unique_ptr<Checkpoint> checkpoint,
                       OpenCheckpoint(copied.path()));
  EXPECT_TRUE(checkpoint->Find("model.embed.weight").has_value());
  EXPECT_FALSE(checkpoint->Find("optimizer.param_groups.0.lr").has_value());
  EXPECT_THAT(WarningText(*checkpoint), HasSubstr("*_optim_states.pt"));
}

// No file is damaged.
TEST(DeepSpeedOpener, FilesOfTwoStepsAreRefused) {
  for (const auto& [name, what] :
       std::vector<std::pair<std::string, std::string>>{
           {"step_mix_z2",
            "rank_1_mp_rank_00_optim_states.pt: "
            "optimizer.state.layers.0.norm.weight.step of rank "
            "1 differs from that of rank 0"},
           {"step_mix_z3", "of rank 1 differs from that of rank 0"},
           {"step_mix_model_states",
            "rank_1_mp_rank_00_model_states.pt: global_steps is 9, but 3"}}) {
    EXPECT_THAT(OpenCheckpoint(Copied(name).path()),
                StatusIs(StatusCode::kDataLoss,
                         AllOf(HasSubstr(what), HasSubstr("different steps"))))
        << name;
  }
}

// ---- Small checkpoints ------------------------------------------------------

class SmallDeepSpeedTest : public ::testing::Test {
 protected:
  Value Text(absl::string_view text) { return arena().Str(text); }
  Value Tensor(const Dims& shape, absl::string_view key) {
    return MakeTensor(arena(), DType::kUInt8, shape, false, key);
  }
  Value Group(const std::vector<Value>& params) {
    return arena().Dict(
        {Text("lr"), Value::Float(0.5), Text("params"), arena().List(params)});
  }
  ValueArena& arena() { return files_.arena(); }

  TempDir dir_;
  RankCheckpoint files_;
};

TEST_F(SmallDeepSpeedTest, StageZeroGetsNamesWithOneGroup) {
  const Value state = arena().Dict(
      {Value::Int(0), arena().Dict({Text("exp_avg"), Tensor({2, 1}, "1")})});
  const Value optimizer =
      arena().Dict({Text("state"), state, Text("param_groups"),
                    arena().List({Group({Value::Int(0)})})});
  files_.Add(
      "mp_rank_00_model_states.pt",
      arena().Dict(
          {Text("module"), arena().Dict({Text("w"), Tensor({2, 1}, "0")}),
           Text("optimizer"), optimizer, Text("param_shapes"), Value()}),
      {"ab", "cd"});
  ASSERT_OK_AND_ASSIGN(const std::unique_ptr<Checkpoint> checkpoint,
                       OpenCheckpoint(files_.Write(dir_)));
  ASSERT_OK_AND_ASSIGN(const Bytes found, LoadAll(*checkpoint));
  EXPECT_EQ(found,
            (Bytes{{"model.w", "ab"}, {"optimizer.state.w.exp_avg", "cd"}}));
  EXPECT_THAT(WarningText(*checkpoint), IsEmpty());
}

TEST_F(SmallDeepSpeedTest, AnFp16OptimizerIsLeftOut) {
  files_.Add(
      "mp_rank_00_model_states.pt",
      arena().Dict({Text("module"), arena().Dict({Text("w"), Tensor({2}, "0")}),
                    Text("optimizer"),
                    arena().Dict({Text("fp32_groups_flat"), arena().List()})}),
      {"ab"});
  ASSERT_OK_AND_ASSIGN(const std::unique_ptr<Checkpoint> checkpoint,
                       OpenCheckpoint(files_.Write(dir_)));
  EXPECT_TRUE(checkpoint->Find("model.w").has_value());
  EXPECT_THAT(WarningText(*checkpoint), HasSubstr("left out"));
}

// DeepSpeed 0.4: one dict with shapes, a number for the stage, no paddings.
TEST_F(SmallDeepSpeedTest, OldShapesAreOneDict) {
  const Value size = arena().Call(arena().Global("torch", "Size"),
                                  arena().Tuple({MakeInts(arena(), {3})}));
  files_.Add(
      "mp_rank_00_model_states.pt",
      arena().Dict({Text("module"), arena().Dict({Text("w"), Tensor({3}, "0")}),
                    Text("param_shapes"), arena().Dict({Text("w"), size})}),
      {"xyz"});
  for (int rank = 0; rank < 2; ++rank) {
    const int64_t length = 2 - rank;
    const Value state = arena().Dict(
        {Value::Int(0), arena().Dict({Text("exp_avg"), Tensor({2}, "1")})});
    const Value inner =
        arena().Dict({Text("state"), state, Text("param_groups"),
                      arena().List({Group({Value::Int(0)})})});
    files_.Add(
        absl::StrCat("zero_pp_rank_", rank, "_mp_rank_00_optim_states.pt"),
        arena().Dict({Text(kState),
                      arena().Dict({Text("zero_stage"), Value::Int(2),
                                    Text("partition_count"), Value::Int(2),
                                    Text("single_partition_of_fp32_groups"),
                                    arena().List({Tensor({length}, "0")}),
                                    Text("base_optimizer_state"), inner})}),
        {rank == 0 ? "ab" : "c", rank == 0 ? "de" : "f-"});
  }
  ASSERT_OK_AND_ASSIGN(const std::unique_ptr<Checkpoint> checkpoint,
                       OpenCheckpoint(files_.Write(dir_)));
  ASSERT_OK_AND_ASSIGN(const Bytes found, LoadAll(*checkpoint));
  EXPECT_EQ(found,
            (Bytes{{"model.w", "abc"}, {"optimizer.state.w.exp_avg", "def"}}));
}

// One element in partitions with two: rank 1 has none, and nobody stores the
// padding.
TEST_F(SmallDeepSpeedTest, ElasticCheckpointsHaveAListOfStates) {
  files_.Add(
      "mp_rank_00_model_states.pt",
      arena().Dict(
          {Text("module"), arena().Dict({Text("w"), Tensor({1}, "0")}),
           Text("param_shapes"),
           arena().List({arena().Dict({Text("w"), MakeInts(arena(), {1})})})}),
      {"x"});
  for (int rank = 0; rank < 2; ++rank) {
    const int64_t length = rank == 0 ? 1 : 0;
    files_.Add(
        absl::StrCat("zero_pp_rank_", rank, "_mp_rank_00_optim_states.pt"),
        arena().Dict(
            {Text(kState),
             arena().Dict(
                 {Text("zero_stage"), Value::Int(1), Text("partition_count"),
                  arena().List({Value::Int(2)}), Text("group_paddings"),
                  arena().List({Value::Int(1 + rank)}),
                  Text("single_partition_of_fp32_groups"),
                  arena().List({Tensor({length}, "0")}),
                  Text("base_optimizer_state"),
                  arena().List({arena().Dict(
                      {Text("exp_avg"), Tensor({length}, "1")})})})}),
        {rank == 0 ? "a" : "", rank == 0 ? "d" : ""});
  }
  ASSERT_OK_AND_ASSIGN(const std::unique_ptr<Checkpoint> checkpoint,
                       OpenCheckpoint(files_.Write(dir_)));
  ASSERT_OK_AND_ASSIGN(const Bytes found, LoadAll(*checkpoint));
  EXPECT_EQ(found,
            (Bytes{{"model.w", "a"}, {"optimizer.state.w.exp_avg", "d"}}));
}

TEST_F(SmallDeepSpeedTest, OtherPicklesAreRefused) {
  files_.Add("mp_rank_00_model_states.pt", arena().List({Value::Int(1)}), {});
  EXPECT_THAT(OpenCheckpoint(files_.Write(dir_)),
              StatusIs(StatusCode::kDataLoss, HasSubstr("module is missing")));
  files_.Clear();
  files_.Add("mp_rank_00_model_states.pt",
             arena().Dict({Text("module"), Value::Int(1)}), {});
  EXPECT_THAT(OpenCheckpoint(files_.Write(dir_)),
              StatusIs(StatusCode::kDataLoss, HasSubstr("not a state dict")));
}

}  // namespace
}  // namespace dcp
