// SPDX-License-Identifier: Apache-2.0
// Calls that read a checkpoint through a mapping, over a real socket.
#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "dcp/base/error_place.h"
#include "dcp/mapping/language/mapping_limits.h"
#include "dcp/tensor/element.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "proto/error_detail.h"
#include "tests/server/golden_maps.h"
#include "tests/server/reading/checkpoint_server.h"
#include "tests/testing/status_matchers.h"

namespace dcp::server {
namespace {

namespace v1 = ::tessera::v1;

using ::dcp::testing::ArrayTensor;
using ::dcp::testing::GoldenLines;
using ::dcp::testing::GoldenPair;
using ::dcp::testing::GoldenPairs;
using ::dcp::testing::LinesOf;
using ::dcp::testing::StatusIs;
using ::testing::ElementsAreArray;
using ::testing::HasSubstr;
using ::testing::StartsWith;

using ::dcp::testing::kInvalid;

const GoldenPair kLlama = {
    .mapping = "llama", .model = "llama", .side = "megatron", .judge = ""};

class MappedReadingTest : public ::testing::Test {
 protected:
  v1::Source MakeSource(const GoldenPair& pair) {
    v1::Source source;
    source.set_path(CopyModel(pair, server_.Path("")));
    *source.mutable_map() = PairMapSpec(pair);
    return source;
  }

  absl::StatusOr<v1::InspectResponse> Inspect(const v1::Source& source) {
    grpc::ClientContext context;
    v1::InspectRequest request;
    *request.mutable_source() = source;
    v1::InspectResponse response;
    const absl::Status status = FromRpcStatus(
        server_.stub().Inspect(&context, request, &response), "Inspect");
    if (!status.ok()) return status;
    return response;
  }

  // All tensors, in the order in which Inspect lists them.
  std::vector<ArrayTensor> ReadAll(const v1::Source& source) {
    const absl::StatusOr<v1::InspectResponse> inspected = Inspect(source);
    EXPECT_OK(inspected);
    if (!inspected.ok()) return {};
    v1::ReadTensorsRequest request;
    *request.mutable_source() = source;
    for (const v1::Tensor& tensor : inspected->tensors()) {
      request.mutable_parts()->add_parts()->set_name(tensor.name());
    }
    return ReceivedTensors(server_.Read(request));
  }

  static std::vector<ArrayTensor> ReceivedTensors(const Received& received) {
    EXPECT_OK(received.status);
    std::vector<ArrayTensor> tensors;
    size_t begin = 0;
    for (const auto& part : received.header.parts()) {
      tensors.push_back(
          {.tensor = {.name = part.name(),
                      .dtype = *ParseDType(part.dtype()),
                      .shape = Dims(part.shape().begin(), part.shape().end())},
           .bytes = received.bytes.substr(begin, part.num_bytes())});
      begin += part.num_bytes();
    }
    EXPECT_EQ(begin, received.bytes.size());
    return tensors;
  }

  absl::StatusOr<v1::DiffReport> Diff(const v1::Source& a,
                                      const v1::Source& b) {
    grpc::ClientContext context;
    v1::DiffRequest request;
    *request.mutable_a() = a;
    *request.mutable_b() = b;
    request.set_tensors_only(true);
    const auto reader = server_.stub().Diff(&context, request);
    v1::DiffResponse response;
    v1::DiffReport report;
    while (reader->Read(&response)) report = response.report();
    const absl::Status status = FromRpcStatus(reader->Finish(), "Diff");
    if (!status.ok()) return status;
    return report;
  }

