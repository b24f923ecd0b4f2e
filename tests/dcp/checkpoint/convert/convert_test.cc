#include "dcp/checkpoint/convert/convert.h"

#include <cerrno>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <limits>
#include <memory>
#include <stop_token>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "dcp/base/bytes.h"
#include "dcp/base/limits.h"
#include "dcp/checkpoint/diff.h"
#include "dcp/checkpoint/load.h"
#include "dcp/checkpoint/save/coordinator.h"
#include "dcp/checkpoint/save/save.h"
#include "dcp/checkpoint/verify.h"
#include "dcp/format/torch_archive.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/dcp/checkpoint/fixtures.h"
#include "tests/testing/sample_state.h"
#include "tests/testing/sim_storage.h"
#include "tests/testing/status_matchers.h"
#include "tests/testing/temp_dir.h"

namespace dcp {
namespace {

using ::dcp::testing::MemorySink;
using ::dcp::testing::SampleState;
using ::dcp::testing::SampleTensor;
using ::dcp::testing::SimStorage;
using ::dcp::testing::StatusIs;
using ::testing::AllOf;
using ::testing::AnyOf;
using ::testing::Eq;
using ::testing::HasSubstr;

void SaveAll(FileSystem& fs, absl::string_view path,
             const std::vector<SampleTensor>& tensors) {
  SampleState state;
  for (const SampleTensor& tensor : tensors) state.Add(tensor);
  SingleProcessCoordinator coordinator;
  ASSERT_OK(Save(fs, path, state.state(), coordinator, {}));
}

void ExpectSame(FileSystem& fs, absl::string_view a, absl::string_view b) {
  const auto report = DiffCheckpoints(fs, a, b, {});
  ASSERT_OK(report);
  for (const DiffFinding& finding : report->findings) {
    ADD_FAILURE() << finding.name << ": " << finding.in_a << " and "
                  << finding.in_b;
  }
  const auto verified = VerifyCheckpoint(fs, b, {});
  ASSERT_OK(verified);
  EXPECT_EQ(verified->findings.size(), 0u);
}

std::vector<SampleTensor> SmallModel() {
  return {SampleTensor("a", DType::kFloat32, {8, 6}),
          SampleTensor("b", DType::kBFloat16, {5, 3, 2}),
          SampleTensor("c", DType::kInt64, {})};
}

// A mixture of two states must not become a checkpoint whose checksums are
// right.
TEST(Convert, ASourceThatIsWrittenToPublishesNothing) {
  const testing::TempDir dir;
  FileSystem& fs = testing::Disk();
  SaveAll(fs, dir.Join("src"), SmallModel());
  for (const char* name : {"dcp", "one.safetensors", "one.pt"}) {
    SCOPED_TRACE(name);
    ConvertOptions options;
    options.on_plan = [&](const ConvertPlan&) {
      for (const auto& file :
           std::filesystem::directory_iterator(dir.Join("src"))) {
        if (file.path().extension() != ".distcp") continue;
        std::filesystem::last_write_time(
            file.path(), file.last_write_time() + std::chrono::seconds(1));
      }
    };
    const auto plan = ConvertCheckpoint(fs, dir.Join("src"), dir.Join(name),
                                        std::move(options));
    EXPECT_THAT(plan, StatusIs(absl::StatusCode::kUnavailable,
                               HasSubstr("changed while it was read")));
    EXPECT_EQ(SideOf(plan.status()), ErrorSide::kSource);
    EXPECT_EQ(fs.List(dir.path())->size(), 1u);
  }
  // Nothing writes to it any more.
  EXPECT_OK(ConvertCheckpoint(fs, dir.Join("src"), dir.Join("dcp"), {}));
}

// Rows in, columns out: each output file needs a part of every row.
void ExpectSourceReadOnce(absl::string_view mesh, absl::string_view placements,
                          uint64_t memory_bytes) {
  SCOPED_TRACE(absl::StrCat(mesh, " ", placements, " ", memory_bytes));
  SimStorage fs;
  const std::vector<SampleTensor> tensors = {
      SampleTensor("a", DType::kFloat32, {1024, 2048}),
      SampleTensor("b", DType::kFloat32, {2048, 1024}),
      SampleTensor("c", DType::kBFloat16, {1000, 4000})};
  uint64_t num_bytes = 0;
  for (const SampleTensor& tensor : tensors) num_bytes += tensor.bytes.size();
  SaveAll(fs, "/full", tensors);
  TransferStats stats;
  ConvertOptions options;
  options.mesh = *ParseMesh(mesh);
  options.placements = {{"*", *ParsePlacements(placements)}};
  options.memory_bytes = memory_bytes;
  options.stats = &stats;
  ASSERT_OK(ConvertCheckpoint(fs, "/full", "/parts", std::move(options)));
  EXPECT_LE(static_cast<double>(stats.bytes_read.load()),
            1.2 * static_cast<double>(num_bytes));
  ExpectSame(fs, "/full", "/parts");
}

TEST(Convert, ReadsTheSourceOnceWhenItCutsColumns) {
  ExpectSourceReadOnce("tp=8", "S(1)", kDefaultMemoryBytes);
}

TEST(Convert, ReadsTheSourceOnceOnATwoDimensionalMesh) {
  ExpectSourceReadOnce("dp=2,tp=2", "S(0),S(1)", kDefaultMemoryBytes);
}

TEST(Convert, EveryMeshAndBackIsTheSame) {
  for (const auto& [mesh, placements] :
       std::vector<std::pair<std::string, std::string>>{
           {"x=3", "S(0)"},
           {"x=4", "S(1)"},
           {"x=2", "R"},
           {"d=2,t=2", "S(0),S(1)"}}) {
    SCOPED_TRACE(absl::StrCat(mesh, " ", placements));
    SimStorage fs({.percent_short = 20, .percent_interrupted = 20});
    SaveAll(fs, "/a", SmallModel());
    ConvertOptions options;
    options.mesh = *ParseMesh(mesh);
    options.placements = {{"[ab]", *ParsePlacements(placements)}};
    ASSERT_OK(ConvertCheckpoint(fs, "/a", "/b", std::move(options)));
    ExpectSame(fs, "/a", "/b");
    ConvertOptions back;
    back.consolidate = true;
    ASSERT_OK(ConvertCheckpoint(fs, "/b", "/c", std::move(back)));
    ExpectSame(fs, "/a", "/c");
  }
}

TEST(Convert, ReshardsInPlace) {
  SimStorage fs;
  SaveAll(fs, "/a", SmallModel());
  SaveAll(fs, "/expected", SmallModel());
  ConvertOptions options;
  options.mesh = *ParseMesh("x=2");
  options.overwrite = true;
  ASSERT_OK(ConvertCheckpoint(fs, "/a", "/a", std::move(options)));
  ExpectSame(fs, "/expected", "/a");
}

TEST(Convert, GoesThroughEveryFormatAndBack) {
  for (const std::string name :
       {"/m.safetensors", "/m.pt", "/directory", "/sharded"}) {
    SCOPED_TRACE(name);
    SimStorage fs;
    SaveAll(fs, "/a", SmallModel());
    ConvertOptions options;
    if (name[1] != 'm') options.to = Format::kSafetensors;
    if (name == "/sharded") options.max_shard_bytes = 100;
    ASSERT_OK(ConvertCheckpoint(fs, "/a", name, std::move(options)));
    ConvertOptions back;
    back.to = Format::kDcp;
    ASSERT_OK(ConvertCheckpoint(fs, name, "/back", std::move(back)));
    ExpectSame(fs, "/a", "/back");
  }
}

std::string LoadBytes(FileSystem& fs, absl::string_view path,
                      const std::string& fqn, DType dtype, const Dims& shape) {
  auto checkpoint = Checkpoint::Open(fs, path, {});
  EXPECT_OK(checkpoint);
  if (!checkpoint.ok()) return "";
  MemorySink sink(static_cast<uint64_t>(Volume(shape)) * ElementSize(dtype));
  EXPECT_OK(Load(fs, **checkpoint,
                 {{.fqn = fqn,
                   .dtype = dtype,
                   .shape = shape,
                   .box = WholeBox(shape),
                   .sink = &sink}},
                 {}));
  return sink.bytes();
}

TEST(Convert, CastsToBFloat16) {
  SimStorage fs;
  SampleTensor tensor("w", DType::kFloat32, {3});
  const float values[3] = {1.0f, -2.5f, 3.14159265f};
  std::memcpy(tensor.bytes.data(), values, sizeof(values));
  SaveAll(fs, "/a", {tensor});
  ConvertOptions options;
  options.selection.casts = {"bf16"};
  ASSERT_OK(ConvertCheckpoint(fs, "/a", "/b", std::move(options)));
  const std::string bytes = LoadBytes(fs, "/b", "w", DType::kBFloat16, Dims{3});
  ASSERT_EQ(bytes.size(), 6u);
  const auto* data = reinterpret_cast<const uint8_t*>(bytes.data());
  EXPECT_EQ(LoadLittleEndian<uint16_t>(data), 0x3f80);
  EXPECT_EQ(LoadLittleEndian<uint16_t>(data + 2), 0xc020);
  EXPECT_EQ(LoadLittleEndian<uint16_t>(data + 4), 0x4049);
}

SampleTensor TensorOf(absl::string_view name, std::vector<float> values) {
  SampleTensor tensor(std::string(name), DType::kFloat32,
                      {static_cast<int64_t>(values.size())});
  std::memcpy(tensor.bytes.data(), values.data(), tensor.bytes.size());
  return tensor;
}

ConvertOptions ToDirectory() {
  ConvertOptions options;
  options.to = Format::kSafetensors;
  return options;
}

using Metadata = std::vector<std::pair<std::string, std::string>>;

Metadata MetadataOf(FileSystem& fs, absl::string_view path) {
  const auto checkpoint = Checkpoint::Open(fs, path, {});
  EXPECT_OK(checkpoint);
  return checkpoint.ok() ? (*checkpoint)->metadata() : Metadata();
}

void WriteSmallSafetensors(FileSystem& fs, absl::string_view path,
                           absl::string_view tensor, const Metadata& metadata) {
  ASSERT_OK(WriteFile(
      fs, path,
      testing::SafetensorsBytes(
          {{std::string(tensor), DType::kUInt8, {2}, "ab"}}, metadata)));
}

TEST(Convert, KeepsTheMetadataOfSafetensors) {
  SimStorage fs;
  WriteSmallSafetensors(fs, "/a.safetensors", "w",
                        {{"format", "mlx"}, {"license", "mit"}});
  for (const std::string dst : {"/b.safetensors", "/directory"}) {
    SCOPED_TRACE(dst);
    const auto plan = ConvertCheckpoint(fs, "/a.safetensors", dst, {});
    ASSERT_OK(plan);
    EXPECT_TRUE(plan->dropped_metadata.empty());
    EXPECT_EQ(MetadataOf(fs, dst),
              (Metadata{{"format", "mlx"}, {"license", "mit"}}));
    ExpectSame(fs, "/a.safetensors", dst);
  }
}

TEST(Convert, SetsAndDropsMetadata) {
  SimStorage fs;
  WriteSmallSafetensors(fs, "/a.safetensors", "w",
                        {{"license", "mit"}, {"base", "x"}});
  ConvertOptions set;
  set.metadata = {{"base", "y"}, {"new", "1"}};
  ASSERT_OK(ConvertCheckpoint(fs, "/a.safetensors", "/set.safetensors",
                              std::move(set)));
  EXPECT_EQ(
      MetadataOf(fs, "/set.safetensors"),
      (Metadata{
          {"format", "pt"}, {"license", "mit"}, {"base", "y"}, {"new", "1"}}));
  ConvertOptions drop;
  drop.drop_metadata = true;
  drop.metadata = {{"new", "1"}};
  const auto plan = ConvertCheckpoint(fs, "/a.safetensors", "/drop.safetensors",
                                      std::move(drop));
  ASSERT_OK(plan);
  EXPECT_EQ(plan->dropped_metadata,
            (std::vector<std::string>{"license", "base"}));
  EXPECT_EQ(MetadataOf(fs, "/drop.safetensors"),
            (Metadata{{"format", "pt"}, {"new", "1"}}));
}

TEST(Convert, SaysWhichMetadataTheOutputCannotHold) {
  SimStorage fs;
  WriteSmallSafetensors(fs, "/a.safetensors", "w",
                        {{"format", "pt"}, {"license", "mit"}});
  const auto plan = ConvertCheckpoint(fs, "/a.safetensors", "/b.pt", {});
  ASSERT_OK(plan);
  EXPECT_EQ(plan->dropped_metadata, std::vector<std::string>{"license"});
  ConvertOptions set;
  set.metadata = {{"license", "mit"}};
  EXPECT_THAT(
      ConvertCheckpoint(fs, "/a.safetensors", "/c.pt", std::move(set)),
      StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("'license'")));
}

// The bytes that a stream received; it refuses those after `most` bytes.
struct Received {
  std::string bytes;
  size_t most = SIZE_MAX;

