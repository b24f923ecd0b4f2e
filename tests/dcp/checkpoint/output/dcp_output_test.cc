// SPDX-License-Identifier: Apache-2.0
// Tests the layouts of DCP files. convert_test and the interop tests check that
// PyTorch's readers and ours read the written files.
#include "dcp/checkpoint/output/dcp_output.h"

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "dcp/base/bytes.h"
#include "dcp/base/checksum.h"
#include "dcp/base/limits.h"
#include "dcp/checkpoint/convert/convert.h"
#include "dcp/checkpoint/destination/destination.h"
#include "dcp/checkpoint/destination/plan_destination.h"
#include "dcp/checkpoint/files/file_reader.h"
#include "dcp/checkpoint/verify/verify.h"
#include "dcp/format/index/dcp_metadata.h"
#include "dcp/format/pickle/pickle_writer.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/dcp/checkpoint/fixtures.h"
#include "tests/testing/status_matchers.h"
#include "tests/testing/temp_dir.h"

namespace dcp {
namespace {

using ::dcp::testing::Disk;
using ::dcp::testing::ObjectItem;
using ::dcp::testing::StatusIs;
using ::dcp::testing::TempDir;
using ::dcp::testing::TensorItem;
using ::testing::ElementsAre;

// The bytes in `file` when the output's payload i is `payloads[i]`.
std::string Image(OutputFile& file, const std::vector<std::string>& payloads) {
  std::string image;
  std::vector<uint32_t> crcs;
  const std::vector<LayoutPart>& parts = file.layout.parts();
  for (size_t i = 0; i < parts.size(); ++i) {
    const std::string literal = file.literal(i, crcs);
    EXPECT_EQ(literal.size(), parts[i].literal_length);
    image += literal;
    std::string payload;
    if (parts[i].payload_length > 0) payload = payloads[parts[i].payload];
    EXPECT_EQ(payload.size(), parts[i].payload_length);
    crcs.push_back(ExtendCrc32(0, AsBytes(payload)));
    image += payload;
  }
  EXPECT_EQ(image.size(), file.layout.size());
  return image;
}

Payload MakePayload(DType dtype, const Dims& shape) {
  Payload payload;
  payload.box = WholeBox(shape);
  payload.dtype = dtype;
  return payload;
}

std::string Cut(const std::string& image, const StorageInfo& storage) {
  return image.substr(storage.offset, storage.length);
}

TEST(DcpFileBuilder, LaysOutArchivesOnAlignedPlaces) {
  std::vector<Payload> payloads;
  DcpFileBuilder builder("__0_0.distcp", payloads);
  const std::string object = ObjectItem(Value::Int(7));
  const StorageInfo first = builder.AddTensor(MakePayload(DType::kUInt8, {3}));
  const StorageInfo step = builder.AddObject(WritePickle(Value::Int(7)), {});
  const StorageInfo empty =
      builder.AddTensor(MakePayload(DType::kFloat32, {0, 2}));
  const StorageInfo last =
      builder.AddTensor(MakePayload(DType::kInt16, {2, 1}));
  ASSERT_EQ(payloads.size(), 3u);
  OutputFile file = std::move(builder).Finish();
  EXPECT_EQ(file.layout.name(), "__0_0.distcp");
  const std::string image = Image(file, {"abc", "", "1234"});

  for (const StorageInfo& storage : {first, step, empty, last}) {
    EXPECT_EQ(storage.offset % kStorageAlignment, 0u);
  }
  EXPECT_EQ(Cut(image, first), TensorItem(DType::kUInt8, {3}, "abc"));
  EXPECT_EQ(Cut(image, step), object);
  EXPECT_EQ(Cut(image, empty), TensorItem(DType::kFloat32, {0, 2}, ""));
  EXPECT_EQ(Cut(image, last), TensorItem(DType::kInt16, {2, 1}, "1234"));
}

TEST(DcpFileBuilder, LiteralsCanBeMadeAgain) {
  std::vector<Payload> payloads;
  DcpFileBuilder builder("f", payloads);
  builder.AddTensor(MakePayload(DType::kUInt8, {3}));
  builder.AddTensor(MakePayload(DType::kUInt8, {4}));
  OutputFile file = std::move(builder).Finish();
  const std::string image = Image(file, {"abc", "1234"});
  EXPECT_EQ(Image(file, {"abc", "1234"}), image);
}

// Two tensors and an object in a source with two files.
class DcpOutputTest : public ::testing::Test {
 protected:
  void SetUp() override {
    tensors_[0].dtype = tensors_[1].dtype = DType::kFloat32;
    tensors_[0].shape = {4, 2};
    tensors_[0].boxes = {{{0, 0}, {2, 2}}, {{2, 0}, {2, 2}}};
    tensors_[0].locations.resize(2);
    tensors_[0].locations[0].item.file = 1;
    tensors_[1].shape = {100};
    tensors_[1].boxes = {WholeBox({100})};
    tensors_[1].locations.resize(1);
    entries_ = {{.fqn = "a",
                 .path = {PathElement("a")},
                 .tensor = &tensors_[0],
                 .dtype = DType::kBFloat16,
                 .object = nullptr},
                {.fqn = "b",
                 .path = {PathElement("b")},
                 .tensor = &tensors_[1],
                 .dtype = DType::kFloat32,
                 .object = nullptr},
                {.fqn = "o",
                 .path = {PathElement("o")},
                 .tensor = nullptr,
                 .dtype = DType::kFloat32,
                 .object = &object_}};
    ASSERT_OK_AND_ASSIGN(
        destination_, PlanDestination(Disk(), dir_.Join("out"),
                                      Destination::Kind::kDcpDirectory, false));
  }

