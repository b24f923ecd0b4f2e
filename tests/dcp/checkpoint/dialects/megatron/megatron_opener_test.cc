// SPDX-License-Identifier: Apache-2.0

#include "dcp/checkpoint/dialects/megatron/megatron_opener.h"

#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "dcp/base/bytes.h"
#include "dcp/base/status.h"
#include "dcp/checkpoint/convert/convert.h"
#include "dcp/checkpoint/formats/item_locator.h"
#include "dcp/checkpoint/open/checkpoint.h"
#include "dcp/checkpoint/verify/verify.h"
#include "dcp/format/pickle/pickle_globals.h"
#include "dcp/format/pickle/pickle_reader.h"
#include "dcp/format/pickle/pickle_writer.h"
#include "dcp/format/value/value_lookup.h"
#include "dcp/tensor/placement.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/dcp/checkpoint/fixtures.h"
#include "tests/testing/golden.h"
#include "tests/testing/sha256.h"
#include "tests/testing/status_matchers.h"
#include "tests/testing/temp_dir.h"

namespace dcp {
namespace {

using absl::StatusCode;
using ::dcp::testing::CopyGolden;
using ::dcp::testing::Disk;
using ::dcp::testing::GetEntry;
using ::dcp::testing::GoldenCase;
using ::dcp::testing::LoadAll;
using ::dcp::testing::ReadGoldenCase;
using ::dcp::testing::Sha256;
using ::dcp::testing::StatusIs;
using ::dcp::testing::TempDir;
using ::testing::AllOf;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::Field;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Pair;

constexpr const char* kCases[] = {
    "dialects/megatron/new_tp2_pp2", "dialects/megatron/new_singleton_tp2",
    "dialects/megatron/new_buckets_dp2", "dialects/megatron_0.12/flat_tp2_dp2",
    "dialects/megatron_0.15/flat_tp2_dp2"};
constexpr const char* kReformulated = kCases[4];

absl::StatusOr<std::unique_ptr<Checkpoint>> OpenMegatron(
    const std::string& path, const DialectOptions& dialect = {}) {
  OpenOptions options;
  options.dialect = dialect;
  return Checkpoint::Open(Disk(), path, options);
}

using Tensors = std::map<std::string, std::string>;

absl::StatusOr<Tensors> Read(const std::string& path,
                             const DialectOptions& dialect = {}) {
  DCP_ASSIGN_OR_RETURN(const std::unique_ptr<Checkpoint> checkpoint,
                       OpenMegatron(path, dialect));
  DCP_RETURN_IF_ERROR(checkpoint->LocateAll());
  return LoadAll(*checkpoint);
}

TEST(MegatronOpener, LayersCanBecomeSeparateTensors) {
  for (const char* name : kCases) {
    SCOPED_TRACE(name);
    const TempDir dir;
    const GoldenCase golden = ReadGoldenCase(name);
    ASSERT_FALSE(golden.unstacked.empty());
    ASSERT_OK_AND_ASSIGN(Tensors tensors,
                         Read(CopyGolden(dir, name), {.unstack_layers = true}));
    for (const auto& [fqn, digest] : golden.unstacked) {
      // With singletons, the halves of gated weights have separate names.
      const std::string bytes =
          tensors.contains(fqn)
              ? tensors[fqn]
              : absl::StrCat(tensors[absl::StrCat(fqn, "_w")],
                             tensors[absl::StrCat(fqn, "_v")]);
      EXPECT_EQ(Sha256(bytes), digest) << fqn;
    }
    EXPECT_FALSE(tensors.contains("decoder.layers.mlp.linear_fc2.weight"));
  }
}

TEST(MegatronOpener, ReportsDialectAndProperties) {
  const TempDir dir;
  ASSERT_OK_AND_ASSIGN(const auto sharded,
                       OpenMegatron(CopyGolden(dir, kCases[0])));
  EXPECT_EQ(sharded->dialect(), Dialect::kMegatron);
  EXPECT_THAT(
      sharded->properties(),
      AllOf(Contains(Pair("dialect", "megatron")), Contains(Pair("step", "7")),
            Contains(Pair("mesh", "pipeline=2,tensor=2"))));
  ASSERT_OK_AND_ASSIGN(const auto flat,
                       OpenMegatron(CopyGolden(dir, kReformulated)));
  EXPECT_THAT(flat->properties(),
              Contains(Pair("optimizer", "fully_sharded_model_space")));
  ASSERT_OK_AND_ASSIGN(const auto buckets,
                       OpenMegatron(CopyGolden(dir, kCases[2])));
  EXPECT_THAT(buckets->losses(),
              Contains(Field(&SourceLoss::text, HasSubstr("flat buffers"))));
}

TEST(MegatronOpener, ObjectsKeepTheirNames) {
  const TempDir dir;
  ASSERT_OK_AND_ASSIGN(const auto checkpoint,
                       OpenMegatron(CopyGolden(dir, kCases[0])));
  ASSERT_OK(checkpoint->LocateAll());
  EXPECT_EQ(checkpoint->Find("common_state/shard_0_1"), std::nullopt);
  const ObjectEntry& rng =
      *GetEntry(*checkpoint, "rng_state/shard_1.0_2.2").object();
  EXPECT_TRUE(rng.value.is(Value::Kind::kList)) << ToString(rng.value);
  EXPECT_EQ(rng.tensors.size(), 1u);
  const ObjectEntry& arguments = *GetEntry(*checkpoint, "common.args").object();
  EXPECT_OK(arguments.unreadable);
  EXPECT_THAT(ToString(arguments, 60), HasSubstr("argparse.Namespace"));
}

TEST(MegatronOpener, NamesOfTorchOptimizers) {
  const TempDir dir;
  for (const char* name : {kCases[0], kReformulated}) {
    const std::string path = CopyGolden(dir, name);
    ASSERT_OK_AND_ASSIGN(Tensors stored, Read(path, {.unstack_layers = true}));
    ASSERT_OK_AND_ASSIGN(const auto checkpoint,
                         OpenMegatron(path, {.unstack_layers = true,
                                             .torch_optimizer_names = true}));
    ASSERT_OK(checkpoint->LocateAll());
    ASSERT_OK_AND_ASSIGN(Tensors named, LoadAll(*checkpoint));
    EXPECT_EQ(named.size(), stored.size() * 3 / 4);
    for (const auto& [fqn, bytes] : named) {
      const std::vector<std::string> parts = absl::StrSplit(fqn, '.');
      const std::string rest = fqn.substr(fqn.find('.') + 1);
      if (parts[0] == "model") {
        EXPECT_EQ(bytes, stored["optimizer.state.fp32_param." + rest]) << fqn;
        continue;
      }
      const std::string key = rest.substr(6, rest.rfind('.') - 6);
      EXPECT_EQ(bytes, stored["optimizer.state." + parts.back() + "." + key])
          << fqn;
    }
    const CheckpointEntry& step =
        GetEntry(*checkpoint,
                 "optimizer.state.decoder.layers.3.mlp.linear_fc2.weight.step");
    EXPECT_EQ(step.object()->value.int_value(), 7);
    EXPECT_THAT(step.path,
                ElementsAre("optimizer", "state",
                            "decoder.layers.3.mlp.linear_fc2.weight", "step"));
  }
}

TEST(MegatronOpener, EveryItemIsVerified) {
  for (const bool unstack : {false, true}) {
    for (const char* name : kCases) {
      SCOPED_TRACE(name);
      const TempDir dir;
      VerifyOptions options;
      options.open.dialect.unstack_layers = unstack;
      ASSERT_OK_AND_ASSIGN(
          const VerifyReport report,
          VerifyCheckpoint(Disk(), CopyGolden(dir, name), std::move(options)));
      EXPECT_THAT(report.findings, IsEmpty());
      EXPECT_EQ(report.num_items_unchecked, 0u);
      EXPECT_GT(report.num_crcs_checked, 0u);
    }
  }
}

TEST(MegatronOpener, EachItemIsReadOnce) {
  for (const char* name : {kCases[0], kReformulated}) {
    SCOPED_TRACE(name);
    const TempDir dir;
    ASSERT_OK_AND_ASSIGN(
        const auto checkpoint,
        OpenMegatron(CopyGolden(dir, name), {.unstack_layers = true}));
    size_t num_chunks = 0;
    for (const CheckpointEntry& entry : checkpoint->entries()) {
      if (entry.tensor() != nullptr) num_chunks += entry.tensor()->boxes.size();
      if (entry.object() != nullptr) num_chunks += !entry.object()->located;
    }
    size_t num_items = 0;
    size_t num_chunks_seen = 0;
    std::set<std::pair<uint32_t, uint64_t>> places;
    ASSERT_OK(checkpoint->LocateAll({}, [&](const VisitedItem& item) {
      ++num_items;
      num_chunks_seen += item.chunks.size();
      places.emplace(item.chunks[0].storage.file,
                     item.chunks[0].storage.offset);
    }));
    EXPECT_EQ(num_chunks_seen, num_chunks);
    EXPECT_EQ(num_items, places.size());
  }
}

// One bit in one item, from which several boxes are made.
TEST(MegatronOpener, DamageIsFoundOnce) {
  const TempDir dir;
  const std::string path = CopyGolden(dir, kReformulated);
  ASSERT_OK_AND_ASSIGN(const auto checkpoint, OpenMegatron(path));
  ASSERT_OK(checkpoint->LocateAll());
  const CheckpointEntry& entry =
      GetEntry(*checkpoint,
               "optimizer.state.exp_avg.decoder.layers.mlp.linear_fc1."
               "weight");
  ASSERT_FALSE(entry.tensor()->parts.empty());
  const ChunkLocation& location = entry.tensor()->locations[0];
  const std::string file =
      absl::StrCat("dialects/megatron_0.15/flat_tp2_dp2/",
                   checkpoint->files().names()[location.item.file]);
  std::string bytes = testing::ReadFile(dir.Join(file));
  bytes[location.payload_offset] ^= 1;
  dir.WriteFile(file, bytes);
  ASSERT_OK_AND_ASSIGN(const VerifyReport report,
                       VerifyCheckpoint(Disk(), path, {}));
  ASSERT_EQ(report.findings.size(), 1u);
  EXPECT_EQ(report.findings[0].name, entry.fqn);
}

TEST(MegatronOpener, ThePointerOfTheParentIsFollowed) {
  const TempDir dir;
  const std::string path = CopyGolden(dir, kCases[0]);
  std::filesystem::rename(path, dir.Join("iter_0000007"));
  dir.WriteFile("latest_checkpointed_iteration.txt", "7");
  ASSERT_OK_AND_ASSIGN(const auto checkpoint, OpenMegatron(dir.path()));
  EXPECT_THAT(checkpoint->properties(),
              AllOf(Contains(Pair("dialect", "megatron")),
                    Contains(Pair("followed", HasSubstr("iter_0000007")))));
  EXPECT_OK(OpenMegatron(dir.path(), {.from = Dialect::kMegatron}));
}

TEST(MegatronOpener, ASaveThatDidNotFinishIsRefused) {
  for (const char* name : kCases) {
    SCOPED_TRACE(name);
    const TempDir dir;
    const std::string path = CopyGolden(dir, name);
    std::filesystem::remove(absl::StrCat(path, "/metadata.json"));
    EXPECT_THAT(
        OpenMegatron(path),
        StatusIs(StatusCode::kNotFound, HasSubstr("the save did not finish")));
    ASSERT_OK_AND_ASSIGN(const auto megatron,
                         OpenMegatron(path, {.from = Dialect::kMegatron}));
    EXPECT_TRUE(megatron->Find("common.iteration").has_value());
    EXPECT_OK(OpenMegatron(path, {.from = Dialect::kDcp}));
  }
}

// To DCP on several meshes and without one; reads them back.
TEST(MegatronOpener, ConvertsWithoutLoss) {
  const struct {
    const char* name;
    bool unstack;
    const char* mesh;
  } cases[] = {{kCases[0], false, ""},
               {kCases[0], true, "shard=3"},
               {kReformulated, false, ""},
               {kReformulated, false, "shard=3"},
               {kReformulated, true, "replicate=2,shard=2"}};
  for (const auto& test : cases) {
    SCOPED_TRACE(absl::StrCat(test.name, " ", test.mesh));
    const TempDir dir;
    const std::string path = CopyGolden(dir, test.name);
    ConvertOptions options;
    options.open.dialect.unstack_layers = test.unstack;
    ASSERT_OK_AND_ASSIGN(const Tensors stored,
                         Read(path, options.open.dialect));
    if (*test.mesh != 0) {
      ASSERT_OK_AND_ASSIGN(options.mesh, ParseMesh(test.mesh));
    }
    ASSERT_OK_AND_ASSIGN(
        const ConvertPlan plan,
        ConvertCheckpoint(Disk(), path, dir.Join("dcp"), std::move(options)));
    EXPECT_THAT(plan.dropped, IsEmpty());
    EXPECT_EQ(plan.num_tensors, stored.size());
    ASSERT_OK_AND_ASSIGN(const auto written, OpenMegatron(dir.Join("dcp")));
    ASSERT_OK(written->LocateAll());
    ASSERT_OK_AND_ASSIGN(const Tensors read, LoadAll(*written));
    EXPECT_EQ(read, stored);
    EXPECT_EQ(GetEntry(*written, "common.opt_param_scheduler.num_steps")
                  .object()
                  ->value.int_value(),
              7);
  }
}

TEST(MegatronOpener, PartsOfItemsCountAsMemory) {
  const TempDir dir;
  const std::string path = CopyGolden(dir, kCases[0]);
  ASSERT_OK_AND_ASSIGN(const ConvertPlan stacked,
                       PlanConvert(Disk(), path, dir.Join("dcp"), {}));
  ConvertOptions options;
  options.open.dialect.unstack_layers = true;
  ASSERT_OK_AND_ASSIGN(
      const ConvertPlan unstacked,
      PlanConvert(Disk(), path, dir.Join("dcp"), std::move(options)));
  // Every chunk in a layer was one chunk before.
  EXPECT_EQ((unstacked.index_bytes - stacked.index_bytes) % sizeof(ItemPart),
            0u);
  EXPECT_GT(unstacked.index_bytes, stacked.index_bytes);
}

// Programs may keep values of any class next to the state.
TEST(MegatronOpener, OpaqueValuesAreNotWritten) {
  const TempDir dir;
  testing::DcpBuilder builder;
  builder.StartFile("__0_0.distcp");
  builder.AddTensor("w", DType::kFloat32, {1}, "1234");
  const std::string path = builder.Write(dir, "src");
  dir.WriteFile("src/metadata.json", R"({"sharded_backend": "torch_dist"})");
  ValueArena arena;
  const Value config =
      arena.New(arena.Global("megatron.training", "Config"), arena.Tuple({}));
  dir.WriteFile("src/common.pt",
                testing::TorchArchiveBytes(
                    arena.Dict({arena.Str("args"), config,
                                arena.Str("iteration"), Value::Int(3)}),
                    {}));
  ASSERT_OK_AND_ASSIGN(const auto source, OpenMegatron(path));
  EXPECT_EQ(ToString(*GetEntry(*source, "common.args").object(), 100),
            "<megatron.training.Config>");
  for (const char* to : {"dcp", "one.pt"}) {
    SCOPED_TRACE(to);
    ASSERT_OK_AND_ASSIGN(const ConvertPlan plan,
                         ConvertCheckpoint(Disk(), path, dir.Join(to), {}));
    EXPECT_THAT(plan.dropped, ElementsAre("common.args"));
    ASSERT_OK_AND_ASSIGN(const auto written, OpenMegatron(dir.Join(to)));
    EXPECT_EQ(written->Find("common.args"), std::nullopt);
    EXPECT_TRUE(written->Find("common.iteration").has_value());
  }
}

// Transformer Engine's state is a byte stream.
TEST(MegatronOpener, StreamsOfBytesAreCarried) {
  const TempDir dir;
  ValueArena arena;
  const Value stream =
      arena.New(arena.Global("_io", "BytesIO"), arena.Tuple({}));
  arena.SetState(stream,
                 arena.Tuple({arena.Bytes("state"), Value::Int(0), Value()}));
  constexpr absl::string_view kName = "x._extra_state/shard_0_1";
  testing::DcpBuilder builder;
  builder.StartFile("__0_0.distcp");
  builder.AddTensor("w", DType::kFloat32, {1}, "1234");
  builder.AddObject(kName, testing::ObjectItem(arena.List({stream})));
  const std::string path = builder.Write(dir, "src");
  dir.WriteFile("src/metadata.json", R"({"sharded_backend": "torch_dist"})");
  ASSERT_OK(ConvertCheckpoint(Disk(), path, dir.Join("dcp"), {}));
  for (const std::string& at : {path, dir.Join("dcp")}) {
    ASSERT_OK_AND_ASSIGN(const auto checkpoint, OpenMegatron(at));
    ASSERT_OK(checkpoint->LocateAll());
    const ObjectEntry& object = *GetEntry(*checkpoint, kName).object();
    EXPECT_OK(object.unreadable);
    EXPECT_TRUE(DeepEqual(object.value, arena.List({stream})));
  }
}

// A change to a checkpoint's index, and the error that it must cause.
struct MegatronCorruption {
  const char* name;
  std::function<void(ValueArena&, const Value& root)> change;
  const char* message;
};

constexpr absl::string_view kMegatronTensor =
    "optimizer.state.exp_avg.embedding.word_embeddings.weight";

// Records `shape` for a tensor with shape [16, 8], stored as [2, 1, 64].
std::function<void(ValueArena&, const Value&)> SetShape(
    std::vector<int64_t> shape) {
  return [shape](ValueArena& arena, const Value& root) {
    std::vector<Value> dims;
    for (const int64_t dim : shape) dims.push_back(Value::Int(dim));
    arena.Update(ObjectAttribute(root, "mcore_data"),
                 {arena.Str(kMegatronTensor),
                  arena.Dict({arena.Str("nd_reformulated_orig_global_shape"),
                              arena.Tuple(dims)})});
  };
}

const MegatronCorruption kCorruptions[] = {
    {"does not divide", SetShape({15, 8}),
     "2 equal blocks do not make up 15 in dimension 0"},
    {"negative", SetShape({-16, 8}), "a shape has an unexpected value"},
    {"huge", SetShape({int64_t{1} << 62, int64_t{1} << 62}), "exceeds 64 bits"},
    {"more elements than are stored", SetShape({int64_t{1} << 40, 8}),
     "does not have 64 elements"},
    {"too many dimensions", SetShape({16, 8, 1}), "one dimension more"},
    {"no dimensions", SetShape({}), "one dimension more"},
    {"65 dimensions", SetShape(std::vector<int64_t>(65, 1)),
     "a shape has an unexpected value"},
    {"no dict",
     [](ValueArena& arena, const Value& root) {
       arena.Update(ObjectAttribute(root, "mcore_data"),
                    {arena.Str(kMegatronTensor), arena.List()});
     },
     "mcore_data of"},
};

// Changes the index in the checkpoint at `path`, which is `name` in `dir`.
void EditMegatronIndex(
    const TempDir& dir, const std::string& name,
    const std::function<void(ValueArena&, const Value&)>& change) {
  const std::string index = absl::StrCat(name, "/.metadata");
  const std::string bytes = testing::ReadFile(dir.Join(index));
  ValueArena arena;
  ASSERT_OK_AND_ASSIGN(
      const PickleResult pickle,
      ReadPickle(AsBytes(bytes), {.allow_global = IsMetadataGlobal}, arena));
  change(arena, pickle.root);
  std::filesystem::remove(dir.Join(index));
  dir.WriteFile(index, WritePickle(pickle.root));
}

TEST(MegatronOpener, RefusesFalseShapes) {
  for (const MegatronCorruption& corruption : kCorruptions) {
    SCOPED_TRACE(corruption.name);
    const TempDir dir;
    const std::string path = CopyGolden(dir, kReformulated);
    EditMegatronIndex(dir, kReformulated, corruption.change);
    EXPECT_THAT(OpenMegatron(path),
                StatusIs(StatusCode::kDataLoss, HasSubstr(corruption.message)));
    EXPECT_THAT(OpenMegatron(path).status().message(),
                AllOf(HasSubstr(path), HasSubstr(kMegatronTensor)));
  }
}

}  // namespace
}  // namespace dcp