  ByteStream stream() {
    return [this](ByteSpan more) -> absl::Status {
      if (bytes.size() + more.size() > most) {
        return absl::AbortedError("nobody reads");
      }
      bytes.append(reinterpret_cast<const char*>(more.data()), more.size());
      return absl::OkStatus();
    };
  }
};

TEST(Convert, StreamsWhatItWouldWrite) {
  SimStorage fs;
  std::vector<float> values(3 << 20);  // some blocks
  for (size_t i = 0; i < values.size(); ++i) {
    values[i] = static_cast<float>(i);
  }
  ASSERT_OK(WriteFile(
      fs, "/a.safetensors",
      testing::SafetensorsBytes({{"w",
                                  DType::kFloat32,
                                  {static_cast<int64_t>(values.size())},
                                  testing::BytesOf<float>(values)},
                                 {"x", DType::kUInt8, {3}, "abc"}})));
  for (const Format to : {Format::kSafetensors, Format::kTorch}) {
    SCOPED_TRACE(FormatName(to));
    Received received;
    TransferStats stats;
    ConvertOptions options;
    if (to == Format::kTorch) options.to = to;
    options.stream = received.stream();
    options.stats = &stats;
    options.num_lanes = 2;
    options.memory_bytes = kMinMemoryBytes;
    const auto plan =
        ConvertCheckpoint(fs, "/a.safetensors", "-", std::move(options));
    ASSERT_OK(plan);
    EXPECT_EQ(plan->to, to);
    EXPECT_EQ(received.bytes.size(), plan->bytes_to_write);
    EXPECT_EQ(stats.bytes_written, plan->bytes_to_write);
    const std::string copy = absl::StrCat("/copy-", FormatName(to));
    ASSERT_OK(WriteFile(fs, copy, received.bytes));
    ExpectSame(fs, "/a.safetensors", copy);
    EXPECT_THAT(fs.Stat("-"), StatusIs(absl::StatusCode::kNotFound));
  }
}

TEST(Convert, AStreamOfADamagedSourceIsNotWhole) {
  SimStorage fs;
  WriteSmallSafetensors(fs, "/a.safetensors", "w", {});
  ASSERT_OK(ConvertCheckpoint(fs, "/a.safetensors", "/d", ToDirectory()));
  const auto sound = ReadFile(fs, "/d/model.safetensors", 1 << 20, false);
  ASSERT_OK(sound);
  std::string damaged = *sound;
  damaged.back() ^= 1;
  ASSERT_OK(fs.Remove("/d/model.safetensors"));
  ASSERT_OK(WriteFile(fs, "/d/model.safetensors", damaged));
  Received received;
  ConvertOptions options;
  options.stream = received.stream();
  EXPECT_THAT(ConvertCheckpoint(fs, "/d", "-", std::move(options)),
              StatusIs(absl::StatusCode::kDataLoss, HasSubstr("w")));
  ASSERT_OK(WriteFile(fs, "/copy", received.bytes));
  EXPECT_THAT(Checkpoint::Open(fs, "/copy", {}),
              StatusIs(absl::StatusCode::kDataLoss));
}

TEST(Convert, AStreamThatNobodyReadsEnds) {
  SimStorage fs;
  WriteSmallSafetensors(fs, "/a.safetensors", "w", {});
  Received received{.bytes = "", .most = 10};
  ConvertOptions options;
  options.stream = received.stream();
  const auto plan =
      ConvertCheckpoint(fs, "/a.safetensors", "-", std::move(options));
  EXPECT_THAT(plan, StatusIs(absl::StatusCode::kAborted));
  EXPECT_EQ(SideOf(plan.status()), ErrorSide::kDestination);
}

TEST(Convert, StreamsNoDirectory) {
  SimStorage fs;
  WriteSmallSafetensors(fs, "/a.safetensors", "w", {});
  Received received;
  ConvertOptions dcp;
  dcp.to = Format::kDcp;
  dcp.stream = received.stream();
  EXPECT_THAT(ConvertCheckpoint(fs, "/a.safetensors", "-", std::move(dcp)),
              StatusIs(absl::StatusCode::kInvalidArgument));
  ConvertOptions shards;
  shards.max_shard_bytes = 1;
  shards.stream = received.stream();
  EXPECT_THAT(ConvertCheckpoint(fs, "/a.safetensors", "-", std::move(shards)),
              StatusIs(absl::StatusCode::kInvalidArgument));
  EXPECT_TRUE(received.bytes.empty());
}

TEST(Convert, DigestsInAHeaderAreOfTheFileTheyAreIn) {
  SimStorage fs;
  WriteSmallSafetensors(fs, "/a.safetensors", "w", {{"license", "mit"}});
  ASSERT_OK(ConvertCheckpoint(fs, "/a.safetensors", "/b.safetensors", {}));
  ASSERT_OK(ConvertCheckpoint(fs, "/b.safetensors", "/c.safetensors", {}));
  // The same tensors, the same bytes, digests included.
  const auto b = ReadFile(fs, "/b.safetensors", 1 << 20, false);
  const auto c = ReadFile(fs, "/c.safetensors", 1 << 20, false);
  ASSERT_OK(b);
  ASSERT_OK(c);
  EXPECT_EQ(*b, *c);
  EXPECT_THAT(*b, HasSubstr("tessera_digests"));
  EXPECT_EQ(MetadataOf(fs, "/c.safetensors"),
            (Metadata{{"format", "pt"}, {"license", "mit"}}));
  // A name more, another digest; the old ones are not carried over.
  ConvertOptions renamed;
  renamed.selection.renames = {"s/w/longer/"};
  ASSERT_OK(ConvertCheckpoint(fs, "/b.safetensors", "/d.safetensors",
                              std::move(renamed)));
  const auto report = VerifyCheckpoint(fs, "/d.safetensors", {});
  ASSERT_OK(report);
  EXPECT_TRUE(report->findings.empty());
  EXPECT_EQ(report->num_digests_checked, 1u);
  ASSERT_OK(ConvertCheckpoint(fs, "/b.safetensors", "/e.pt", {}));
  const auto diff = DiffCheckpoints(fs, "/a.safetensors", "/b.safetensors", {});
  ASSERT_OK(diff);
  EXPECT_TRUE(std::none_of(
      diff->findings.begin(), diff->findings.end(),
      [](const auto& finding) { return finding.name == "tessera_digests"; }));
}

TEST(Convert, TheKeyOfDigestsIsReserved) {
  SimStorage fs;
  WriteSmallSafetensors(fs, "/a.safetensors", "w", {});
  ConvertOptions options;
  options.metadata = {{"tessera_digests", "x"}};
  EXPECT_THAT(ConvertCheckpoint(fs, "/a.safetensors", "/b.safetensors",
                                std::move(options)),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("tessera_digests")));
}

