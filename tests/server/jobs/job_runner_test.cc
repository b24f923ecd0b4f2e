// SPDX-License-Identifier: Apache-2.0

#include "server/jobs/job_runner.h"

#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "dcp/base/error_place.h"
#include "dcp/base/limits.h"
#include "gmock/gmock.h"
#include "google/protobuf/any.pb.h"
#include "gtest/gtest.h"
#include "proto/error_detail.h"
#include "proto/messages/request_messages.h"
#include "tessera/v1/checkpoint_service.pb.h"
#include "tests/server/jobs/job_server.h"
#include "tests/testing/status_matchers.h"
#include "tests/testing/temp_dir.h"

namespace dcp::server {
namespace {

using ::dcp::testing::StatusIs;
using ::dcp::testing::TempDir;
using ::testing::HasSubstr;

class JobRunnerTest : public ::testing::Test {
 protected:
  JobRunnerTest() {
    MakeCheckpoint(dir_.Join("data/source"), 3, 1 << 16);
    options_.roots = {{.path = dir_.Join("data"), .writable = true}};
    access_ = std::make_unique<Access>(*Access::Load(options_.roots, ""));
    runner_ = std::make_unique<JobRunner>(*fs_, *access_, options_);
    client_ = access_->FindClient("anonymous");
  }

  std::string data(absl::string_view name) const {
    return absl::StrCat(dir_.Join("data"), "/", name);
  }

  template <typename Request>
  Request To(absl::string_view destination) const {
    Request request;
    request.mutable_source()->set_path(data("source"));
    request.mutable_destination()->set_path(data(destination));
    request.mutable_options()->set_memory_bytes(kMinMemoryBytes);
    return request;
  }

  absl::StatusOr<JobRequest> Check(
      JobKind kind, const google::protobuf::Message& message) const {
    return runner_->Check(kind, StableBytes(message), *client_);
  }

  absl::StatusOr<std::string> Run(JobKind kind,
                                  const google::protobuf::Message& message) {
    const auto request = Check(kind, message);
    if (!request.ok()) return request.status();
    JobControls controls;
    controls.on_plan = [&](const JobSize& size) { size_ = size; };
    controls.on_finishing = [&] { ++num_finishing_; };
    controls.log.append = [&](const std::string&) { return absl::OkStatus(); };
    return runner_->Run(*request, "anonymous", controls);
  }

  template <typename Result>
  static Result Unpack(const absl::StatusOr<std::string>& bytes) {
    EXPECT_OK(bytes);
    google::protobuf::Any any;
    Result result;
    EXPECT_TRUE(bytes.ok() && any.ParseFromString(*bytes) &&
                any.UnpackTo(&result));
    return result;
  }

