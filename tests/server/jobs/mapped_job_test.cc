// SPDX-License-Identifier: Apache-2.0
// Jobs that read their source through a mapping, over a real socket.
#include <atomic>
#include <filesystem>
#include <memory>
#include <string>
#include <tuple>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "dcp/base/limits.h"
#include "dcp/base/log.h"
#include "dcp/checkpoint/diff/diff.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "proto/error_detail.h"
#include "proto/rpc_status.h"
#include "tests/server/golden_maps.h"
#include "tests/server/jobs/job_fixture.h"
#include "tests/testing/status_matchers.h"

namespace dcp::server {
namespace {

namespace v1 = ::tessera::v1;

using ::dcp::testing::GoldenLines;
using ::dcp::testing::GoldenPair;
using ::dcp::testing::LinesOf;
using ::dcp::testing::StatusIs;
using ::dcp::testing::TensorsIn;
using ::testing::ElementsAreArray;
using ::testing::HasSubstr;

using ::dcp::testing::kInvalid;

// For the tensors of MakeCheckpoint.
constexpr absl::string_view kRules = R"(tessera-mapping: 1
name: transposed
sides: {here: , there: }
rules:
- here: {"weight.{i}": r c}
  there: {"layers.{i}.w": c r}
- here: scalar
  there: step
)";

class MappedJobTest : public JobFixture {
 protected:
  template <typename Request>
  Request To(absl::string_view destination, const std::string& source,
             const v1::MapSpec& map) {
    Request request;
    request.mutable_source()->set_path(source);
    *request.mutable_source()->mutable_map() = map;
    request.mutable_destination()->set_path(server_->data(destination));
    request.mutable_options()->set_memory_bytes(2 * kMinMemoryBytes);
    return request;
  }

  static v1::MapSpec Transposed() {
    v1::MapSpec map;
    map.set_yaml(std::string(kRules));
    map.set_from_side("here");
    map.set_to_side("there");
    return map;
  }

  template <typename Request>
  static void SetMesh(int64_t num_ranks, Request& request) {
    v1::Mesh::Axis& axis = *request.mutable_mesh()->add_axes();
    axis.set_name("shard");
    axis.set_size(num_ranks);
  }

  // How the job of an accepted request ends.
  absl::Status EndOf(const grpc::Status& accepted, const Operation& operation) {
    const absl::Status status = FromRpcStatus(accepted, "Submit");
    if (!status.ok()) return status;
    const auto ended = server_->Wait(operation.name());
    return ended.ok() ? ErrorOf(*ended) : ended.status();
  }

  absl::Status Run(const v1::ConvertRequest& request) {
    grpc::ClientContext context;
    Operation operation;
    const grpc::Status accepted =
        server_->jobs().Convert(&context, request, &operation);
    return EndOf(accepted, operation);
  }
  absl::Status Run(const v1::ReshardRequest& request) {
    grpc::ClientContext context;
    Operation operation;
    const grpc::Status accepted =
        server_->jobs().Reshard(&context, request, &operation);
    return EndOf(accepted, operation);
  }
  absl::Status Run(const v1::ConsolidateRequest& request) {
    grpc::ClientContext context;
    Operation operation;
    const grpc::Status accepted =
        server_->jobs().Consolidate(&context, request, &operation);
    return EndOf(accepted, operation);
  }