TEST(Convert, GathersTheMetadataOfShards) {
  SimStorage fs;
  ASSERT_OK(fs.MakeDirectory("/d"));
  WriteSmallSafetensors(fs, "/d/1.safetensors", "v",
                        {{"format", "pt"}, {"run", "7"}});
  WriteSmallSafetensors(fs, "/d/2.safetensors", "w",
                        {{"format", "pt"}, {"run", "8"}, {"more", "x"}});
  EXPECT_EQ(MetadataOf(fs, "/d"),
            (Metadata{{"format", "pt"}, {"run", "7"}, {"more", "x"}}));
  const auto checkpoint = Checkpoint::Open(fs, "/d", {});
  ASSERT_OK(checkpoint);
  EXPECT_EQ((*checkpoint)->properties().back(),
            (std::pair<std::string, std::string>(
                "metadata that differs between files", "run")));
}

// The help's own example, on the state of an optimizer.
TEST(Convert, PlacementPatternsLeaveScalarsReplicated) {
  SimStorage fs;
  SaveAll(fs, "/a", SmallModel());  // "c" is a scalar
  ConvertOptions options;
  options.mesh = *ParseMesh("x=2,y=2");
  options.placements = {{"*", *ParsePlacements("S(0),R")}};
  ASSERT_OK(ConvertCheckpoint(fs, "/a", "/b", std::move(options)));
  ExpectSame(fs, "/a", "/b");
  ConvertOptions named;
  named.mesh = *ParseMesh("x=2");
  named.placements = {{"c", *ParsePlacements("S(0)")}};
  EXPECT_THAT(ConvertCheckpoint(fs, "/a", "/d", std::move(named)),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("c")));
}