  const TempDir dir_;
  const std::unique_ptr<FileSystem> fs_ = NewPosixFileSystem();
  ServerOptions options_;
  std::unique_ptr<Access> access_;
  std::unique_ptr<JobRunner> runner_;
  const Client* client_ = nullptr;
  JobSize size_;
  int num_finishing_ = 0;
  std::vector<std::string> records_;
};

TEST_F(JobRunnerTest, RunsEachKind) {
  auto convert = To<tessera::v1::ConvertRequest>("model.pt");
  const auto converted =
      Unpack<tessera::v1::ConvertResult>(Run(JobMetadata::CONVERT, convert));
  EXPECT_EQ(converted.to(), tessera::v1::FORMAT_TORCH);
  EXPECT_TRUE(converted.has_elapsed());
  EXPECT_EQ(size_.num_files, 1u);
  EXPECT_EQ(num_finishing_, 1);

  auto reshard = To<tessera::v1::ReshardRequest>("columns");
  auto* axis = reshard.mutable_mesh()->add_axes();
  axis->set_name("tp");
  axis->set_size(2);
  auto* rule = reshard.add_placements();
  rule->set_glob("weight.*");
  rule->add_placements()->mutable_shard()->set_dim(1);
  const auto resharded =
      Unpack<tessera::v1::ConvertResult>(Run(JobMetadata::RESHARD, reshard));
  EXPECT_EQ(resharded.num_files(), 2u);

  auto consolidate = To<tessera::v1::ConsolidateRequest>("whole");
  consolidate.set_format(tessera::v1::FORMAT_SAFETENSORS);
  Unpack<tessera::v1::ConvertResult>(
      Run(JobMetadata::CONSOLIDATE, consolidate));
  for (const auto* name : {"model.pt", "columns", "whole"}) {
    EXPECT_OK(CompareCheckpoints(data("source"), data(name)));
  }

  tessera::v1::VerifyRequest verify;
  verify.mutable_source()->set_path(data("columns"));
  const auto report =
      Unpack<tessera::v1::VerifyReport>(Run(JobMetadata::VERIFY, verify));
  EXPECT_EQ(report.num_tensors(), 5u);
  EXPECT_EQ(report.num_findings(), 0u);
}

TEST_F(JobRunnerTest, SharesAreDoneByAnyRunnerInAnyOrder) {
  auto request = To<tessera::v1::ConvertRequest>("shared");
  request.mutable_share()->set_count(3);
  std::string plan_id;
  uint32_t num_written = 0;
  for (const uint32_t index : {2, 0, 0, 1, 1}) {
    request.mutable_share()->set_index(index);
    const auto result =
        Unpack<tessera::v1::ConvertResult>(Run(JobMetadata::CONVERT, request));
    const auto& share = result.share();
    if (plan_id.empty()) plan_id = share.plan_id();
    EXPECT_EQ(share.plan_id(), plan_id);
    EXPECT_EQ(share.num_pieces(), 3u);
    num_written += share.num_pieces_written();
    EXPECT_EQ(share.is_complete(), num_written == 3);
    EXPECT_EQ(share.has_committed(), num_finishing_ == 1 && index == 1 &&
                                         share.num_pieces_written() > 0);
  }
  EXPECT_EQ(num_written, 3u);
  EXPECT_EQ(num_finishing_, 1);
  EXPECT_OK(CompareCheckpoints(data("source"), data("shared")));
  request.mutable_share()->set_index(3);
  EXPECT_THAT(Run(JobMetadata::CONVERT, request),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("share.index is 3")));
}

TEST_F(JobRunnerTest, PlansWithoutWriting) {
  const std::string before = ListFiles(dir_.path());
  const auto request =
      Check(JobMetadata::CONVERT, To<tessera::v1::ConvertRequest>("out"));
  ASSERT_OK(request);
  const auto plan =
      Unpack<tessera::v1::ConvertResult>(runner_->Plan(*request, *client_, {}));
  EXPECT_EQ(plan.num_files(), 3u);
  EXPECT_GT(plan.bytes_to_write(), plan.bytes_to_read());
  EXPECT_FALSE(plan.has_elapsed());
  tessera::v1::VerifyRequest verify;
  verify.mutable_source()->set_path(data("source"));
  const auto check = Check(JobMetadata::VERIFY, verify);
  ASSERT_OK(check);
  EXPECT_GT(
      Unpack<tessera::v1::ConvertResult>(runner_->Plan(*check, *client_, {}))
          .bytes_to_read(),
      0u);
  EXPECT_EQ(ListFiles(dir_.path()), before);
}

TEST_F(JobRunnerTest, RefusesWhatIsNotAllowed) {
  using Request = tessera::v1::ConvertRequest;
  const auto check = [&](const Request& request) {
    return Check(JobMetadata::CONVERT, request).status();
  };
  Request request = To<Request>("out");
  EXPECT_OK(check(request));
  request.clear_source();
  EXPECT_THAT(check(request), StatusIs(absl::StatusCode::kInvalidArgument,
                                       HasSubstr("source")));
  request = To<Request>("out");
  request.clear_destination();
  EXPECT_THAT(check(request), StatusIs(absl::StatusCode::kInvalidArgument,
                                       HasSubstr("destination.path")));
  request.mutable_destination()->set_path("/etc/passwd");
  EXPECT_THAT(check(request), StatusIs(absl::StatusCode::kPermissionDenied));
  request.mutable_destination()->set_path(data("../out"));
  EXPECT_THAT(check(request), StatusIs(absl::StatusCode::kInvalidArgument));
  request = To<Request>("out");
  request.mutable_options()->set_memory_bytes(1);
  EXPECT_THAT(check(request), StatusIs(absl::StatusCode::kInvalidArgument,
                                       HasSubstr("memory_bytes")));
  request.mutable_options()->set_memory_bytes(uint64_t{1} << 60);
  EXPECT_THAT(check(request), StatusIs(absl::StatusCode::kInvalidArgument,
                                       HasSubstr("memory_bytes")));
  // The memory that the readers keep could never be granted.
  request.mutable_options()->set_memory_bytes(options_.max_memory_bytes);
  EXPECT_THAT(check(request), StatusIs(absl::StatusCode::kInvalidArgument,
                                       HasSubstr("memory_bytes")));
  request = To<Request>("out");
  for (const char* id : {"the-same", "f47ac10b-58cc-4372-a567-0e02b2c3d4790",
                         "00000000-0000-0000-0000-000000000000"}) {
    request.mutable_options()->set_request_id(id);
    EXPECT_THAT(check(request), StatusIs(absl::StatusCode::kInvalidArgument,
                                         HasSubstr("UUID")));
    EXPECT_EQ(BlamedField(check(request)), "options.request_id");
  }
  request = To<Request>("out");
  request.mutable_source()->set_path("relative");
  EXPECT_EQ(BlamedField(check(request)), "source.path");
  request = To<Request>("out");
  request.mutable_destination()->set_path("relative");
  EXPECT_EQ(BlamedField(check(request)), "destination.path");
  request.mutable_destination()->set_path("/elsewhere");
  EXPECT_EQ(ErrorReasonName(check(request)), "PATH_NOT_ALLOWED");
  request = To<Request>("out");
  request.add_placements()->set_glob("*");
  EXPECT_THAT(check(request), StatusIs(absl::StatusCode::kInvalidArgument,
                                       HasSubstr("require a mesh")));
  EXPECT_THAT(
      Check(JobMetadata::RESHARD, To<tessera::v1::ReshardRequest>("out"))
          .status(),
      StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("mesh")));
  EXPECT_THAT(Check(JobMetadata::KIND_UNSPECIFIED, request).status(),
              StatusIs(absl::StatusCode::kInvalidArgument));
}

