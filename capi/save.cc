// SPDX-License-Identifier: Apache-2.0
// The writing half of tessera.h.
//
// Tested by tests/capi/capi_test.cc.
#include <algorithm>
#include <cstdint>
#include <deque>
#include <iterator>
#include <memory>
#include <string>
#include <utility>
#include <vector>

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
#include "dcp/checkpoint/destination/destination.h"
#include "dcp/checkpoint/destination/destination_names.h"
#include "dcp/checkpoint/destination/plan_destination.h"
#include "dcp/checkpoint/files/digests.h"
#include "dcp/checkpoint/formats/dcp_opener.h"
#include "dcp/checkpoint/output/dcp_output.h"
#include "dcp/checkpoint/output/output.h"
#include "dcp/checkpoint/write/image_transfer.h"
#include "dcp/checkpoint/write/staged_transfer.h"
#include "dcp/io/pipeline.h"
#include "dcp/tensor/box.h"
#include "dcp/tensor/dtype.h"

namespace dcp::capi {
namespace {

// Makes the error for a failed call on `path`.
tessera_error* ErrorAt(const absl::Status& status, absl::string_view path) {
  return MakeError(WithPlace(status, {.path = std::string(path)}));
}

absl::Status CheckName(absl::string_view name) {
  if (IsDataFileName(name)) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      "'", name, "' is not the name of a data file, such as '__0_0.distcp'"));
}

}  // namespace
}  // namespace dcp::capi

struct tessera_save {
  std::string path;
  std::unique_ptr<dcp::Destination> destination;
};

struct tessera_file {
  explicit tessera_file(const char* directory) : path(directory) {
    output.needs_crcs = true;
    output.needs_digests = true;
    builder = std::make_unique<dcp::DcpFileBuilder>("", output.payloads);
  }

  std::string path;  // the checkpoint's
  dcp::Output output;
  std::unique_ptr<dcp::DcpFileBuilder> builder;      // null once written
  std::deque<dcp::capi::CallerSource> sources = {};  // their addresses stay
};

namespace dcp::capi {
namespace {

absl::StatusOr<std::unique_ptr<Destination>> Begin(const char* path,
                                                   bool overwrite) {
  DCP_ASSIGN_OR_RETURN(std::unique_ptr<Destination> destination,
                       PlanDestination(ProcessFileSystem(), path,
                                       Destination::Kind::kDcpDirectory,
                                       overwrite, {}, "a save"));
  DCP_RETURN_IF_ERROR(destination->Begin());
  return destination;
}

absl::StatusOr<std::vector<ChunkDigest>> AllDigests(const char* const* texts,
                                                    size_t num_texts) {
  std::vector<ChunkDigest> all;
  for (size_t i = 0; i < num_texts; ++i) {
    DCP_ASSIGN_OR_RETURN(std::vector<ChunkDigest> some, ParseDigests(texts[i]));
    std::move(some.begin(), some.end(), std::back_inserter(all));
  }
  return all;
}

absl::StatusOr<StorageInfo> AddTensor(tessera_file& file, const char* dtype,
                                      size_t num_dims, const int64_t* sizes,
                                      const void* data, tessera_fill fill,
                                      void* context) {
  Payload payload;
  DCP_ASSIGN_OR_RETURN(payload.dtype, ParseDType(dtype));
  DCP_ASSIGN_OR_RETURN(const Dims dims, ParseSizes(num_dims, sizes));
  payload.box = WholeBox(dims);
  if (!CheckedMul(static_cast<uint64_t>(Volume(dims)),
                  ElementSize(payload.dtype))) {
    return absl::InvalidArgumentError(
        absl::StrCat(ShapeToString(dims), " of ", dtype, " is too large"));
  }
  if (data == nullptr && fill == nullptr && payload.num_bytes() > 0) {
    return absl::InvalidArgumentError("the tensor has no memory");
  }
  payload.source = &file.sources.emplace_back(data, fill, context);
  payload.entry = static_cast<uint32_t>(file.output.payloads.size());
  return file.builder->AddTensor(std::move(payload));
}

absl::StatusOr<std::string> Write(tessera_file& file, const char* name,
                                  const tessera_write_options& options,
                                  const std::stop_token& stop) {
  DCP_RETURN_IF_ERROR(CheckName(name));
  file.output.files.push_back(std::move(*file.builder).Finish());
  file.builder.reset();
  file.output.files[0].layout.set_name(name);
  FileSystem& fs = ProcessFileSystem();
  DCP_ASSIGN_OR_RETURN(const OutputBlocks blocks,
                       OutputBlocksFor(fs, file.path, file.output));
  const std::unique_ptr<Destination> destination =
      AttachToDestination(fs, file.path);
  const uint64_t memory_bytes =
      options.memory_bytes == 0 ? kDefaultMemoryBytes : options.memory_bytes;
  TransferStats stats;
  DCP_ASSIGN_OR_RETURN(
      std::vector<ChunkDigest> digests,
      StageAndTransfer(fs, file.output,
                       {.on_staged = [] { return absl::OkStatus(); },
                        .open = [&]() -> absl::StatusOr<Destination*> {
                          return destination.get();
                        }},
                       {.direct = ToDirectMode(options),
                        .memory_bytes = std::max(
                            memory_bytes, kMinBlocks * blocks.block_bytes),
                        .block_bytes = blocks.block_bytes,
                        .max_rate = options.max_rate,
                        .stop = stop},
                       stats));
  return WriteDigests(std::move(digests));
}

tessera_error* Return(const tessera_file& file,
                      const absl::StatusOr<StorageInfo>& added,
                      tessera_range* out) {
  if (!added.ok()) return ErrorAt(added.status(), file.path);
  *out = {.offset = added->offset, .length = added->length};
  return nullptr;
}

absl::Status CheckUnwritten(const tessera_file& file) {
  if (file.builder != nullptr) return absl::OkStatus();
  return absl::FailedPreconditionError("the file has been written already");
}

}  // namespace
}  // namespace dcp::capi

