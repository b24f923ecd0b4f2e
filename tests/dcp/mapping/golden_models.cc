// SPDX-License-Identifier: Apache-2.0

#include "tests/dcp/mapping/golden_models.h"

#include <algorithm>
#include <fstream>
#include <iterator>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "dcp/base/check.h"
#include "dcp/format/safetensors/safetensors.h"
#include "tests/testing/sha256.h"

namespace dcp::testing {
namespace {

std::string ReadAll(const std::string& path) {
  std::ifstream stream(path, std::ios::binary);
  DCP_CHECK(stream.good(), path);
  return std::string(std::istreambuf_iterator<char>(stream), {});
}

}  // namespace

std::string GoldenConfig(absl::string_view model) {
  return ReadAll(GoldenPath(model, "config.json"));
}

std::string GoldenPath(absl::string_view model, absl::string_view file) {
  return absl::StrCat("tests/golden/mappings/", model, "/", file);
}

std::vector<ArrayTensor> GoldenTensors(absl::string_view model,
                                       absl::string_view file) {
  return TensorsIn(GoldenPath(model, absl::StrCat(file, ".safetensors")));
}

std::vector<ArrayTensor> TensorsIn(const std::string& path) {
  const std::string text = ReadAll(path);
  const absl::StatusOr<SafetensorsHeader> header = ReadSafetensorsHeader(
      text.size(),
      [&](uint64_t offset, uint64_t length) -> absl::StatusOr<ByteSpan> {
        return AsBytes(absl::string_view(text).substr(offset, length));
      });
  DCP_CHECK(header.ok(), header.status().message());
  std::vector<ArrayTensor> tensors;
  for (const SafetensorsTensor& tensor : header->tensors) {
    tensors.push_back({.tensor = {.name = tensor.name,
                                  .dtype = tensor.dtype,
                                  .shape = tensor.shape},
                       .bytes = text.substr(header->data_offset + tensor.begin,
                                            tensor.end - tensor.begin)});
  }
  std::sort(tensors.begin(), tensors.end(),
            [](const ArrayTensor& a, const ArrayTensor& b) {
              return a.tensor.name < b.tensor.name;
            });
  return tensors;
}

std::vector<std::string> GoldenLines(absl::string_view model,
                                     absl::string_view file) {
  return absl::StrSplit(ReadAll(GoldenPath(model, absl::StrCat(file, ".txt"))),
                        '\n', absl::SkipEmpty());
}

std::vector<std::string> LinesOf(absl::Span<const ArrayTensor> tensors) {
  std::vector<std::string> lines;
  for (const ArrayTensor& array : tensors) {
    lines.push_back(absl::StrCat(array.tensor.name, " ",
                                 SafetensorsName(array.tensor.dtype), " [",
                                 absl::StrJoin(array.tensor.shape, ","), "] ",
                                 Sha256(array.bytes).substr(0, 16)));
  }
  return lines;
}

}  // namespace dcp::testing