  // Compares `source` through the mapping with what a job made of it.
  void ExpectEqual(const std::string& source, const v1::MapSpec& map,
                   absl::string_view destination) {
    const std::unique_ptr<FileSystem> fs = NewPosixFileSystem();
    DiffOptions options;
    options.open = OpenThrough(*fs, source, map);
    options.tensors_only = true;
    options.memory_bytes = 2 * kMinMemoryBytes;
    const absl::StatusOr<DiffReport> report = DiffCheckpoints(
        *fs, source, server_->data(destination), std::move(options));
    ASSERT_OK(report);
    EXPECT_TRUE(report->findings.empty()) << report->findings[0].name;
    EXPECT_GT(report->num_tensors_equal, 0u);
  }
};

TEST_F(MappedJobTest, EveryKindMakesWhatTheProgramMade) {
  for (const GoldenPair& pair : {
           GoldenPair{.mapping = "llama",
          .model = "llama",
          .side = "megatron_stacked",
          .judge = "megatron_dist_padded",
          .settings = {{"vocab_multiple", 64}}},
           GoldenPair{.mapping = "gpt2",
           .model = "gpt2",
           .side = "plain",
           .judge = "plain"},
           GoldenPair{.mapping = "llama",
           .model = "llama",
           .side = "torchtitan",
           .judge = "torchtitan_optim",
           .file = "hf_optim"},
       }) {
    SCOPED_TRACE(::testing::PrintToString(pair));
    const std::string source = CopyModel(pair, server_->data(""));
    const v1::MapSpec map = PairMapSpec(pair);
    auto convert = To<v1::ConvertRequest>("converted.safetensors", source, map);
    convert.mutable_destination()->set_overwrite(true);
    ASSERT_OK(Run(convert));
    EXPECT_THAT(LinesOf(TensorsIn(server_->data("converted.safetensors"))),
                ElementsAreArray(GoldenLines(pair.model, pair.judge)));
    auto reshard = To<v1::ReshardRequest>("resharded", source, map);
    reshard.mutable_destination()->set_overwrite(true);
    SetMesh(3, reshard);
    ASSERT_OK(Run(reshard));
    ExpectEqual(source, map, "resharded");
    auto consolidate =
        To<v1::ConsolidateRequest>("whole.safetensors", source, map);
    consolidate.mutable_destination()->set_overwrite(true);
    ASSERT_OK(Run(consolidate));
    EXPECT_THAT(LinesOf(TensorsIn(server_->data("whole.safetensors"))),
                ElementsAreArray(GoldenLines(pair.model, pair.judge)));
  }
}

TEST_F(MappedJobTest, APlanSaysWhatTheMappingDoes) {
  auto request =
      To<v1::ConvertRequest>("out", server_->data("source"), Transposed());
  request.mutable_options()->set_validate_only(true);
  const auto operation = server_->Convert(request);
  ASSERT_OK(operation);
  v1::ConvertResult result;
  ASSERT_TRUE(operation->response().UnpackTo(&result));
  EXPECT_EQ(result.map().name(), "transposed");
  EXPECT_EQ(result.map().to_side(), "there");
  ASSERT_EQ(result.map().rules_size(), 2);
  EXPECT_EQ(result.map().rules(0).num_instances(), 4u);
  EXPECT_FALSE(std::filesystem::exists(server_->data("out")));
}

// The rules are nowhere but in the record of the job.
TEST_F(MappedJobTest, AJobGoesOnThroughItsMappingAfterARestart) {
  auto request =
      To<v1::ConvertRequest>("out", server_->data("source"), Transposed());
  SetMesh(kNumFiles, request);
  std::string name;
  {
    Gate gate(*server_, "Create", "out/__3_0");
    const auto operation = server_->Convert(request);
    ASSERT_OK(operation);
    name = operation->name();
    gate.WaitUntilReached();
    gate.OpenWhenDraining(name);
    server_->Stop();
  }
  // The job stopped between two files, unless it was faster than the stop.
  const bool stopped = !std::filesystem::exists(server_->data("out/.metadata"));
  std::atomic<bool> begins_anew = false;
  SetLogSink([&](LogSeverity, absl::string_view line) {
    if (absl::StrContains(line, "conversion_begins_anew")) begins_anew = true;
  });
  Start();
  const auto ended = server_->Wait(name);
  SetLogSink([](LogSeverity, absl::string_view) {});
  ASSERT_OK(ended);
  EXPECT_OK(ErrorOf(*ended));
  EXPECT_FALSE(begins_anew);
  EXPECT_EQ(MetadataOf(*ended).num_restarts(), stopped ? 1u : 0u);
  ExpectEqual(server_->data("source"), Transposed(), "out");
}

TEST_F(MappedJobTest, TheSameRequestIsTheSameJob) {
  auto request =
      To<v1::ConvertRequest>("out", server_->data("source"), Transposed());
  // In any order of the settings.
  for (int i = 0; i < 50; ++i) {
    (*request.mutable_source()->mutable_map()->mutable_settings())[absl::StrCat(
        "n", i)] = i;
  }
  request.mutable_options()->set_request_id(
      "f47ac10b-58cc-4372-a567-0e02b2c3d479");
  const auto first = server_->Convert(request);
  ASSERT_OK(first);
  const auto second = server_->Convert(request);
  ASSERT_OK(second);
  EXPECT_EQ(first->name(), second->name());
  // Nothing in the rules refers to these numbers.
  EXPECT_THAT(ErrorOf(*server_->Wait(first->name())),
              StatusIs(kInvalid, HasSubstr("n0")));
  EXPECT_FALSE(std::filesystem::exists(server_->data("out")));
}

TEST_F(MappedJobTest, BadMappingsAreRefusedBeforeTheJobBegins) {
  const std::string source = server_->data("source");
  v1::MapSpec sides = Transposed();
  sides.set_to_side("mars");
  v1::MapSpec rules = Transposed();
  rules.set_yaml("tessera-mapping: 1\nrulez: 1\n");
  v1::MapSpec both = Transposed();
  both.set_builtin("llama");
  for (const auto& [map, field, says] : {
           std::tuple(sides, "source.map.to_side", "has no side 'mars'"),
           std::tuple(rules, "source.map.yaml", "rules.yaml:2:1"),
           std::tuple(both, "source.map", "both builtin and yaml"),
       }) {
    const absl::Status status =
        server_->Convert(To<v1::ConvertRequest>("out", source, map)).status();
    EXPECT_THAT(status, StatusIs(kInvalid, HasSubstr(says)));
    EXPECT_EQ(BlamedField(status), field);
  }
  v1::VerifyRequest verify;
  verify.mutable_source()->set_path(source);
  *verify.mutable_source()->mutable_map() = Transposed();
  grpc::ClientContext context;
  Operation operation;
  EXPECT_THAT(
      FromRpcStatus(server_->jobs().Verify(&context, verify, &operation), ""),
      StatusIs(kInvalid, HasSubstr("source.map is set")));
}

TEST_F(MappedJobTest, RulesThatDoNotFitAreNotDamage) {
  v1::MapSpec other = Transposed();
  other.set_yaml(absl::StrReplaceAll(kRules, {{"scalar", "absent"}}));
  const absl::Status status =
      Run(To<v1::ConvertRequest>("out", server_->data("source"), other));
  EXPECT_THAT(status,
              StatusIs(absl::StatusCode::kFailedPrecondition,
                       HasSubstr("rules.yaml:7: nothing is found for absent")));
  EXPECT_EQ(ErrorReasonName(status), "MAPPING_DOES_NOT_FIT");
  EXPECT_FALSE(std::filesystem::exists(server_->data("out")));
}

TEST_F(MappedJobTest, AConfigOutsideTheRootsIsNotRead) {
  const GoldenPair pair = {
      .mapping = "llama", .model = "llama", .side = "megatron", .judge = ""};
  const std::string source = CopyModel(pair, server_->data(""));
  const std::string config = server_->data("llama/config.json");
  const testing::TempDir elsewhere;
  std::filesystem::rename(config, elsewhere.Join("config.json"));
  std::filesystem::create_symlink(elsewhere.Join("config.json"), config);
  const auto request = To<v1::ConvertRequest>("out", source, PairMapSpec(pair));
  EXPECT_THAT(Run(request),
              StatusIs(kInvalid, HasSubstr("is in neither config.json")));
  EXPECT_FALSE(std::filesystem::exists(server_->data("out")));
  std::filesystem::remove(config);
  const std::unique_ptr<FileSystem> fs = NewPosixFileSystem();
  ASSERT_OK(WriteFile(*fs, config, std::string(2 << 20, ' ')));
  EXPECT_THAT(Run(request), StatusIs(absl::StatusCode::kResourceExhausted,
                                     HasSubstr("llama/config.json")));
}

}  // namespace
}  // namespace dcp::server
