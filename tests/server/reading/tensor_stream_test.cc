// SPDX-License-Identifier: Apache-2.0

#include "server/reading/tensor_stream.h"

#include <algorithm>
#include <filesystem>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "dcp/base/error_place.h"
#include "dcp/checkpoint/load/load.h"
#include "dcp/tensor/placement.h"
#include "proto/messages/layout_messages.h"
#include "tests/server/reading/checkpoint_server.h"
#include "tests/server/reading/stream_samples.h"

namespace dcp::server {
namespace {

namespace v1 = ::tessera::v1;

using ::dcp::testing::MemorySink;
using ::dcp::testing::SampleTensor;
using ::dcp::testing::StatusIs;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

TEST(TensorStream, ReadsTheSameFromAllFormats) {
  CheckpointServer server;
  const auto tensors = SomeTensors();
  const std::string dcp = SaveAll(server, "dcp", tensors);
  const Mesh mesh{{{"replicate", 2}, {"shard", 3}}};
  for (const std::string& path : {dcp, server.Convert(dcp, "resharded", mesh),
                                  server.Convert(dcp, "model.safetensors"),
                                  server.Convert(dcp, "model.pt")}) {
    SCOPED_TRACE(path);
    const Received received = server.Read(WholeRequest(path, tensors));
    ASSERT_OK(received.status);
    ASSERT_EQ(received.header.parts_size(), 5);
    for (int i = 0; i < 5; ++i) {
      const auto& part = received.header.parts(i);
      const SampleTensor& tensor = tensors[static_cast<size_t>(i)];
      EXPECT_EQ(part.name(), tensor.fqn);
      EXPECT_EQ(part.dtype(), TorchName(tensor.dtype));
      EXPECT_EQ(Dims(part.shape().begin(), part.shape().end()), tensor.shape);
      EXPECT_EQ(part.num_bytes(), tensor.bytes.size());
    }
    EXPECT_EQ(received.header.num_bytes(), received.bytes.size());
    EXPECT_TRUE(received.bytes == WholeBytes(tensors));
  }
}

TEST(TensorStream, SendsEachRankTheRightParts) {
  CheckpointServer server;
  const auto tensors = SomeTensors();
  const std::string path = SaveAll(server, "dcp", tensors);
  const Mesh mesh{{{"replicate", 2}, {"shard", 3}}};
  const Placements columns = {Placement{},
                              Placement{Placement::Kind::kShard, 1, 1}};
  for (int64_t rank = 0; rank < mesh.num_ranks(); ++rank) {
    const Dims coordinate = mesh.Coordinate(rank);
    v1::ReadTensorsRequest request;
    request.mutable_source()->set_path(path);
    auto& wanted = *request.mutable_rank_parts();
    MeshToProto(mesh, *wanted.mutable_mesh());
    wanted.mutable_coordinate()->Add(coordinate.begin(), coordinate.end());
    auto& rule = *wanted.add_placements();
    rule.set_glob("b*");
    for (const Placement& p : columns)
      PlacementToProto(p, *rule.add_placements());
    wanted.mutable_selection()->add_renames("s/^a\\./b./");
    wanted.mutable_selection()->add_exclude("*.bias");
    const Received received = server.Read(request);
    ASSERT_OK(received.status);
    std::vector<std::pair<std::string, std::string>> got;
    uint64_t at = 0;
    for (const auto& header_part : received.header.parts()) {
      got.emplace_back(header_part.name(),
                       received.bytes.substr(at, header_part.num_bytes()));
      at += header_part.num_bytes();
    }
    std::vector<std::pair<std::string, std::string>> want;
    for (const SampleTensor& tensor : tensors) {
      if (tensor.fqn == "a.bias") continue;
      const bool is_b = tensor.fqn == "big" || tensor.fqn == "a.weight";
      ASSERT_OK_AND_ASSIGN(
          const std::vector<Box> boxes,
          LocalBoxes(tensor.shape, mesh,
                     is_b ? columns : DefaultPlacements(mesh, tensor.shape),
                     coordinate));
      for (const Box& box : boxes) {
        want.emplace_back(tensor.fqn == "a.weight" ? "b.weight" : tensor.fqn,
                          tensor.BytesOf(box));
      }
    }
    std::sort(got.begin(), got.end());
    std::sort(want.begin(), want.end());
    EXPECT_TRUE(got == want) << "rank " << rank;
  }
}

TEST(TensorStream, ConvertsBoxesToOtherTypes) {
  CheckpointServer server;
  const auto tensors = SomeTensors();
  const std::string path = SaveAll(server, "dcp", tensors);
  const Box box{{10, 4}, {33, 20}};
  v1::ReadTensorsRequest request;
  request.mutable_source()->set_path(path);
  auto& part = *request.mutable_parts()->add_parts();
  part.set_name("a.weight");
  part.set_dtype("bf16");
  part.add_expected_shape(70);
  part.add_expected_shape(30);
  BoxToProto(box, *part.mutable_box());
  const Received received = server.Read(request);
  ASSERT_OK(received.status);
  EXPECT_EQ(received.header.parts(0).dtype(), "bfloat16");
  ASSERT_OK_AND_ASSIGN(const auto checkpoint,
                       Checkpoint::Open(server.fs(), path, OpenOptions()));
  MemorySink sink(33 * 20 * 2);
  ASSERT_OK(Load(server.fs(), *checkpoint,
                 {LoadTensor{.fqn = "a.weight",
                             .dtype = DType::kBFloat16,
                             .shape = {70, 30},
                             .box = box,
                             .sink = &sink}},
                 {}));
  EXPECT_EQ(received.bytes, sink.bytes());
}

TEST(TensorStream, ResumesAtAnyOffset) {
  CheckpointServer server;
  const auto tensors = SomeTensors();
  auto request = WholeRequest(SaveAll(server, "dcp", tensors), tensors);
  const std::string whole = WholeBytes(tensors);
  const std::string etag = server.Read(request).header.etag();
  EXPECT_NE(etag, "");
  request.set_etag(etag);
  std::mt19937_64 random(5);
  std::vector<uint64_t> offsets = {0,
                                   1,
                                   8400,
                                   8414,
                                   whole.size(),
                                   whole.size() - 1,
                                   4 * kMiB,
                                   4 * kMiB + 8421};
  for (int i = 0; i < 20; ++i) offsets.push_back(random() % whole.size());
  for (const uint64_t offset : offsets) {
    request.set_resume_offset(offset);
    request.set_max_chunk_bytes(static_cast<uint32_t>(random() % (3 * kMiB)));
    const Received received = server.Read(request);
    ASSERT_OK(received.status) << "seed 5, offset " << offset;
    EXPECT_TRUE(received.bytes == whole.substr(offset)) << offset;
    EXPECT_EQ(received.header.num_bytes(), whole.size());
    EXPECT_EQ(received.header.etag(), etag);
  }
  request.set_resume_offset(whole.size() + 1);
  EXPECT_THAT(server.Read(request).status,
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("resume_offset is")));
}

TEST(TensorStream, DetectsAReplacedCheckpoint) {
  CheckpointServer server;
  auto tensors = SomeTensors();
  auto request = WholeRequest(SaveAll(server, "dcp", tensors), tensors);
  const Received before = server.Read(request);
  ASSERT_OK(before.status);
  tensors[0] = SampleTensor("a.weight", DType::kFloat32, Dims{70, 30}, 99);
  SaveAll(server, "dcp", tensors);
  const Received after = server.Read(request);
  ASSERT_OK(after.status);
  EXPECT_TRUE(after.bytes == WholeBytes(tensors));
  EXPECT_NE(after.header.etag(), before.header.etag());
  request.set_etag(before.header.etag());
  EXPECT_THAT(server.Read(request).status,
              StatusIs(absl::StatusCode::kFailedPrecondition,
                       HasSubstr(after.header.etag())));
}

TEST(TensorStream, SplitsLargeHeaders) {
  CheckpointServer server;
  const auto tensors = SomeTensors();
  v1::ReadTensorsRequest request;
  request.mutable_source()->set_path(SaveAll(server, "dcp", tensors));
  for (int i = 0; i < 40'000; ++i) {
    auto& part = *request.mutable_parts()->add_parts();
    part.set_name("a.weight");
    BoxToProto({{i % 70, i % 30}, {1, 1}}, *part.mutable_box());
  }
  const Received received = server.Read(request);
  ASSERT_OK(received.status);
  EXPECT_EQ(received.header.parts_size(), 40'000);
  EXPECT_GT(received.num_headers, 1u);
  std::string expected;
  for (int i = 0; i < 40'000; ++i) {
    expected += tensors[0].bytes.substr(
        static_cast<size_t>((i % 70 * 30 + i % 30) * 4), 4);
  }
  EXPECT_TRUE(received.bytes == expected);
}

TEST(TensorStream, ReportsAllMistakesAtOnce) {
  CheckpointServer server;
  const std::string path = SaveAll(server, "dcp", SomeTensors());
  v1::ReadTensorsRequest request;
  request.mutable_source()->set_path(path);
  auto& parts = *request.mutable_parts();
  parts.add_parts()->set_name("nothing");
  EXPECT_THAT(
      server.Read(request).status,
      StatusIs(absl::StatusCode::kNotFound, HasSubstr("lacks nothing")));
  auto add = [&](const char* name) -> v1::ReadTensorsRequest::Part& {
    auto& part = *parts.add_parts();
    part.set_name(name);
    return part;
  };
  add("a.weight").add_expected_shape(70);
  add("a.bias").set_dtype("float77");
  add("scalar").set_dtype("bfloat16");
  BoxToProto({{0, 0}, {71, 1}}, *add("a.weight").mutable_box());
  BoxToProto({{-1, 0}, {1, 1}}, *add("a.weight").mutable_box());
  BoxToProto({{INT64_MAX, 0}, {INT64_MAX, 1}}, *add("big").mutable_box());
  BoxToProto({{0}, {1}}, *add("big").mutable_box());
  const absl::Status status = server.Read(request).status;
  EXPECT_THAT(
      status,
      StatusIs(
          absl::StatusCode::kInvalidArgument,
          AllOf(HasSubstr(
                    "a.weight is stored as [70, 30], but requested as [70]"),
                HasSubstr("unknown dtype 'float77'"),
                HasSubstr(
                    "scalar is stored as int64, which cannot be converted to"),
                HasSubstr("[0:71, 0:1] is not inside"),
                HasSubstr("parts.parts[5].box.offsets[0] is -1"),
                HasSubstr("lacks nothing"))));
  EXPECT_EQ(StatusPlace(status).path, path);
  for (int i = 0; i < 1000; ++i) add(absl::StrCat("no.", i).c_str());
  EXPECT_THAT(server.Read(request).status,
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr(" more")));
}

TEST(TensorStream, RefusesHostileRequests) {
  CheckpointServer server;
  const std::string path = SaveAll(server, "dcp", SomeTensors());
  v1::ReadTensorsRequest request;
  EXPECT_THAT(server.Read(request).status,
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("source.path is empty")));
  request.mutable_source()->set_path(path);
  EXPECT_THAT(server.Read(request).status,
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("must set parts or rank_parts")));
  for (const std::string& outside :
       {std::string("/etc"), server.Path("../x"), std::string("relative"),
        absl::StrCat(path, "/../../..")}) {
    request.mutable_source()->set_path(outside);
    EXPECT_THAT(server.Read(request).status.code(),
                ::testing::AnyOf(absl::StatusCode::kInvalidArgument,
                                 absl::StatusCode::kPermissionDenied))
        << outside;
  }
  // A mesh that would cut a tensor into a million million pieces.
  request.mutable_source()->set_path(path);
  auto& wanted = *request.mutable_rank_parts();
  MeshToProto(Mesh{{{"a", 2}, {"b", 2}}}, *wanted.mutable_mesh());
  wanted.add_coordinate(0);
  wanted.add_coordinate(1);
  auto& rule = *wanted.add_placements();
  for (int64_t dim : {0, 0}) {
    PlacementToProto({Placement::Kind::kStridedShard, dim, 1 << 20},
                     *rule.add_placements());
  }
  const absl::Status status = server.Read(request).status;
  EXPECT_THAT(status, StatusIs(absl::StatusCode::kInvalidArgument, Not("")));
  wanted.add_coordinate(1);
  EXPECT_THAT(server.Read(request).status,
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("rank_parts.coordinate has 3 entries")));
}