tessera_error* tessera_save_begin(const char* path, int overwrite,
                                  tessera_save** out) {
  auto destination = dcp::capi::Begin(path, overwrite != 0);
  if (!destination.ok()) return dcp::capi::ErrorAt(destination.status(), path);
  *out = new tessera_save{.path = path, .destination = *std::move(destination)};
  return nullptr;
}

tessera_error* tessera_save_file_name(tessera_save* save, int64_t rank,
                                      tessera_bytes** out) {
  if (rank < 0) {
    return dcp::capi::ErrorAt(
        absl::InvalidArgumentError(absl::StrCat("rank ", rank, " is negative")),
        save->path);
  }
  std::string name = save->destination->NextDataFileName(rank);
  save->destination->Created(name);
  *out = dcp::capi::MakeBytes(std::move(name));
  return nullptr;
}

tessera_error* tessera_save_adopt(tessera_save* save, const char* name) {
  const absl::Status checked = dcp::capi::CheckName(name);
  if (checked.ok()) save->destination->Created(name);
  return dcp::capi::ErrorAt(checked, save->path);
}

tessera_error* tessera_save_commit(tessera_save* save, const char* save_id,
                                   const uint8_t* metadata,
                                   size_t num_metadata_bytes,
                                   const char* const* digests,
                                   size_t num_digests) {
  const auto all = dcp::capi::AllDigests(digests, num_digests);
  if (!all.ok()) return dcp::capi::ErrorAt(all.status(), save->path);
  return dcp::capi::ErrorAt(
      save->destination->Commit(
          dcp::kDcpMetadataName,
          dcp::AsText(dcp::ByteSpan(metadata, num_metadata_bytes)),
          dcp::DigestsName(save_id), *all),
      save->path);
}

void tessera_save_free(tessera_save* save) { delete save; }

tessera_error* tessera_file_new(const char* path, tessera_file** out) {
  *out = new tessera_file(path);
  return nullptr;
}

tessera_error* tessera_file_add_tensor(tessera_file* file, const char* dtype,
                                       size_t num_dims, const int64_t* sizes,
                                       const void* data, tessera_fill fill,
                                       void* context, tessera_range* out) {
  const absl::Status checked = dcp::capi::CheckUnwritten(*file);
  if (!checked.ok()) return dcp::capi::ErrorAt(checked, file->path);
  return dcp::capi::Return(
      *file,
      dcp::capi::AddTensor(*file, dtype, num_dims, sizes, data, fill, context),
      out);
}

tessera_error* tessera_file_add_object(tessera_file* file, uint64_t size,
                                       const void* data, tessera_fill fill,
                                       void* context, tessera_range* out) {
  absl::Status checked = dcp::capi::CheckUnwritten(*file);
  if (data == nullptr && fill == nullptr && size > 0) {
    checked.Update(absl::InvalidArgumentError("the object has no memory"));
  }
  if (!checked.ok()) return dcp::capi::ErrorAt(checked, file->path);
  dcp::Payload payload;
  payload.dtype = dcp::DType::kUInt8;
  const dcp::Dims sizes = {static_cast<int64_t>(size)};
  payload.box = dcp::WholeBox(sizes);
  payload.source = &file->sources.emplace_back(data, fill, context);
  payload.entry = static_cast<uint32_t>(file->output.payloads.size());
  return dcp::capi::Return(
      *file, file->builder->AddItemAsStored(std::move(payload)), out);
}

tessera_error* tessera_file_write(tessera_file* file, const char* name,
                                  const tessera_write_options* options,
                                  tessera_stop* stop, tessera_bytes** digests) {
  const absl::Status checked = dcp::capi::CheckUnwritten(*file);
  if (!checked.ok()) return dcp::capi::ErrorAt(checked, file->path);
  auto written = dcp::capi::Write(
      *file, name, options == nullptr ? tessera_write_options{} : *options,
      dcp::capi::StopToken(stop));
  if (!written.ok()) return dcp::capi::ErrorAt(written.status(), file->path);
  *digests = dcp::capi::MakeBytes(*std::move(written));
  return nullptr;
}

void tessera_file_free(tessera_file* file) { delete file; }
