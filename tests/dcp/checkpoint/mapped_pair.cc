// SPDX-License-Identifier: Apache-2.0

#include "tests/dcp/checkpoint/mapped_pair.h"

#include <algorithm>
#include <utility>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "dcp/base/check.h"
#include "dcp/checkpoint/save/coordinator.h"
#include "dcp/checkpoint/save/save.h"
#include "dcp/tensor/box.h"
#include "dcp/tensor/dtype.h"

namespace dcp::testing {
namespace {

constexpr size_t kElement = 4;

SampleTensor WithBytes(std::string name, Dims shape, std::string bytes) {
  SampleTensor tensor(std::move(name), DType::kFloat32, std::move(shape));
  DCP_CHECK(bytes.size() == tensor.bytes.size(), tensor.fqn);
  tensor.bytes = std::move(bytes);
  return tensor;
}

std::string Transposed(const SampleTensor& matrix) {
  const auto rows = static_cast<size_t>(matrix.shape[0]);
  const auto columns = static_cast<size_t>(matrix.shape[1]);
  std::string bytes;
  for (size_t c = 0; c < columns; ++c) {
    for (size_t r = 0; r < rows; ++r) {
      bytes.append(matrix.bytes, (r * columns + c) * kElement, kElement);
    }
  }
  return bytes;
}

}  // namespace

MappedPair::MappedPair(uint64_t seed)
    : q_("x.q", DType::kFloat32, {7, 5}, seed),
      k_("x.k", DType::kFloat32, {4, 5}, seed),
      w_("x.w", DType::kFloat32, {30, 9}, seed),
      emb_("emb", DType::kFloat32, {40, 3}, seed),
      head_(WithBytes("head", emb_.shape, emb_.bytes)) {
  for (SampleTensor tensor : {WithBytes("fused", {11, 5}, q_.bytes + k_.bytes),
                              WithBytes("turned", {9, 30}, Transposed(w_)),
                              WithBytes("table", emb_.shape, emb_.bytes)}) {
    const std::string name = tensor.fqn;
    made_.emplace(name, std::move(tensor));
  }
}

void MappedPair::TearHead(int64_t element) {
  char& byte = head_.bytes[static_cast<size_t>(element) * kElement];
  byte = static_cast<char>(byte ^ 1);
}

void MappedPair::Save(FileSystem& fs, absl::string_view path) const {
  SampleState state;
  for (const SampleTensor* const tensor : {&q_, &k_, &w_, &emb_, &head_}) {
    for (int64_t row = 0; row < tensor->shape[0]; row += 2) {
      Box box = WholeBox(tensor->shape);
      box.offsets[0] = row;
      box.sizes[0] = std::min<int64_t>(2, tensor->shape[0] - row);
      state.Add(*tensor, box);
    }
  }
  SingleProcessCoordinator coordinator;
  const absl::Status saved = dcp::Save(fs, path, state.state(), coordinator,
                                       {.memory_bytes = kMinMemoryBytes});
  DCP_CHECK(saved.ok(), saved.message());
}

std::shared_ptr<const MapSpec> MappedPair::Map(absl::string_view rules) {
  absl::StatusOr<Mapping> mapping = ParseMapping(rules, "pair.yaml");
  DCP_CHECK(mapping.ok(), mapping.status().message());
  return std::make_shared<const MapSpec>(
      MapSpec{.mapping = *std::move(mapping),
              .options = {.from = "theirs", .to = "ours"}});
}

std::unique_ptr<Checkpoint> MappedPair::Open(FileSystem& fs,
                                             absl::string_view path,
                                             absl::string_view rules) {
  absl::StatusOr<std::unique_ptr<Checkpoint>> checkpoint =
      Checkpoint::Open(fs, path, {.map = Map(rules)});
  DCP_CHECK(checkpoint.ok(), checkpoint.status().message());
  return *std::move(checkpoint);
}

}  // namespace dcp::testing