TEST_F(JobRunnerTest, ChecksPathsAgainWhenItRuns) {
  auto request = To<tessera::v1::ConvertRequest>("sub/out");
  std::filesystem::create_directory(data("sub"));
  const auto job = Check(JobMetadata::CONVERT, request);
  ASSERT_OK(job);
  std::filesystem::remove(data("sub"));
  std::filesystem::create_directory_symlink(dir_.path(), data("sub"));
  JobControls controls;
  EXPECT_THAT(runner_->Run(*job, "anonymous", controls).status(),
              StatusIs(absl::StatusCode::kPermissionDenied));
  EXPECT_THAT(
      runner_->Run(*job, "somebody", controls).status(),
      StatusIs(absl::StatusCode::kPermissionDenied, HasSubstr("somebody")));
}

TEST_F(JobRunnerTest, LinksAmongTheFilesMayNotLeadOut) {
  auto split = To<tessera::v1::ConvertRequest>("model");
  split.set_format(tessera::v1::FORMAT_SAFETENSORS);
  split.set_max_shard_bytes(1);
  EXPECT_OK(Run(JobMetadata::CONVERT, split).status());
  EXPECT_OK(Run(JobMetadata::CONVERT, To<tessera::v1::ConvertRequest>("dcp"))
                .status());
  const auto convert = [&](absl::string_view source) {
    auto request = To<tessera::v1::ConvertRequest>("out");
    request.mutable_source()->set_path(data(source));
    request.mutable_destination()->set_overwrite(true);
    return Run(JobMetadata::CONVERT, request).status();
  };
  const auto verify = [&](absl::string_view source) {
    tessera::v1::VerifyRequest request;
    request.mutable_source()->set_path(data(source));
    return Run(JobMetadata::VERIFY, request).status();
  };
  for (const std::string name : {"model", "dcp"}) {
    std::string file;
    for (const auto& entry : std::filesystem::directory_iterator(data(name))) {
      const std::string extension = entry.path().extension().string();
      if (extension == ".safetensors" || extension == ".distcp") {
        file = entry.path().string();
      }
    }
    EXPECT_OK(convert(name));
    EXPECT_OK(verify(name));
    // A link to inside is followed, except for that of a DCP checkpoint.
    const std::string inside = data(name + "-moved");
    std::filesystem::rename(file, inside);
    std::filesystem::create_symlink(inside, file);
    EXPECT_EQ(convert(name).ok(), name == "model");
    const std::string before = ListFiles(dir_.path());
    const std::string outside = dir_.Join(name + "-outside");
    std::filesystem::remove(file);
    std::filesystem::create_symlink(outside, file);
    for (const bool there : {false, true}) {
      if (there) std::filesystem::rename(inside, outside);
      EXPECT_FALSE(convert(name).ok()) << file;
      if (name != "model") continue;
      EXPECT_THAT(convert(name), StatusIs(absl::StatusCode::kPermissionDenied));
      EXPECT_THAT(verify(name), StatusIs(absl::StatusCode::kPermissionDenied));
    }
    std::filesystem::rename(outside, inside);
    EXPECT_EQ(ListFiles(dir_.path()), before);
  }
}

