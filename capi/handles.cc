// SPDX-License-Identifier: Apache-2.0
// Makes errors and checks arguments.
//
// Tested by tests/capi/capi_test.cc.
#include "capi/handles.h"

#include <memory>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "dcp/base/bytes.h"
#include "dcp/base/checksum.h"
#include "dcp/base/limits.h"
#include "dcp/base/version.h"
#include "dcp/io/file_systems/default_file_system.h"

namespace dcp::capi {

tessera_error* MakeError(const absl::Status& status) {
  if (status.ok()) return nullptr;
  return new tessera_error{.status = status,
                           .message = std::string(status.message()),
                           .place = StatusPlace(status)};
}

tessera_bytes* MakeBytes(std::string value) {
  return new tessera_bytes{.value = std::move(value)};
}

std::stop_token StopToken(const tessera_stop* stop) {
  return stop == nullptr ? std::stop_token() : stop->source.get_token();
}

absl::StatusOr<DType> ParseDType(const char* name) {
  const std::optional<DType> dtype =
      name == nullptr ? std::nullopt : DTypeFromTorchName(name);
  if (dtype.has_value()) return *dtype;
  return absl::InvalidArgumentError(
      absl::StrCat("'", name == nullptr ? "" : name,
                   "' is not the name of a dtype, such as 'float32'"));
}

absl::StatusOr<Dims> ParseSizes(size_t num_dims, const int64_t* sizes) {
  if (num_dims > kMaxDims) {
    return absl::InvalidArgumentError(absl::StrCat(
        num_dims, " dimensions, but a tensor has at most ", kMaxDims));
  }
  Dims dims(sizes, sizes + num_dims);
  if (!CheckedVolume(dims).has_value()) {
    return absl::InvalidArgumentError(
        absl::StrCat(ShapeToString(dims),
                     ": a size is negative, or the product is too large"));
  }
  return dims;
}

DirectMode ToDirectMode(const tessera_write_options& options) {
  if (options.direct == 1) return DirectMode::kOn;
  return options.direct == 2 ? DirectMode::kOff : DirectMode::kAuto;
}

FileSystem& ProcessFileSystem() {
  // Never destroyed, because other threads may still use it at exit.
  static FileSystem& fs = *NewDefaultFileSystem().release();
  return fs;
}

}  // namespace dcp::capi

int tessera_error_code(const tessera_error* error) {
  return static_cast<int>(error->status.code());
}
const char* tessera_error_message(const tessera_error* error) {
  return error->message.c_str();
}
const char* tessera_error_path(const tessera_error* error) {
  return error->place.path.c_str();
}
const char* tessera_error_file(const tessera_error* error) {
  return error->place.file.c_str();
}
const char* tessera_error_tensor(const tessera_error* error) {
  return error->place.tensor.c_str();
}
const char* tessera_error_offset(const tessera_error* error) {
  return error->place.offset.c_str();
}
void tessera_error_free(tessera_error* error) { delete error; }

const uint8_t* tessera_bytes_data(const tessera_bytes* bytes) {
  return reinterpret_cast<const uint8_t*>(bytes->value.c_str());
}
size_t tessera_bytes_size(const tessera_bytes* bytes) {
  return bytes->value.size();
}
void tessera_bytes_free(tessera_bytes* bytes) { delete bytes; }

uint32_t tessera_crc32c(const void* data, size_t size) {
  return dcp::ExtendCrc32c(
      0, dcp::ByteSpan(static_cast<const uint8_t*>(data), size));
}

tessera_stop* tessera_stop_new(void) { return new tessera_stop; }
void tessera_stop_request(tessera_stop* stop) { stop->source.request_stop(); }
void tessera_stop_free(tessera_stop* stop) { delete stop; }

const char* tessera_version(void) { return dcp::kVersion; }

tessera_error* tessera_check_served(const char* path) {
  return dcp::capi::MakeError(
      dcp::WithPlace(dcp::CheckServed(path), {.path = path}));
}
