// SPDX-License-Identifier: Apache-2.0
// Checkpoints and requests for tests of tensor streams.
#ifndef TESTS_SERVER_READING_STREAM_SAMPLES_H_
#define TESTS_SERVER_READING_STREAM_SAMPLES_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "dcp/tensor/dtype.h"
#include "server/process/metrics.h"
#include "tessera/v1/checkpoint_service.pb.h"
#include "tests/server/reading/checkpoint_server.h"
#include "tests/testing/sample_state.h"

namespace dcp::server {

inline constexpr uint64_t kMiB = uint64_t{1} << 20;

inline std::vector<testing::SampleTensor> SomeTensors() {
  std::vector<testing::SampleTensor> tensors;
  tensors.emplace_back("a.weight", DType::kFloat32, Dims{70, 30});
  tensors.emplace_back("a.bias", DType::kBFloat16, Dims{7});
  tensors.emplace_back("empty", DType::kFloat32, Dims{0, 3});
  tensors.emplace_back("scalar", DType::kInt64, Dims{});
  tensors.emplace_back("big", DType::kFloat32, Dims{1500, 1024});  // 6 MB
  return tensors;
}

inline std::string SaveAll(CheckpointServer& server, absl::string_view name,
                           const std::vector<testing::SampleTensor>& tensors) {
  testing::SampleState state;
  for (const testing::SampleTensor& tensor : tensors) state.Add(tensor);
  return server.Save(name, state);
}

inline tessera::v1::ReadTensorsRequest WholeRequest(
    const std::string& path,
    const std::vector<testing::SampleTensor>& tensors) {
  tessera::v1::ReadTensorsRequest request;
  request.mutable_source()->set_path(path);
  for (const testing::SampleTensor& tensor : tensors) {
    request.mutable_parts()->add_parts()->set_name(tensor.fqn);
  }
  return request;
}

inline std::string WholeBytes(
    const std::vector<testing::SampleTensor>& tensors) {
  std::string bytes;
  for (const testing::SampleTensor& tensor : tensors) bytes += tensor.bytes;
  return bytes;
}

inline uint64_t Counter(Metrics& metrics, const std::string& what) {
  const std::string text = metrics.Text();
  const std::string label = absl::StrCat("what=\"", what, "\"} ");
  const size_t at = text.find(label);
  return at == std::string::npos
             ? 0
             : static_cast<uint64_t>(std::stod(text.substr(at + label.size())));
}

}  // namespace dcp::server

#endif  // TESTS_SERVER_READING_STREAM_SAMPLES_H_