TEST(TensorStream, DamagedFileEndsTheStreamAndIsNamed) {
  CheckpointServer server;
  const auto tensors = SomeTensors();
  const std::string path = SaveAll(server, "dcp", tensors);
  auto request = WholeRequest(path, tensors);
  ASSERT_OK(server.Read(request).status);
  for (const auto& file : std::filesystem::directory_iterator(path)) {
    if (file.path().extension() != ".distcp") continue;
    std::filesystem::resize_file(file.path(), 100'000);
  }
  // Asks for other windows than those that are still in memory.
  for (auto& part : *request.mutable_parts()->mutable_parts()) {
    if (part.name() == "big") part.set_dtype("float64");
  }
  const absl::Status status = server.Read(request).status;
  EXPECT_THAT(status, StatusIs(absl::StatusCode::kDataLoss, Not("")));
  EXPECT_EQ(StatusPlace(status).path, path);
  EXPECT_NE(StatusPlace(status).tensor, "");
  EXPECT_THAT(StatusPlace(status).file, HasSubstr(".distcp"));
  EXPECT_NE(StatusPlace(status).offset, "");
}

// Several ranks request the same data at the same time.
TEST(TensorStream, StreamsOfTheSameTensorShareReads) {
  CheckpointServer server;
  std::vector<SampleTensor> tensors;
  tensors.emplace_back("w", DType::kFloat32, Dims{8192, 1024});  // 32 MiB
  const auto request = WholeRequest(SaveAll(server, "dcp", tensors), tensors);
  constexpr int kRanks = 8;
  {
    std::vector<std::jthread> ranks;
    for (int i = 0; i < kRanks; ++i) {
      ranks.emplace_back([&] {
        const auto stub = server.NewStub();
        const Received received = CheckpointServer::ReadBy(*stub, request);
        EXPECT_OK(received.status);
        EXPECT_TRUE(received.bytes == tensors[0].bytes);
      });
    }
  }
  const uint64_t size = tensors[0].bytes.size();
  EXPECT_EQ(Counter(server.metrics(), "streamed"), kRanks * size);
  EXPECT_EQ(Counter(server.metrics(), "shared"), (kRanks - 1) * size);
  EXPECT_LT(Counter(server.metrics(), "read"), size * 13 / 10);
}

}  // namespace
}  // namespace dcp::server