TEST_F(JobRunnerTest, NestedFilesMayNotLieOutside) {
  auto request = To<tessera::v1::ConvertRequest>("model");
  request.set_format(tessera::v1::FORMAT_SAFETENSORS);
  EXPECT_OK(Run(JobMetadata::CONVERT, request).status());
  std::filesystem::remove_all(dir_.Join("outside"));
  std::filesystem::rename(data("model"), dir_.Join("outside"));
  // The index's files lie in a folder that is a link.
  std::filesystem::create_directory(data("model"));
  std::filesystem::create_directory_symlink(dir_.Join("outside"),
                                            data("model/sub"));
  dir_.WriteFile("data/model/model.safetensors.index.json",
                 "{\"weight_map\":{\"weight.0\":"
                 "\"sub/model.safetensors\"}}");
  std::filesystem::create_symlink("sub/model.safetensors",
                                  data("model/model.safetensors"));
  auto out = To<tessera::v1::ConvertRequest>("out");
  out.mutable_source()->set_path(data("model"));
  const absl::Status status = Run(JobMetadata::CONVERT, out).status();
  EXPECT_FALSE(status.ok());
  EXPECT_NE(status.code(), absl::StatusCode::kNotFound) << status;
  EXPECT_FALSE(std::filesystem::exists(data("out")));
}

// A name with one wrong bit is a finding, and nothing is made of it.
TEST_F(JobRunnerTest, DamagedNamesAreFoundAndNotConverted) {
  auto single = To<tessera::v1::ConvertRequest>("m.safetensors");
  EXPECT_OK(Run(JobMetadata::CONVERT, single).status());
  auto folder = To<tessera::v1::ConvertRequest>("model");
  folder.set_format(tessera::v1::FORMAT_SAFETENSORS);
  EXPECT_OK(Run(JobMetadata::CONVERT, folder).status());
  const struct {
    std::string source;
    std::string file;
  } cases[] = {{"m.safetensors", "m.safetensors"},
               {"model", "model/model.safetensors"},
               {"source", "source/.metadata"}};
  for (const auto& [source, file] : cases) {
    SCOPED_TRACE(file);
    std::string bytes = dcp::testing::ReadFile(data(file));
    bytes[bytes.find("weight.0")] ^= 1;
    dir_.WriteFile("data/" + file, bytes);
    tessera::v1::VerifyRequest verify;
    verify.mutable_source()->set_path(data(source));
    const auto report =
        Unpack<tessera::v1::VerifyReport>(Run(JobMetadata::VERIFY, verify));
    EXPECT_EQ(report.num_findings(), 1u);
    EXPECT_THAT(report.findings(0).problem(), HasSubstr("is damaged"));
    auto convert = To<tessera::v1::ConvertRequest>("out");
    convert.mutable_source()->set_path(data(source));
    EXPECT_THAT(Run(JobMetadata::CONVERT, convert),
                StatusIs(absl::StatusCode::kDataLoss, HasSubstr("is damaged")));
    convert.mutable_share()->set_count(1);
    EXPECT_THAT(Run(JobMetadata::CONVERT, convert),
                StatusIs(absl::StatusCode::kDataLoss, HasSubstr("is damaged")));
    EXPECT_FALSE(std::filesystem::exists(data("out")));
  }
}

