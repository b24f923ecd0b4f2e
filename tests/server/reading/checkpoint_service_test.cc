// SPDX-License-Identifier: Apache-2.0

#include "server/reading/checkpoint_service.h"

#include <atomic>
#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/synchronization/notification.h"
#include "dcp/base/bytes.h"
#include "dcp/base/error_place.h"
#include "dcp/format/index/dcp_metadata.h"
#include "dcp/format/pickle/pickle_globals.h"
#include "dcp/format/pickle/pickle_reader.h"
#include "tests/server/reading/checkpoint_server.h"
#include "tests/testing/golden.h"

namespace dcp::server {
namespace {

namespace v1 = ::tessera::v1;

using ::dcp::testing::SampleState;
using ::dcp::testing::SampleTensor;
using ::dcp::testing::StatusIs;
using ::testing::HasSubstr;
using ::testing::Not;

// All messages from a stream and how it ended.
template <typename Response>
struct Answers {
  std::vector<Response> messages;
  absl::Status status;
};

template <typename Response>
Answers<Response> ReadAll(
    std::unique_ptr<grpc::ClientReader<Response>> reader) {
  Answers<Response> answers;
  Response response;
  while (reader->Read(&response)) answers.messages.push_back(response);
  answers.status = FromRpcStatus(reader->Finish(), "call");
  return answers;
}

class CheckpointServiceTest : public ::testing::Test {
 protected:
  CheckpointServiceTest() {
    SampleState state;
    state.Add(SampleTensor("w", DType::kFloat32, {300, 200}));
    state.Add(SampleTensor("b", DType::kBFloat16, {200}));
    ValueArena& arena = state.arena();
    state.AddObject("lr", Value::Float(0.25));
    state.AddObject("betas",
                    arena.Tuple({Value::Float(0.9), Value::Float(0.95)}));
    path_ = server_.Save("dcp", state);
  }

  v1::Source Source(const std::string& path) {
    v1::Source source;
    source.set_path(path);
    return source;
  }

  absl::StatusOr<v1::InspectResponse> Inspect(
      const v1::InspectRequest& request) {
    grpc::ClientContext context;
    v1::InspectResponse response;
    const absl::Status status = FromRpcStatus(
        server_.stub().Inspect(&context, request, &response), "Inspect");
    if (!status.ok()) return status;
    return response;
  }

  Answers<v1::GetMetadataResponse> GetMetadata(const std::string& path) {
    grpc::ClientContext context;
    v1::GetMetadataRequest request;
    *request.mutable_source() = Source(path);
    return ReadAll(server_.stub().GetMetadata(&context, request));
  }

  Answers<v1::ReadObjectsResponse> ReadObjects(
      const std::string& path, const std::vector<std::string>& names) {
    grpc::ClientContext context;
    v1::ReadObjectsRequest request;
    *request.mutable_source() = Source(path);
    for (const std::string& name : names) request.add_names(name);
    return ReadAll(server_.stub().ReadObjects(&context, request));
  }

  Answers<v1::VerifyCheckpointResponse> Verify(const std::string& path,
                                               double percent = 0) {
    grpc::ClientContext context;
    v1::VerifyCheckpointRequest request;
    *request.mutable_source() = Source(path);
    request.set_sample_percent(percent);
    return ReadAll(server_.stub().Verify(&context, request));
  }

  Answers<v1::DiffResponse> Diff(const std::string& a, const std::string& b) {
    grpc::ClientContext context;
    v1::DiffRequest request;
    *request.mutable_a() = Source(a);
    *request.mutable_b() = Source(b);
    return ReadAll(server_.stub().Diff(&context, request));
  }