TEST(Convert, RefusesAPlacementThatMatchesNothing) {
  SimStorage fs;
  SaveAll(fs, "/a", SmallModel());
  ConvertOptions options;
  options.mesh = *ParseMesh("x=2");
  options.placements = {{"weigth*", *ParsePlacements("S(0)")}};
  EXPECT_THAT(ConvertCheckpoint(fs, "/a", "/b", std::move(options)),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("placement 'weigth*' matches no tensor")));
}

// PyTorch has done this since 2.15.
TEST(Convert, SaysWhichCastsAreBeyondTheRange) {
  SimStorage fs;
  const float infinity = std::numeric_limits<float>::infinity();
  SaveAll(fs, "/a",
          {TensorOf("small", {1, -448}), TensorOf("w", {465, 1, -infinity})});
  ConvertOptions options;
  options.selection.casts = {"float8_e4m3fn"};
  const auto plan = ConvertCheckpoint(fs, "/a", "/b", std::move(options));
  ASSERT_OK(plan);
  EXPECT_EQ(LoadBytes(fs, "/b", "w", DType::kFloat8E4M3FN, Dims{3}),
            "\x7e\x38\xfe");
  ASSERT_EQ(plan->cast_losses.size(), 1u);
  EXPECT_EQ(plan->cast_losses[0].name, "w");
  EXPECT_EQ(plan->cast_losses[0].dtype, DType::kFloat8E4M3FN);
  EXPECT_EQ(plan->cast_losses[0].num_beyond, 2u);
}