  // The output's index for `ranks`, parsed.
  Metadata MakeIndex(const std::vector<DcpRank>& ranks,
                     const DcpOutputOptions& options) {
    absl::StatusOr<Output> output = BuildDcpOutput(
        entries_, files_, ranks, options,
        [this](int64_t rank) { return destination_->NextDataFileName(rank); });
    EXPECT_OK(output);
    names_.clear();
    for (const OutputFile& file : output->files) {
      names_.push_back(file.layout.name());
    }
    const std::string index = output->index();
    absl::StatusOr<Metadata> metadata = ParseDcpMetadata(AsBytes(index));
    EXPECT_OK(metadata);
    return *std::move(metadata);
  }

  static const TensorStorageMetadata& GetTensor(const Metadata& metadata,
                                                absl::string_view fqn) {
    for (const MetadataEntry& entry : metadata.entries) {
      if (entry.fqn == fqn) return std::get<TensorStorageMetadata>(entry.value);
    }
    static const TensorStorageMetadata none;
    ADD_FAILURE() << "no " << fqn;
    return none;
  }

  const TempDir dir_;
  TensorEntry tensors_[2];
  ObjectEntry object_;
  std::vector<OutputEntry> entries_;
  SourceFiles files_{Disk(),
                     dir_.path(),
                     {"__0_0.distcp", "__3_0.distcp"},
                     DirectMode::kOff,
                     false};
  std::unique_ptr<Destination> destination_;
  std::vector<std::string> names_;
};

TEST_F(DcpOutputTest, ChunksAsStoredStayWithTheirRank) {
  const std::vector<DcpRank> ranks = ChunksAsStored(entries_, files_);
  ASSERT_EQ(ranks.size(), 4u);
  EXPECT_THAT(ranks[0], ::testing::SizeIs(3));
  ASSERT_THAT(ranks[3], ::testing::SizeIs(1));
  EXPECT_EQ(ranks[3][0].entry, 0u);
  EXPECT_EQ(ranks[3][0].box, tensors_[0].boxes[0]);
}

TEST_F(DcpOutputTest, EveryRankHasAFileAndTheIndexListsAll) {
  const Metadata metadata =
      MakeIndex(ChunksAsStored(entries_, files_),
                {.max_file_bytes = 0, .flattened = true, .save_id = "id"});
  EXPECT_THAT(names_, ElementsAre("__0_0.distcp", "__1_0.distcp",
                                  "__2_0.distcp", "__3_0.distcp"));
  EXPECT_EQ(metadata.save_id, "id");
  const TensorStorageMetadata& a = GetTensor(metadata, "a");
  EXPECT_EQ(a.dtype, DType::kBFloat16);
  EXPECT_EQ(a.size, Dims({4, 2}));
  EXPECT_EQ(a.chunks.size(), 2u);
}

TEST(ParseDataFileRank, IsTheFirstNumberOfTheName) {
  EXPECT_EQ(ParseDataFileRank("__3_0.distcp"), 3);
  EXPECT_EQ(ParseDataFileRank("__12_1.distcp"), 12);
  for (const char* name : {"", "__3.distcp", "3_0.distcp", "__x_0.distcp",
                           "__-1_0.distcp", "model.safetensors"}) {
    EXPECT_EQ(ParseDataFileRank(name), std::nullopt) << name;
  }
}

TEST_F(DcpOutputTest, AMeshCutsTensors) {
  ASSERT_OK_AND_ASSIGN(const Mesh mesh, ParseMesh("shard=2"));
  const Placements rows = {{Placement::Kind::kShard}};
  const std::vector<EntryLayout> layouts = {
      {0, rows}, {0, rows}, {0, Placements(1)}};
  ASSERT_OK_AND_ASSIGN(const std::vector<DcpRank> ranks,
                       ChunksForMeshes(entries_, {mesh}, layouts));
  const Metadata metadata = MakeIndex(ranks, {});
  EXPECT_EQ(GetTensor(metadata, "b").chunks.size(), 2u);
  EXPECT_EQ(GetTensor(metadata, "b").chunks[1].box, (Box{{50}, {50}}));
}

TEST_F(DcpOutputTest, EntriesOnSeveralMeshesKeepTheirOrderInEachFile) {
  ASSERT_OK_AND_ASSIGN(const Mesh dense, ParseMesh("fsdp=4"));
  ASSERT_OK_AND_ASSIGN(const Mesh experts, ParseMesh("efsdp=2,ep=2"));
  const Placement rows = {Placement::Kind::kShard};
  const Placement strided = {Placement::Kind::kStridedShard, 0, 2};
  const std::vector<EntryLayout> layouts = {
      {1, {strided, rows}}, {0, {rows}}, {0, Placements(1)}};
  ASSERT_OK_AND_ASSIGN(const std::vector<DcpRank> ranks,
                       ChunksForMeshes(entries_, {dense, experts}, layouts));
  ASSERT_EQ(ranks.size(), 4u);
  const std::vector<int64_t> first_rows = {0, 2, 1, 3};  // in "a", [4, 2]
  for (size_t rank = 0; rank < ranks.size(); ++rank) {
    ASSERT_GE(ranks[rank].size(), 2u);
    EXPECT_EQ(ranks[rank][0].entry, 0u);
    EXPECT_EQ(ranks[rank][0].box, (Box{{first_rows[rank], 0}, {1, 2}}));
    EXPECT_EQ(ranks[rank][1].entry, 1u);
    EXPECT_EQ(ranks[rank][1].box,
              (Box{{25 * static_cast<int64_t>(rank)}, {25}}));
  }
}

TEST_F(DcpOutputTest, PlacementsThatDoNotFitNameTheTensor) {
  ASSERT_OK_AND_ASSIGN(const Mesh mesh, ParseMesh("shard=2"));
  const Placements columns = {{Placement::Kind::kShard, 1}};
  const std::vector<EntryLayout> layouts = {
      {0, columns}, {0, columns}, {0, Placements(1)}};
  EXPECT_THAT(ChunksForMeshes(entries_, {mesh}, layouts),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       ::testing::HasSubstr("b: ")));
}

TEST_F(DcpOutputTest, AFileThatIsFullIsFollowedByAnother) {
  MakeIndex(ChunksAsStored(entries_, files_),
            {.max_file_bytes = 500, .flattened = true, .save_id = ""});
  EXPECT_THAT(names_,
              ElementsAre("__0_0.distcp", "__0_1.distcp", "__0_2.distcp",
                          "__1_0.distcp", "__2_0.distcp", "__3_0.distcp"));
}

TEST_F(DcpOutputTest, WritesNoPathsWithoutFlattening) {
  const Metadata metadata =
      MakeIndex(ChunksAsStored(entries_, files_),
                {.max_file_bytes = 0, .flattened = false, .save_id = ""});
  EXPECT_FALSE(metadata.has_planner_data);
}

TEST_F(DcpOutputTest, RefusesPathsThatDoNotFormANestedDict) {
  entries_[1].path = {PathElement("a"), PathElement("b")};
  EXPECT_THAT(
      BuildDcpOutput(entries_, files_, ChunksAsStored(entries_, files_), {},
                     [this](int64_t rank) {
                       return destination_->NextDataFileName(rank);
                     }),
      StatusIs(absl::StatusCode::kInvalidArgument));
}

TEST(DcpOutput, CopiesUnreadObjectsUnchanged) {
  const TempDir dir;
  ValueArena arena;
  const std::string item =
      ObjectItem(arena.New(arena.Global("mylib", "Config"), arena.Tuple({})));
  testing::DcpBuilder builder;
  builder.StartFile("__0_0.distcp");
  builder.AddTensor("w", DType::kUInt8, {3}, "abc");
  builder.AddObject("config", item);
  const std::string source = builder.Write(dir, "source");
  const std::string copy = dir.Join("copy");
  ASSERT_OK(ConvertCheckpoint(Disk(), source, copy, {}));
  ASSERT_OK_AND_ASSIGN(const std::unique_ptr<Checkpoint> checkpoint,
                       testing::OpenCheckpoint(copy));
  const StorageInfo& place =
      testing::GetEntry(*checkpoint, "config").object()->item;
  ASSERT_OK_AND_ASSIGN(const std::string file,
                       ReadFile(Disk(), dir.Join("copy/__0_0.distcp"),
                                uint64_t{1} << 20, /*follow_symlinks=*/false));
  EXPECT_EQ(file.substr(place.offset, place.length), item);
  ASSERT_OK_AND_ASSIGN(const VerifyReport report,
                       VerifyCheckpoint(Disk(), copy, {}));
  EXPECT_TRUE(report.findings.empty());
  EXPECT_EQ(report.num_items_unchecked, 0u);
  // In another format it is refused, by name.
  EXPECT_THAT(ConvertCheckpoint(Disk(), copy, dir.Join("x.pt"), {}),
              StatusIs(absl::StatusCode::kPermissionDenied,
                       ::testing::HasSubstr("config: global mylib")));
}

}  // namespace
}  // namespace dcp