TEST_F(JobRunnerTest, LinksInTheDestinationAreReplacedAndNotFollowed) {
  EXPECT_OK(Run(JobMetadata::CONVERT, To<tessera::v1::ConvertRequest>("out"))
                .status());
  const std::string outside = dir_.WriteFile("outside", "secret");
  for (const char* name : {"__0_0.distcp", "__9_9.distcp"}) {
    const std::string file = data(absl::StrCat("out/", name));
    std::filesystem::remove(file);
    std::filesystem::create_symlink(outside, file);
  }
  auto request = To<tessera::v1::ConvertRequest>("out");
  request.mutable_destination()->set_overwrite(true);
  EXPECT_OK(Run(JobMetadata::CONVERT, request).status());
  EXPECT_OK(CompareCheckpoints(data("source"), data("out")));
  EXPECT_EQ(std::filesystem::file_size(outside), 6u);
  EXPECT_FALSE(std::filesystem::is_symlink(data("out/__0_0.distcp")));
  EXPECT_FALSE(std::filesystem::is_symlink(data("out/__9_9.distcp")));
}

// Runs a job until it has written a file, as one that a killed server left.
class HalfDoneTest : public JobRunnerTest {
 protected:
  JobRequest LeaveHalfDone(const Client& client, absl::string_view name) {
    const auto message = To<tessera::v1::ConvertRequest>(name);
    const auto request =
        runner_->Check(JobMetadata::CONVERT, StableBytes(message), client);
    EXPECT_OK(request);
    JobControls controls;
    std::stop_source stop;
    Fill(controls);
    controls.stop = stop.get_token();
    controls.log.keeps = [] { return true; };
    controls.log.append = [&](const std::string& record) {
      records_.push_back(record);
      if (records_.size() == 2) stop.request_stop();
      return absl::OkStatus();
    };
    EXPECT_THAT(runner_->Run(*request, client.name(), controls).status(),
                StatusIs(absl::StatusCode::kCancelled));
    return *request;
  }

  void Fill(JobControls& controls) {
    controls.on_plan = [](const JobSize&) {};
    controls.on_finishing = [] {};
    controls.log.before = records_;
    controls.log.step_bytes = 1;
    controls.log.append = [this](const std::string& record) {
      records_.push_back(record);
      return absl::OkStatus();
    };
  }

  absl::Status RunAgain(const JobRequest& request, const std::string& client) {
    JobControls controls;
    Fill(controls);
    controls.log.keeps = [] { return true; };
    return runner_->Run(request, client, controls).status();
  }
};

TEST_F(HalfDoneTest, WhoMayNotGoOnLeavesNothing) {
  const std::string before = ListFiles(dir_.path());
  for (const char* name : {"out", "out.safetensors"}) {
    records_.clear();
    const JobRequest request = LeaveHalfDone(*client_, name);
    EXPECT_NE(ListFiles(dir_.path()), before);
    EXPECT_THAT(RunAgain(request, "somebody"),
                StatusIs(absl::StatusCode::kPermissionDenied));
    EXPECT_EQ(ListFiles(dir_.path()), before);
  }
}