TEST(Convert, RefusesAStrictCastThatIsBeyondTheRange) {
  SimStorage fs;
  SaveAll(fs, "/a", {TensorOf("small", {1}), TensorOf("w", {1e30f})});
  for (const std::string dst : {"/b", "/b.pt", "/b.safetensors"}) {
    ConvertOptions options;
    options.selection.casts = {"fp16"};
    options.strict_cast = true;
    const auto refused = ConvertCheckpoint(fs, "/a", dst, std::move(options));
    EXPECT_THAT(refused, StatusIs(absl::StatusCode::kFailedPrecondition,
                                  HasSubstr("w (1 beyond float16)")));
    EXPECT_THAT(fs.Stat(dst), StatusIs(absl::StatusCode::kNotFound));
  }
  ConvertOptions fits;
  fits.selection.casts = {"small=fp16"};
  fits.strict_cast = true;
  EXPECT_OK(ConvertCheckpoint(fs, "/a", "/b", std::move(fits)));
}

// A tensor in a .pt file may be a view: strides, and bits that say that its
// bytes are still to be conjugated or negated.
Value ViewTensor(ValueArena& arena, Value storage_class, int64_t num_elements,
                 std::vector<int64_t> sizes, std::vector<int64_t> strides,
                 absl::string_view lazy) {
  const auto ints = [&](const std::vector<int64_t>& numbers) {
    std::vector<Value> items;
    for (const int64_t number : numbers) items.push_back(Value::Int(number));
    return arena.Tuple(items);
  };
  const Value id = arena.Persistent(
      arena.Tuple({arena.Str("storage"), storage_class, arena.Str("0"),
                   arena.Str("cpu"), Value::Int(num_elements)}));
  std::vector<Value> args = {
      id,
      Value::Int(0),
      ints(sizes),
      ints(strides),
      Value::Bool(false),
      arena.Call(arena.Global("collections", "OrderedDict"), arena.Tuple({}))};
  if (!lazy.empty()) {
    args.push_back(arena.Dict({arena.Str(lazy), Value::Bool(true)}));
  }
  return arena.Call(arena.Global("torch._utils", "_rebuild_tensor_v2"),
                    arena.Tuple(args));
}

