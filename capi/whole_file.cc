// SPDX-License-Identifier: Apache-2.0
// Whole tensors in one file.
//
// Tested by tests/capi/capi_test.cc.
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <stop_token>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "capi/caller_source.h"
#include "capi/handles.h"
#include "capi/tessera.h"
#include "dcp/base/bytes.h"
#include "dcp/base/error_place.h"
#include "dcp/base/limits.h"
#include "dcp/base/status.h"
#include "dcp/checkpoint/files/format.h"
#include "dcp/checkpoint/output/safetensors_output.h"
#include "dcp/checkpoint/save/save.h"
#include "dcp/checkpoint/save/save_state.h"
#include "dcp/checkpoint/save/state_file.h"
#include "dcp/tensor/box.h"
#include "dcp/tensor/dtype.h"

namespace dcp::capi {
namespace {

absl::StatusOr<SaveTensor> MakeSaveTensor(const tessera_region& region,
                                          std::deque<CallerSource>& sources) {
  SaveTensor tensor;
  tensor.fqn = region.name;
  DCP_ASSIGN_OR_RETURN(tensor.dtype, ParseDType(region.dtype));
  DCP_ASSIGN_OR_RETURN(tensor.shape, ParseSizes(region.num_dims, region.sizes));
  const std::optional<uint64_t> num_bytes = CheckedMul(
      static_cast<uint64_t>(Volume(tensor.shape)), ElementSize(tensor.dtype));
  if (num_bytes != region.num_bytes) {
    return absl::InvalidArgumentError(absl::StrCat(
        ShapeToString(tensor.shape), " of ", region.dtype, " does not take ",
        region.num_bytes, " bytes, which the memory has"));
  }
  tensor.box = WholeBox(tensor.shape);
  tensor.source = &sources.emplace_back(region.data, nullptr, nullptr);
  return tensor;
}

struct WholeFile {
  absl::string_view path;
  const char* format;  // or null
  const tessera_region* tensors;
  size_t num_tensors;
  SafetensorsMetadata metadata;
  bool overwrite;
};

absl::StatusOr<Format> FileFormat(const WholeFile& file) {
  if (file.format == nullptr) {
    if (NamesStateFile(file.path)) return *FormatFromSuffix(file.path);
    return absl::InvalidArgumentError(
        absl::StrCat(file.path,
                     " does not end in .safetensors, .pt, .pth or "
                     ".bin, which says the format"));
  }
  DCP_ASSIGN_OR_RETURN(const Format format, ParseFormat(file.format));
  if (format != Format::kDcp) return format;
  return absl::InvalidArgumentError(
      absl::StrCat(file.path, ": one file cannot be ", file.format));
}

absl::Status Write(const WholeFile& file, const tessera_write_options& options,
                   const std::stop_token& stop) {
  DCP_ASSIGN_OR_RETURN(const Format format, FileFormat(file));
  if (!file.metadata.empty() && format != Format::kSafetensors) {
    return absl::InvalidArgumentError(
        absl::StrCat(file.path, ": only safetensors files have metadata"));
  }
  std::deque<CallerSource> sources;  // their addresses stay
  SaveState state;
  for (size_t i = 0; i < file.num_tensors; ++i) {
    absl::StatusOr<SaveTensor> tensor =
        MakeSaveTensor(file.tensors[i], sources);
    if (!tensor.ok()) {
      return WithPlace(Annotate(tensor.status(), file.tensors[i].name),
                       {.tensor = file.tensors[i].name});
    }
    state.tensors.push_back(*std::move(tensor));
  }
  DCP_ASSIGN_OR_RETURN(
      const std::unique_ptr<StateFile> planned,
      StateFile::Plan(
          ProcessFileSystem(), file.path, state,
          file.format == nullptr ? WithFormat(file.metadata) : file.metadata,
          format));
  return planned->Write({.overwrite = file.overwrite,
                         .direct = ToDirectMode(options),
                         .memory_bytes = options.memory_bytes == 0
                                             ? kDefaultMemoryBytes
                                             : options.memory_bytes,
                         .max_rate = options.max_rate,
                         .stop = stop});
}

}  // namespace
}  // namespace dcp::capi

tessera_error* tessera_write_file(
    const char* path, const char* format, const tessera_region* tensors,
    size_t num_tensors, const tessera_pair* metadata, size_t num_pairs,
    int overwrite, const tessera_write_options* options, tessera_stop* stop) {
  dcp::capi::WholeFile file = {.path = path,
                               .format = format,
                               .tensors = tensors,
                               .num_tensors = num_tensors,
                               .metadata = {},
                               .overwrite = overwrite != 0};
  for (size_t i = 0; i < num_pairs; ++i) {
    file.metadata.emplace_back(metadata[i].key, metadata[i].value);
  }
  const absl::Status written = dcp::capi::Write(
      file, options == nullptr ? tessera_write_options{} : *options,
      dcp::capi::StopToken(stop));
  return dcp::capi::MakeError(dcp::WithPlace(written, {.path = path}));
}