TEST_F(HalfDoneTest, WhatNeedsMoreMemoryThanThereIsNowLeavesNothing) {
  const std::string before = ListFiles(dir_.path());
  const JobRequest request = LeaveHalfDone(*client_, "out");
  options_.max_memory_bytes = kMinMemoryBytes - 1;
  EXPECT_THAT(RunAgain(request, "anonymous"),
              StatusIs(absl::StatusCode::kInvalidArgument));
  EXPECT_EQ(ListFiles(dir_.path()), before);
}

TEST_F(HalfDoneTest, WhatTheServerItselfMayNotTouchStays) {
  const JobRequest request = LeaveHalfDone(*client_, "out");
  const std::string left = ListFiles(data("out"));
  EXPECT_NE(left, "");
  options_.roots[0].writable = false;
  *access_ = *Access::Load(options_.roots, "");
  EXPECT_THAT(RunAgain(request, "anonymous"),
              StatusIs(absl::StatusCode::kPermissionDenied));
  EXPECT_EQ(ListFiles(data("out")), left);
}

TEST_F(HalfDoneTest, ADestinationThatLeadsElsewhereIsNotWritten) {
  std::filesystem::create_directory(data("sub"));
  const JobRequest request = LeaveHalfDone(*client_, "sub/out");
  std::filesystem::rename(data("sub"), data("moved"));
  std::filesystem::create_directory_symlink(data("moved"), data("sub"));
  const std::string before = ListFiles(dir_.path());
  EXPECT_THAT(RunAgain(request, "anonymous"),
              StatusIs(absl::StatusCode::kFailedPrecondition));
  EXPECT_EQ(ListFiles(dir_.path()), before);
}

TEST_F(JobRunnerTest, AnErrorNamesItsPath) {
  auto request = To<tessera::v1::ConvertRequest>("out");
  request.mutable_source()->set_path(data("none"));
  EXPECT_EQ(StatusPlace(Run(JobMetadata::CONVERT, request).status()).path,
            data("none"));
  request = To<tessera::v1::ConvertRequest>("source");
  const absl::Status exists = Run(JobMetadata::CONVERT, request).status();
  EXPECT_THAT(exists, StatusIs(absl::StatusCode::kAlreadyExists));
  EXPECT_EQ(StatusPlace(exists).path, data("source"));
}

TEST_F(JobRunnerTest, AnotherSourceUnderTheSameNameIsNoticed) {
  // The job is stopped after a file; then the source is replaced by one of the
  // same layout.
  auto message = To<tessera::v1::ConvertRequest>("out.safetensors");
  message.mutable_source()->set_path(data("model.safetensors"));
  for (const uint64_t seed : {1, 2}) {
    MakeCheckpoint(data("again"), 1, 1 << 16, seed);
    auto request = To<tessera::v1::ConvertRequest>("model.safetensors");
    request.mutable_source()->set_path(data("again"));
    request.mutable_destination()->set_overwrite(true);
    EXPECT_OK(Run(JobMetadata::CONVERT, request).status());
    std::filesystem::remove_all(data("again"));
    const auto job = Check(JobMetadata::CONVERT, message);
    ASSERT_OK(job);
    JobControls controls;
    controls.on_plan = [](const JobSize&) {};
    controls.on_finishing = [] {};
    controls.log.before = records_;
    std::stop_source stop;
    controls.stop = stop.get_token();
    controls.log.keeps = [] { return true; };
    controls.log.append = [&](const std::string& record) {
      records_.push_back(record);
      if (seed == 1 && records_.size() == 2) stop.request_stop();
      return absl::OkStatus();
    };
    const auto result = runner_->Run(*job, "anonymous", controls);
    EXPECT_EQ(result.ok(), seed == 2) << result.status();
  }
  EXPECT_OK(
      CompareCheckpoints(data("model.safetensors"), data("out.safetensors")));
}

}  // namespace
}  // namespace dcp::server