std::string ConvertView(absl::string_view storage_class, DType dtype,
                        std::vector<int64_t> sizes,
                        std::vector<int64_t> strides, absl::string_view lazy,
                        const std::vector<float>& stored) {
  SimStorage fs;
  ValueArena arena;
  const Dims shape(sizes.begin(), sizes.end());
  const auto num_elements =
      static_cast<int64_t>(stored.size() * 4 / ElementSize(dtype));
  const Value root = arena.Dict(
      {arena.Str("w"),
       ViewTensor(arena, arena.Global("torch", storage_class), num_elements,
                  std::move(sizes), std::move(strides), lazy)});
  EXPECT_OK(
      WriteFile(fs, "/w.pt",
                testing::TorchArchiveBytes(root, {testing::BytesOf(stored)})));
  EXPECT_OK(ConvertCheckpoint(fs, "/w.pt", "/dcp", {}));
  return LoadBytes(fs, "/dcp", "w", dtype, shape);
}

TEST(Convert, MakesATransposedTensorContiguous) {
  EXPECT_EQ(ConvertView("FloatStorage", DType::kFloat32, {3, 2}, {1, 3}, "",
                        {1, 2, 3, 4, 5, 6}),
            testing::BytesOf<float>({1, 4, 2, 5, 3, 6}));
}

TEST(Convert, CarriesOutLazyConjugation) {
  EXPECT_EQ(ConvertView("ComplexFloatStorage", DType::kComplex64, {2}, {1},
                        "conj", {1, 2, 3, 4}),
            testing::BytesOf<float>({1, -2, 3, -4}));
}

TEST(Convert, CarriesOutLazyNegation) {
  EXPECT_EQ(
      ConvertView("FloatStorage", DType::kFloat32, {3}, {1}, "neg", {1, -2, 3}),
      testing::BytesOf<float>({-1, 2, -3}));
}

TEST(Convert, StopsWithoutLitter) {
  for (const std::string dst : {"/dcp", "/m.pt", "/m.safetensors"}) {
    SimStorage fs;
    SaveAll(fs, "/a", SmallModel());
    const auto before = fs.List("/");
    std::stop_source stop;
    ConvertOptions options;
    options.stop = stop.get_token();
    options.on_plan = [&](const ConvertPlan&) { stop.request_stop(); };
    const auto result = ConvertCheckpoint(fs, "/a", dst, std::move(options));
    EXPECT_THAT(result, StatusIs(absl::StatusCode::kCancelled));
    EXPECT_EQ(SideOf(result.status()), ErrorSide::kNone);
    ASSERT_OK_AND_ASSIGN(const auto after, fs.List("/"));
    EXPECT_EQ(after.size(), before->size());
    EXPECT_EQ(fs.num_open_files(), 0u);
  }
}