  CheckpointServer server_;
};

// Stands for another program's job, which has no copy on a disk.
TEST_F(MappedReadingTest, ReadsEveryPairAsTheProgramWroteIt) {
  for (const GoldenPair& pair : GoldenPairs()) {
    SCOPED_TRACE(::testing::PrintToString(pair));
    const v1::Source source = MakeSource(pair);
    const std::vector<std::string> lines = LinesOf(ReadAll(source));
    EXPECT_THAT(lines,
                ElementsAreArray(
                    pair.judge.empty()
                        ? LinesOf(ConvertHere(source.path(), source.map(),
                                              server_.Path("here.safetensors")))
                        : GoldenLines(pair.model, pair.judge)));
  }
}

// GPT-2's matrices are transposed there.
TEST_F(MappedReadingTest, BoxesAreInTheOtherSpelling) {
  const v1::Source source = MakeSource(
      {.mapping = "gpt2", .model = "gpt2", .side = "plain", .judge = ""});
  const std::vector<ArrayTensor> whole = ReadAll(source);
  v1::ReadTensorsRequest request;
  *request.mutable_source() = source;
  std::string expected;
  for (const ArrayTensor& array : whole) {
    const Dims& shape = array.tensor.shape;
    if (shape.size() != 2 || shape[0] < 4 || shape[1] < 4) continue;
    auto& part = *request.mutable_parts()->add_parts();
    part.set_name(array.tensor.name);
    for (const int64_t size : shape) {
      part.mutable_box()->add_offsets(1);
      part.mutable_box()->add_sizes(size - 2);
    }
    const size_t element = ElementSize(array.tensor.dtype);
    const auto row = static_cast<size_t>(shape[1]) * element;
    for (int64_t i = 1; i + 1 < shape[0]; ++i) {
      expected += array.bytes.substr(static_cast<size_t>(i) * row + element,
                                     row - 2 * element);
    }
  }
  ASSERT_FALSE(expected.empty());
  const Received received = server_.Read(request);
  ASSERT_OK(received.status);
  EXPECT_EQ(received.bytes, expected);
}

TEST_F(MappedReadingTest, ARankReadsShardsInTheOtherSpelling) {
  const v1::Source source = MakeSource(kLlama);
  const std::vector<ArrayTensor> whole = ReadAll(source);
  std::vector<std::string> joined(whole.size());
  for (int64_t rank = 0; rank < 3; ++rank) {
    v1::ReadTensorsRequest request;
    *request.mutable_source() = source;
    auto& axis = *request.mutable_rank_parts()->mutable_mesh()->add_axes();
    axis.set_name("shard");
    axis.set_size(3);
    request.mutable_rank_parts()->add_coordinate(rank);
    const std::vector<ArrayTensor> parts =
        ReceivedTensors(server_.Read(request));
    ASSERT_EQ(parts.size(), whole.size());
    for (size_t i = 0; i < parts.size(); ++i) joined[i] += parts[i].bytes;
  }
  for (size_t i = 0; i < whole.size(); ++i) {
    EXPECT_EQ(joined[i], whole[i].bytes) << whole[i].tensor.name;
  }
}

TEST_F(MappedReadingTest, DiffComparesAcrossSpellings) {
  const v1::Source a = MakeSource(kLlama);
  v1::Source b;
  b.set_path(server_.Path("megatron.safetensors"));
  const size_t num_tensors = ConvertHere(a.path(), a.map(), b.path()).size();
  ASSERT_OK_AND_ASSIGN(v1::DiffReport report, Diff(a, b));
  EXPECT_EQ(report.num_findings(), 0u);
  EXPECT_EQ(report.num_tensors_equal(), num_tensors);
  const std::unique_ptr<FileSystem> fs = NewPosixFileSystem();
  ASSERT_OK_AND_ASSIGN(std::string bytes,
                       ReadFile(*fs, b.path(), 1 << 24, true));
  bytes.back() = static_cast<char>(bytes.back() ^ 1);
  std::filesystem::remove(b.path());
  ASSERT_OK(WriteFile(*fs, b.path(), bytes));
  ASSERT_OK_AND_ASSIGN(report, Diff(a, b));
  EXPECT_EQ(report.num_findings(), 1u);
  // The error names the other side's mapping.
  v1::Source bad = b;
  *bad.mutable_map() = a.map();
  bad.mutable_map()->set_to_side("mars");
  EXPECT_EQ(BlamedField(Diff(a, bad).status()), "b.map.to_side");
}

TEST_F(MappedReadingTest, NamesBadMappings) {
  const struct {
    std::function<void(v1::MapSpec&)> change;
    std::string field;
    std::string says;
  } cases[] = {
      {[](v1::MapSpec& map) { map.set_yaml("tessera-mapping: 1"); },
       "source.map", "has both builtin and yaml"},
      {[](v1::MapSpec& map) {
         map.clear_builtin();
         map.set_yaml(std::string(kMaxMappingBytes + 1, '#'));
       },
       "source.map.yaml", "at most 1048576 are allowed"},
      {[](v1::MapSpec& map) {
         map.clear_builtin();
         map.set_yaml("tessera-mapping: 1\nrulez: 1\n");
         map.set_yaml_name("mine.yaml");
       },
       "source.map.yaml", "mine.yaml:2:1"},
      {[](v1::MapSpec& map) { map.set_from_side("mars"); },
       "source.map.from_side", "has no side 'mars'; it has hf"},
      {[](v1::MapSpec& map) { map.set_config_json("{}"); }, "source.map",
       "is in neither config.json"},
      {[](v1::MapSpec& map) { map.set_config_json("["); }, "source.map",
       "config.json"},
      {[](v1::MapSpec& map) { (*map.mutable_settings())["wings"] = 2; },
       "source.map", "wings"},
  };
  const v1::Source source = MakeSource(kLlama);
  const uint64_t used_bytes = server_.budget().used_bytes();
  for (const auto& [change, field, says] : cases) {
    v1::Source bad = source;
    change(*bad.mutable_map());
    v1::ReadTensorsRequest request;
    *request.mutable_source() = bad;
    request.mutable_parts();
    for (const absl::Status& status :
         {Inspect(bad).status(), server_.Read(request).status}) {
      EXPECT_THAT(status, StatusIs(kInvalid, HasSubstr(says)));
      EXPECT_EQ(BlamedField(status), field) << says;
    }
  }
  EXPECT_OK(Inspect(source));
  EXPECT_EQ(server_.budget().used_bytes(), used_bytes);
}

// The checkpoint is not damaged: it is another model, or lacks a layer.
TEST_F(MappedReadingTest, NamesRulesThatDoNotFit) {
  const struct {
    std::function<void(v1::MapSpec&)> change;
    std::string says;
  } cases[] = {
      {[](v1::MapSpec& map) {
         map.clear_builtin();
         map.set_yaml(
             "tessera-mapping: 1\nname: other\nsides: {hf: , megatron: }\n"
             "rules:\n- {hf: wte.weight, megatron: emb.weight}\n");
         map.set_yaml_name("other.yaml");
       },
       "other.yaml:5: nothing is found for wte.weight"},
      {[](v1::MapSpec& map) {
         (*map.mutable_settings())["num_hidden_layers"] = 100;
       },
       "lacks i = "},
  };
  const v1::Source source = MakeSource(kLlama);
  for (const auto& [change, says] : cases) {
    v1::Source other = source;
    change(*other.mutable_map());
    v1::ReadTensorsRequest request;
    *request.mutable_source() = other;
    request.mutable_parts();
    for (const absl::Status& status :
         {Inspect(other).status(), server_.Read(request).status,
          Diff(source, other).status()}) {
      EXPECT_THAT(status, StatusIs(absl::StatusCode::kFailedPrecondition,
                                   HasSubstr(says)));
      EXPECT_EQ(ErrorReasonName(status), "MAPPING_DOES_NOT_FIT");
      EXPECT_EQ(StatusPlace(status).path, source.path());
    }
  }
  EXPECT_OK(Inspect(source));
}

TEST_F(MappedReadingTest, InspectShowsTheSourcesOfATensor) {
  const v1::Source source = MakeSource(kLlama);
  ASSERT_OK_AND_ASSIGN(const v1::InspectResponse mapped, Inspect(source));
  const auto fused =
      std::find_if(mapped.tensors().begin(), mapped.tensors().end(),
                   [](const v1::Tensor& tensor) {
                     return tensor.name() ==
                            "decoder.layers.0.self_attention.linear_qkv.weight";
                   });
  ASSERT_NE(fused, mapped.tensors().end());
  for (const char* const name : {"q_proj", "k_proj", "v_proj"}) {
    EXPECT_THAT(
        fused->made_of(),
        HasSubstr(absl::StrCat("model.layers.0.self_attn.", name, ".weight")));
  }
  v1::Source plain = source;
  plain.clear_map();
  ASSERT_OK_AND_ASSIGN(const v1::InspectResponse stored, Inspect(plain));
  EXPECT_EQ(stored.tensors(0).made_of(), "");
}

TEST_F(MappedReadingTest, FileCallsRefuseAMapping) {
  const v1::Source source = MakeSource(kLlama);
  grpc::ClientContext metadata_context;
  v1::GetMetadataRequest metadata;
  *metadata.mutable_source() = source;
  v1::GetMetadataResponse described;
  const auto describer =
      server_.stub().GetMetadata(&metadata_context, metadata);
  EXPECT_FALSE(describer->Read(&described));
  EXPECT_THAT(FromRpcStatus(describer->Finish(), "GetMetadata"),
              StatusIs(kInvalid, HasSubstr("source.map is set")));
  grpc::ClientContext verify_context;
  v1::VerifyCheckpointRequest verify;
  *verify.mutable_source() = source;
  v1::VerifyCheckpointResponse verified;
  const auto verifier = server_.stub().Verify(&verify_context, verify);
  EXPECT_FALSE(verifier->Read(&verified));
  EXPECT_THAT(FromRpcStatus(verifier->Finish(), "Verify"),
              StatusIs(kInvalid, HasSubstr("source.map is set")));
}

// The embeddings of a tied model; one copy was changed.
TEST_F(MappedReadingTest, RefusesToLoseATensorThatIsNotTied) {
  const v1::Source hf = MakeSource({.mapping = "llama",
                                    .model = "llama_tied",
                                    .side = "torchtitan",
                                    .judge = ""});
  v1::Source back = hf;
  back.set_path(server_.Path("llama_tied/back.safetensors"));
  back.mutable_map()->set_from_side("torchtitan");
  back.mutable_map()->set_to_side("hf");
  const std::vector<ArrayTensor> tied =
      ConvertHere(hf.path(), hf.map(), back.path());
  EXPECT_OK(Inspect(back));
  const std::unique_ptr<FileSystem> fs = NewPosixFileSystem();
  ASSERT_OK_AND_ASSIGN(std::string bytes,
                       ReadFile(*fs, back.path(), 1 << 24, true));
  const auto head =
      std::find_if(tied.begin(), tied.end(), [](const ArrayTensor& array) {
        return array.tensor.name == "lm_head.weight";
      });
  ASSERT_NE(head, tied.end());
  const size_t at = bytes.find(head->bytes);
  ASSERT_NE(at, std::string::npos);
  bytes[at] = static_cast<char>(bytes[at] ^ 1);
  std::filesystem::remove(back.path());
  ASSERT_OK(WriteFile(*fs, back.path(), bytes));
  v1::ReadTensorsRequest request;
  *request.mutable_source() = back;
  request.mutable_parts()->add_parts()->set_name("model.norm.weight");
  EXPECT_THAT(server_.Read(request).status,
              StatusIs(absl::StatusCode::kFailedPrecondition,
                       HasSubstr("elements differ, the first at")));
}

TEST_F(MappedReadingTest, EtagsDependOnTheMapping) {
  const v1::Source megatron = MakeSource(kLlama);
  v1::Source plain = megatron;
  plain.clear_map();
  v1::Source torchtitan = megatron;
  torchtitan.mutable_map()->set_to_side("torchtitan");
  ASSERT_OK_AND_ASSIGN(const v1::InspectResponse as_megatron,
                       Inspect(megatron));
  ASSERT_OK_AND_ASSIGN(const v1::InspectResponse as_torchtitan,
                       Inspect(torchtitan));
  ASSERT_OK_AND_ASSIGN(const v1::InspectResponse as_it_is, Inspect(plain));
  ASSERT_OK_AND_ASSIGN(const v1::InspectResponse again, Inspect(megatron));
  EXPECT_NE(as_megatron.num_tensors(), as_it_is.num_tensors());
  EXPECT_NE(as_megatron.etag(), as_torchtitan.etag());
  EXPECT_NE(as_megatron.etag(), as_it_is.etag());
  EXPECT_EQ(as_megatron.etag(), again.etag());
  v1::ReadTensorsRequest request;
  *request.mutable_source() = torchtitan;
  request.mutable_parts()->add_parts()->set_name("norm.weight");
  request.set_etag(as_megatron.etag());
  EXPECT_THAT(server_.Read(request).status,
              StatusIs(absl::StatusCode::kFailedPrecondition));
  request.set_etag(as_torchtitan.etag());
  EXPECT_OK(server_.Read(request).status);
}

TEST_F(MappedReadingTest, DetectsAReplacedConfig) {
  const v1::Source source = MakeSource(kLlama);
  ASSERT_OK_AND_ASSIGN(const v1::InspectResponse before, Inspect(source));
  const std::unique_ptr<FileSystem> fs = NewPosixFileSystem();
  const std::string config = server_.Path("llama/config.json");
  std::filesystem::remove(config);
  EXPECT_THAT(Inspect(source).status(),
              StatusIs(kInvalid, HasSubstr("is in neither config.json")));
  // A file next to the directory does not count as one in it.
  ASSERT_OK(WriteFile(*fs, server_.Path("config.json"),
                      testing::GoldenConfig("llama")));
  EXPECT_FALSE(Inspect(source).ok());
  v1::Source directory = source;
  directory.set_path(server_.Path("llama"));
  EXPECT_OK(Inspect(directory));
  ASSERT_OK(WriteFile(*fs, config, testing::GoldenConfig("llama") + " "));
  ASSERT_OK_AND_ASSIGN(const v1::InspectResponse after, Inspect(source));
  EXPECT_NE(after.etag(), before.etag());
}

TEST_F(MappedReadingTest, DoesNotReadAConfigOutsideTheRoots) {
  const v1::Source source = MakeSource(kLlama);
  const std::string config = server_.Path("llama/config.json");
  const testing::TempDir elsewhere;
  std::filesystem::rename(config, elsewhere.Join("config.json"));
  std::filesystem::create_symlink(elsewhere.Join("config.json"), config);
  EXPECT_THAT(Inspect(source).status(),
              StatusIs(kInvalid, HasSubstr("is in neither config.json")));
  std::filesystem::rename(elsewhere.Join("config.json"),
                          server_.Path("inside.json"));
  std::filesystem::remove(config);
  std::filesystem::create_symlink("../inside.json", config);
  EXPECT_OK(Inspect(source));
}

TEST_F(MappedReadingTest, RuleFilesUseTheClientsMemory) {
  const v1::Source source = MakeSource(kLlama);
  v1::Source large = source;
  large.mutable_map()->clear_builtin();
  large.mutable_map()->set_yaml(std::string(kMaxMappingBytes, '#'));
  EXPECT_THAT(Inspect(large), StatusIs(kInvalid, StartsWith("Inspect: ")));
  ServerOptions options;
  options.max_memory_bytes = uint64_t{128} << 20;
  CheckpointServer small(options);
  large.set_path(CopyModel(kLlama, small.Path("")));
  grpc::ClientContext context;
  v1::InspectRequest request;
  *request.mutable_source() = large;
  v1::InspectResponse response;
  const absl::Status status = FromRpcStatus(
      small.stub().Inspect(&context, request, &response), "Inspect");
  EXPECT_THAT(status, StatusIs(absl::StatusCode::kResourceExhausted));
}

}  // namespace
}  // namespace dcp::server