  CheckpointServer server_;
  std::string path_;
};

TEST_F(CheckpointServiceTest, InspectListsTensorsAndObjects) {
  v1::InspectRequest request;
  *request.mutable_source() = Source(path_);
  ASSERT_OK_AND_ASSIGN(const v1::InspectResponse response, Inspect(request));
  EXPECT_EQ(response.format(), v1::FORMAT_DCP);
  EXPECT_EQ(response.num_tensors(), 2u);
  EXPECT_EQ(response.num_objects(), 2u);
  EXPECT_EQ(response.num_bytes(), 300u * 200 * 4 + 200 * 2);
  std::map<std::string, std::string> texts;
  for (const v1::Object& object : response.objects()) {
    texts[object.name()] = object.text();
  }
  EXPECT_EQ(texts["lr"], "0.25");
  EXPECT_EQ(texts["betas"], "(0.9, 0.95)");
  ASSERT_EQ(response.files_size(), 1);
  EXPECT_GT(response.files(0).num_bytes(), response.num_bytes());
}

TEST_F(CheckpointServiceTest, InspectShowsObjectsOfADamagedFileWithoutValues) {
  for (const auto& file : std::filesystem::directory_iterator(path_)) {
    if (file.path().extension() == ".distcp") {
      std::filesystem::remove(file.path());
    }
  }
  v1::InspectRequest request;
  *request.mutable_source() = Source(path_);
  ASSERT_OK_AND_ASSIGN(const v1::InspectResponse response, Inspect(request));
  ASSERT_EQ(response.objects_size(), 2);
  EXPECT_EQ(response.objects(0).text(), "");
  EXPECT_FALSE(response.files(0).has_num_bytes());
}

TEST_F(CheckpointServiceTest, MetadataReturnsTheIndex) {
  const auto answers = GetMetadata(path_);
  ASSERT_OK(answers.status);
  std::string bytes;
  for (const auto& message : answers.messages) bytes += message.data();
  ASSERT_OK_AND_ASSIGN(const Metadata metadata,
                       ParseDcpMetadata(AsBytes(bytes)));
  EXPECT_EQ(metadata.entries.size(), 4u);
}

TEST_F(CheckpointServiceTest, ReturnsObjectsAsPickles) {
  const auto answers = ReadObjects(path_, {});
  ASSERT_OK(answers.status);
  ASSERT_EQ(answers.messages.size(), 2u);
  std::map<std::string, std::string> texts;
  for (const auto& message : answers.messages) {
    ValueArena arena;
    ASSERT_OK_AND_ASSIGN(
        const PickleResult pickle,
        ReadPickle(AsBytes(message.pickle()),
                   {.allow_global = IsStateDictGlobal}, arena));
    texts[message.name()] = ToString(pickle.root);
  }
  EXPECT_EQ(texts["lr"], "0.25");
  EXPECT_EQ(texts["betas"], "(0.9, 0.95)");
  EXPECT_EQ(ReadObjects(path_, {"l*"}).messages.size(), 1u);
  EXPECT_EQ(ReadObjects(path_, {"no"}).messages.size(), 0u);
}

TEST_F(CheckpointServiceTest, VerifyFindsDamage) {
  const auto sound = Verify(path_);
  ASSERT_OK(sound.status);
  ASSERT_FALSE(sound.messages.empty());
  const v1::VerifyReport& report = sound.messages.back().report();
  EXPECT_EQ(report.num_findings(), 0u);
  EXPECT_EQ(report.num_tensors(), 2u);
  EXPECT_EQ(report.format(), v1::FORMAT_DCP);
  EXPECT_GT(report.bytes_checked(), 240'000u);

  for (const auto& file : std::filesystem::directory_iterator(path_)) {
    if (file.path().extension() != ".distcp") continue;
    std::string bytes = testing::ReadFile(file.path().string());
    bytes[bytes.size() / 2] ^= 1;
    server_.dir().WriteFile("dcp/" + file.path().filename().string(), bytes);
  }
  const auto damaged = Verify(path_);
  ASSERT_OK(damaged.status);
  ASSERT_GT(damaged.messages.back().report().findings_size(), 0);
  EXPECT_EQ(damaged.messages.back().report().findings(0).name(), "w");
  EXPECT_THAT(Verify(path_, 101).status,
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("sample_percent is 101")));
}

TEST_F(CheckpointServiceTest, DiffReportsDifferences) {
  const std::string same = server_.Convert(path_, "same.pt");
  const auto equal = Diff(path_, same);
  ASSERT_OK(equal.status);
  EXPECT_EQ(equal.messages.back().report().num_findings(), 0u);
  EXPECT_EQ(equal.messages.back().report().num_tensors_equal(), 2u);

  SampleState state;
  state.Add(SampleTensor("w", DType::kFloat32, {300, 200}, /*seed=*/2));
  const auto other = Diff(path_, server_.Save("other", state));
  ASSERT_OK(other.status);
  const v1::DiffReport& report = other.messages.back().report();
  EXPECT_EQ(report.num_findings(), 4u);
  EXPECT_THAT(Diff(path_, server_.Path("missing")).status,
              StatusIs(absl::StatusCode::kNotFound, Not("")));
}

TEST_F(CheckpointServiceTest, ErrorsNameThePlace) {
  const std::string missing = server_.Path("missing");
  for (const absl::Status& status :
       {GetMetadata(missing).status, ReadObjects(missing, {}).status,
        Verify(missing).status, Diff(missing, path_).status}) {
    EXPECT_THAT(status, StatusIs(absl::StatusCode::kNotFound, Not("")));
    EXPECT_EQ(StatusPlace(status).path, missing);
  }
  v1::InspectRequest request;
  *request.mutable_source() = Source("/etc/passwd");
  EXPECT_THAT(Inspect(request),
              StatusIs(absl::StatusCode::kPermissionDenied, Not("")));
  request.clear_source();
  EXPECT_THAT(Inspect(request), StatusIs(absl::StatusCode::kInvalidArgument,
                                         HasSubstr("source.path is empty")));
}

TEST_F(CheckpointServiceTest, CancelledCallsEnd) {
  for (int i = 0; i < 20; ++i) {
    grpc::ClientContext context;
    v1::VerifyCheckpointRequest request;
    *request.mutable_source() = Source(path_);
    auto reader = server_.stub().Verify(&context, request);
    context.TryCancel();
    reader->Finish();
  }
  server_.Stop();
  EXPECT_EQ(server_.budget().used_bytes(), 0u);
}

// For each kind of call that opens a checkpoint; the disk answers after the
// calls are over.
TEST_F(CheckpointServiceTest, OpeningStopsWhenNobodyWaits) {
  const std::string path = server_.Path("shards");
  ConvertOptions options;
  options.to = Format::kSafetensors;
  options.drop_non_tensors = true;
  options.max_shard_bytes = 1;
  ASSERT_OK(ConvertCheckpoint(server_.fs(), path_, path, std::move(options)));
  std::atomic<int> num_opened = 0;
  absl::Notification held;
  absl::Notification answers;
  server_.fs().SetHook([&](absl::string_view operation, absl::string_view of) {
    if (operation != "OpenForRead" || !absl::EndsWith(of, ".safetensors")) {
      return;
    }
    if (++num_opened > 1) return;
    held.Notify();
    answers.WaitForNotification();
  });
  v1::InspectRequest inspect;
  *inspect.mutable_source() = Source(path);
  v1::ReadTensorsRequest read;
  *read.mutable_source() = Source(path);
  read.mutable_parts()->add_parts()->set_name("w");
  std::vector<std::thread> calls;
  calls.emplace_back([&] { EXPECT_FALSE(Inspect(inspect).ok()); });
  held.WaitForNotification();
  calls.emplace_back([&] { EXPECT_FALSE(Verify(path).status.ok()); });
  calls.emplace_back([&] { EXPECT_FALSE(server_.Read(read).status.ok()); });
  while (server_.service().num_streams() < 2) std::this_thread::yield();
  server_.EndCalls();
  for (std::thread& call : calls) call.join();
  answers.Notify();
  server_.Stop();
  EXPECT_EQ(num_opened, 1);
}

// Verify reads the disk itself, after the read that all calls have in common.
TEST(CheckpointServiceDisk, VerifyEndsOnAHangingDisk) {
  ServerOptions options;
  options.disk_timeout = absl::Milliseconds(100);
  CheckpointServer server(options);
  SampleState state;
  state.Add(SampleTensor("w", DType::kFloat32, {300, 200}));
  v1::VerifyCheckpointRequest request;
  request.mutable_source()->set_path(server.Save("dcp", state));
  absl::Notification held;
  absl::Notification answers;
  server.fs().SetHook([&](absl::string_view operation, absl::string_view path) {
    if (operation != "OpenForRead" || !absl::EndsWith(path, ".distcp")) return;
    if (!held.HasBeenNotified()) held.Notify();
    answers.WaitForNotification();
  });
  // On a busy machine the read before it may time out, too.
  absl::Status status;
  while (!held.HasBeenNotified()) {
    grpc::ClientContext context;
    status = ReadAll(server.stub().Verify(&context, request)).status;
    EXPECT_THAT(status, StatusIs(absl::StatusCode::kUnavailable,
                                 HasSubstr("has not answered")));
  }
  EXPECT_GT(RetryAfterMs(status), 0);
  answers.Notify();
  server.Stop();
  EXPECT_EQ(server.budget().used_bytes(), 0u);
}

// The message is longer than the transport accepts ahead.
TEST(CheckpointServiceStall, CallEndsIfTheClientStopsReading) {
  CheckpointServer server({}, /*stall_timeout=*/absl::Milliseconds(100));
  const uint64_t before = server.budget().used_bytes();
  SampleState state;
  state.AddObject("large",
                  state.arena().Bytes(std::string(size_t{8} << 20, 'x')));
  v1::ReadObjectsRequest request;
  request.mutable_source()->set_path(server.Save("dcp", state));
  grpc::ClientContext context;
  const auto reader = server.stub().ReadObjects(&context, request);
  reader->WaitForInitialMetadata();  // the message is on its way
  while (server.service().num_streams() > 0) std::this_thread::yield();
  EXPECT_EQ(server.budget().used_bytes(), before);
  v1::ReadObjectsResponse response;
  while (reader->Read(&response)) {
  }
  EXPECT_EQ(reader->Finish().error_code(), grpc::StatusCode::CANCELLED);
}

TEST(CheckpointServiceQuota, LeavesStreamsToOtherClients) {
  ServerOptions options;
  options.max_streams = 2;
  options.max_streams_per_client = 1;
  CheckpointServer server(options);
  SampleState state;
  state.Add(SampleTensor("w", DType::kFloat32, {16'384, 1024}));  // 64 MiB
  v1::ReadTensorsRequest request;
  request.mutable_source()->set_path(server.Save("dcp", state));
  request.mutable_parts()->add_parts()->set_name("w");
  grpc::ClientContext context;
  const auto held = server.stub().ReadTensors(&context, request);
  v1::ReadTensorsResponse response;
  ASSERT_TRUE(held->Read(&response));
  const absl::Status refused = server.Read(request).status;
  EXPECT_THAT(refused, StatusIs(absl::StatusCode::kResourceExhausted,
                                HasSubstr("127.0.0.1 has 1 streams")));
  EXPECT_GT(RetryAfterMs(refused), 0);
  context.TryCancel();
  while (held->Read(&response)) {
  }
  held->Finish();
  while (server.service().num_streams() > 0) std::this_thread::yield();
  EXPECT_OK(server.Read(request).status);
}

TEST(CheckpointServiceQuota, LimitsCallRatePerClient) {
  ServerOptions options;
  options.max_requests_per_second = 1;
  CheckpointServer server(options);
  absl::Status status = absl::OkStatus();
  for (int i = 0; i < 1000 && !absl::IsResourceExhausted(status); ++i) {
    grpc::ClientContext context;
    v1::InspectResponse response;
    status = FromRpcStatus(server.stub().Inspect(&context, {}, &response), "");
  }
  EXPECT_THAT(status,
              StatusIs(absl::StatusCode::kResourceExhausted,
                       HasSubstr("127.0.0.1 sends more than 1 requests")));
}

TEST_F(CheckpointServiceTest, ADrainingServerRefusesAllCalls) {
  server_.service().Drain();
  for (const absl::Status& status :
       {GetMetadata(path_).status, ReadObjects(path_, {}).status,
        Verify(path_).status, Diff(path_, path_).status,
        Inspect({}).status()}) {
    EXPECT_THAT(status, StatusIs(absl::StatusCode::kUnavailable,
                                 HasSubstr("shutting down")));
    EXPECT_GT(RetryAfterMs(status), 0);
  }
}

// Reads every version and format that there is.
TEST_F(CheckpointServiceTest, ReadsPyTorchCheckpoints) {
  for (const testing::GoldenCase& golden : testing::GoldenCases()) {
    SCOPED_TRACE(golden.name);
    CheckpointServer server;  // one case is inside another
    const std::string path = std::filesystem::canonical(
                                 testing::CopyGolden(server.dir(), golden.path))
                                 .string();
    ASSERT_OK_AND_ASSIGN(const auto checkpoint,
                         Checkpoint::Open(server.fs(), path, OpenOptions()));
    v1::ReadTensorsRequest request;
    *request.mutable_source() = Source(path);
    uint64_t num_bytes = 0;
    for (const CheckpointEntry& entry : checkpoint->entries()) {
      if (entry.tensor() == nullptr) continue;
      request.mutable_parts()->add_parts()->set_name(entry.fqn);
      num_bytes += entry.tensor()->num_bytes();
    }
    const Received received = server.Read(request);
    EXPECT_OK(received.status);
    EXPECT_EQ(received.bytes.size(), num_bytes);
  }
}

}  // namespace
}  // namespace dcp::server