TEST(Convert, PlanChangesNothing) {
  SimStorage fs;
  SaveAll(fs, "/a", SmallModel());
  const uint64_t before = fs.num_mutations();
  ConvertOptions options;
  options.mesh = *ParseMesh("x=2");
  const auto plan = PlanConvert(fs, "/a", "/b", std::move(options));
  ASSERT_OK(plan);
  EXPECT_EQ(plan->files.size(), 2u);
  EXPECT_EQ(plan->num_tensors, 3u);
  EXPECT_EQ(fs.num_mutations(), before);
}

TEST(Convert, ReportsADiskThatIsTooSmall) {
  SimStorage fs({.capacity_bytes = 900'000});
  SaveAll(fs, "/a", {SampleTensor("a", DType::kFloat32, {125'000})});
  const auto result = ConvertCheckpoint(fs, "/a", "/b", {});
  EXPECT_THAT(result, StatusIs(absl::StatusCode::kResourceExhausted));
  EXPECT_EQ(SideOf(result.status()), ErrorSide::kDestination);
  EXPECT_THAT(fs.Stat("/b"), StatusIs(absl::StatusCode::kNotFound));
}

// Each file alone would fit; and what is replaced gives no room.
TEST(Convert, WhatDoesNotFitIsRefusedBeforeItBegins) {
  for (const bool overwrite : {false, true}) {
    SimStorage fs({.capacity_bytes = 900'000});
    SaveAll(fs, "/a", {SampleTensor("a", DType::kFloat32, {100'000})});
    if (overwrite) {
      SaveAll(fs, "/b", {SampleTensor("b", DType::kFloat32, {30'000})});
    }
    const auto options = [&] {
      ConvertOptions made;
      made.mesh = *ParseMesh(overwrite ? "x=2" : "x=3");
      made.selection.casts = {"float64"};
      made.overwrite = overwrite;
      return made;
    };
    const uint64_t free = *fs.FreeBytes("/");
    const auto refused =
        StatusIs(absl::StatusCode::kResourceExhausted,
                 AllOf(HasSubstr("/b: "), HasSubstr("for all files together"),
                       HasSubstr(absl::StrCat(free, " are free"))));
    const uint64_t num_before = fs.num_mutations();
    EXPECT_THAT(PlanConvert(fs, "/a", "/b", options()), refused);
    EXPECT_EQ(fs.num_mutations(), num_before);
    bool begun = false;
    ConvertOptions real = options();
    real.on_plan = [&](const ConvertPlan&) { begun = true; };
    const auto result = ConvertCheckpoint(fs, "/a", "/b", std::move(real));
    // Its lock file takes some.
    EXPECT_THAT(result, StatusIs(absl::StatusCode::kResourceExhausted,
                                 HasSubstr("for all files together")));
    EXPECT_EQ(SideOf(result.status()), ErrorSide::kDestination);
    EXPECT_FALSE(begun);
    EXPECT_EQ(fs.Stat("/b").ok(), overwrite);
  }
}

// Rows become columns, a storage is read for the sake of one view, digests are
// compared: the plan knows.
TEST(Convert, APlanSaysWhatIsReallyRead) {
  SimStorage fs;
  SaveAll(fs, "/rows",
          {SampleTensor("a", DType::kFloat32, {64, 4096}),
           SampleTensor("b", DType::kBFloat16, {3, 1000})});
  ASSERT_OK(fs.MakeDirectory("/hf"));
  ASSERT_OK(ConvertCheckpoint(fs, "/rows", "/made", [] {
    ConvertOptions options;
    options.to = Format::kSafetensors;
    return options;
  }()));
  for (const char* source : {"/rows", "/made"}) {
    for (const char* mesh : {"x=1", "x=5"}) {
      SCOPED_TRACE(absl::StrCat(source, " ", mesh));
      const auto options = [&] {
        ConvertOptions made;
        made.mesh = *ParseMesh(mesh);
        made.placements = {{"*", *ParsePlacements("S(1)")}};
        return made;
      };
      const auto plan = PlanConvert(fs, source, "/out", options());
      ASSERT_OK(plan);
      TransferStats stats;
      ConvertOptions real = options();
      real.stats = &stats;
      ASSERT_OK(ConvertCheckpoint(
          fs, source, absl::StrCat("/out", mesh, source + 1), std::move(real)));
      EXPECT_EQ(plan->bytes_to_read, stats.bytes_read);
    }
  }
}

TEST(Convert, APlanCountsTheIndexAndMayBeRefused) {
  SimStorage fs;
  SaveAll(fs, "/a", SmallModel());
  ConvertOptions options;
  options.mesh = *ParseMesh("x=4");
  options.admit = [](const ConvertPlan& plan) {
    return absl::ResourceExhaustedError(absl::StrCat(plan.memory_bytes));
  };
  const auto refused = ConvertCheckpoint(fs, "/a", "/b", std::move(options));
  EXPECT_THAT(refused, StatusIs(absl::StatusCode::kResourceExhausted));
  EXPECT_THAT(fs.Stat("/b"), StatusIs(absl::StatusCode::kNotFound));
  ConvertOptions few;
  few.mesh = *ParseMesh("x=1");
  ConvertOptions many;
  many.mesh = *ParseMesh("x=400");
  const auto small = PlanConvert(fs, "/a", "/b", std::move(few));
  const auto large = PlanConvert(fs, "/a", "/b", std::move(many));
  ASSERT_OK(small);
  ASSERT_OK(large);
  EXPECT_GE(small->index_bytes, 3 * kIndexBytesPerChunkRead);
  EXPECT_GE(large->index_bytes,
            3 * kIndexBytesPerChunk + 10 * kOutputBytesPerChunk);
}

TEST(Convert, RefusesOptionsThatContradictEachOther) {
  SimStorage fs;
  SaveAll(fs, "/a", SmallModel());
  ConvertOptions mesh;
  mesh.to = Format::kTorch;
  mesh.mesh = *ParseMesh("x=2");
  EXPECT_THAT(ConvertCheckpoint(fs, "/a", "/b.pt", std::move(mesh)),
              StatusIs(absl::StatusCode::kInvalidArgument));
  ConvertOptions placements;
  placements.placements = {{"*", *ParsePlacements("S(0)")}};
  EXPECT_THAT(ConvertCheckpoint(fs, "/a", "/b", std::move(placements)),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("mesh")));
  ConvertOptions memory;
  memory.memory_bytes = kMinMemoryBytes - 1;
  EXPECT_THAT(ConvertCheckpoint(fs, "/a", "/b", std::move(memory)),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("least")));
}

// "fsync: Input/output error" alone tells nobody where to look.
TEST(Convert, EveryFaultNamesAPath) {
  uint64_t num_synced = 0;
  for (const std::string dst : {"/dcp", "/m.pt", "/m.safetensors"}) {
    absl::Status status = absl::UnavailableError("");
    for (uint64_t n = 0; !status.ok(); ++n) {
      SimStorage fs;
      SaveAll(fs, "/a", SmallModel());
      const uint64_t before = fs.num_operations();
      fs.FailOperation(n, EIO);
      status = ConvertCheckpoint(fs, "/a", dst, {}).status();
      EXPECT_THAT(status.message(),
                  AnyOf(HasSubstr("/"), HasSubstr("__0_0"), Eq("")))
          << dst << " " << n;
      if (absl::StrContains(status.message(), ": fsync")) ++num_synced;
      // A fault in what is only cleared up is none of the conversion.
      if (status.ok() && n < fs.num_operations() - before) {
        status = absl::UnavailableError("");
      }
    }
  }
  EXPECT_GE(num_synced, 3u);
}

TEST(Convert, RefusesNamesOfFilesThatAreNotWritten) {
  SimStorage fs;
  SaveAll(fs, "/a", SmallModel());
  for (const std::string dst : {"/z.gguf", "/z.onnx", "/a.b/z.txt"}) {
    EXPECT_THAT(ConvertCheckpoint(fs, "/a", dst, {}),
                StatusIs(absl::StatusCode::kInvalidArgument,
                         AllOf(HasSubstr(dst), HasSubstr(".safetensors, .pt"),
                               HasSubstr("the option to"))));
  }
  EXPECT_EQ(fs.List("/")->size(), 1u);
  for (const std::string dst :
       {"/llama-3.1-8b", "/run.5", "/model.v2", "/.hidden", "/c.dcp"}) {
    EXPECT_OK(ConvertCheckpoint(fs, "/a", dst, {}));
  }
  ConvertOptions options;
  options.to = Format::kDcp;
  EXPECT_OK(ConvertCheckpoint(fs, "/a", "/z.gguf", std::move(options)));
  ASSERT_OK(fs.MakeDirectory("/run.final"));
  EXPECT_OK(ConvertCheckpoint(fs, "/a", "/run.final", {}));
}

TEST(Convert, RefusesToWriteNoTensor) {
  SimStorage fs;
  SampleState state;
  state.AddObject("step", Value::Int(5));
  SingleProcessCoordinator coordinator;
  ASSERT_OK(Save(fs, "/objects", state.state(), coordinator, {}));
  ConvertOptions drop;
  drop.drop_non_tensors = true;
  EXPECT_THAT(
      ConvertCheckpoint(fs, "/objects", "/x.safetensors", std::move(drop)),
      StatusIs(absl::StatusCode::kFailedPrecondition,
               HasSubstr("none of the 1 entries")));
  EXPECT_EQ(fs.List("/")->size(), 1u);
  EXPECT_OK(ConvertCheckpoint(fs, "/objects", "/x.pt", {}));
}

}  // namespace
}  // namespace dcp
