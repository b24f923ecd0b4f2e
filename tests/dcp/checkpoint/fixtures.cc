// SPDX-License-Identifier: Apache-2.0

#include "tests/dcp/checkpoint/fixtures.h"

#include <algorithm>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "dcp/base/bytes.h"
#include "dcp/base/check.h"
#include "dcp/base/checksum.h"
#include "dcp/base/limits.h"
#include "dcp/base/status.h"
#include "dcp/checkpoint/load/load.h"
#include "dcp/format/index/dcp_metadata_writer.h"
#include "dcp/format/pickle/pickle_writer.h"
#include "dcp/format/safetensors/safetensors.h"
#include "dcp/format/torch/torch_archive_layout.h"
#include "dcp/format/torch/torch_tensor.h"

namespace dcp::testing {
namespace {

class StringSink final : public TensorSink {
 public:
  explicit StringSink(std::string& bytes) : bytes_(bytes) {}

  absl::Status Place(uint64_t offset, ByteSpan src) override {
    DCP_CHECK(offset + src.size() <= bytes_.size());
    if (!src.empty()) {
      std::memcpy(bytes_.data() + offset, src.data(), src.size());
    }
    return absl::OkStatus();
  }
  absl::Status Flush() override { return absl::OkStatus(); }

 private:
  std::string& bytes_;
};

}  // namespace

FileSystem& Disk() {
  static FileSystem* const disk = NewPosixFileSystem().release();
  return *disk;
}

std::string TorchArchiveBytes(const Value& root,
                              const std::vector<std::string>& storages,
                              bool with_crcs) {
  std::vector<uint64_t> lengths;
  std::vector<uint32_t> crcs;
  for (const std::string& storage : storages) {
    lengths.push_back(storage.size());
    crcs.push_back(with_crcs ? ExtendCrc32(0, AsBytes(storage)) : 0);
  }
  const TorchArchiveLayout layout("archive", WritePickle(root), lengths);
  std::string bytes;
  for (size_t i = 0; i < storages.size(); ++i) {
    absl::StrAppend(&bytes, layout.Gap(i, crcs), storages[i]);
  }
  return bytes + layout.Gap(storages.size(), crcs);
}

std::string TensorItem(DType dtype, const Dims& shape,
                       absl::string_view payload) {
  ValueArena arena;
  return TorchArchiveBytes(
      MakeTensor(arena, dtype, shape, /*requires_grad=*/false, "0"),
      {std::string(payload)});
}

std::string ObjectItem(const Value& value) {
  return TorchArchiveBytes(value, {});
}

void DcpBuilder::StartFile(absl::string_view name) {
  metadata_.files.emplace_back(name);
  files_.emplace_back();
}

StorageInfo DcpBuilder::Append(absl::string_view item) {
  const StorageInfo storage = {static_cast<uint32_t>(files_.size() - 1),
                               files_.back().size(), item.size()};
  absl::StrAppend(&files_.back(), item);
  return storage;
}

void DcpBuilder::AddChunk(absl::string_view fqn, DType dtype, const Dims& shape,
                          const Box& box, absl::string_view item) {
  auto it = std::find_if(
      metadata_.entries.begin(), metadata_.entries.end(),
      [&](const MetadataEntry& entry) { return entry.fqn == fqn; });
  if (it == metadata_.entries.end()) {
    metadata_.entries.push_back(
        {.fqn = std::string(fqn),
         .path = {PathElement(std::string(fqn))},
         .value = TensorStorageMetadata{
             .dtype = dtype, .size = shape, .chunks = {}}});
    it = metadata_.entries.end() - 1;
  }
  std::get<TensorStorageMetadata>(it->value).chunks.push_back(
      {.box = box, .storage = Append(item)});
}

void DcpBuilder::AddTensor(absl::string_view fqn, DType dtype,
                           const Dims& shape, absl::string_view payload) {
  AddChunk(fqn, dtype, shape, WholeBox(shape),
           TensorItem(dtype, shape, payload));
}

void DcpBuilder::AddObject(absl::string_view fqn, absl::string_view item) {
  metadata_.entries.push_back(
      {.fqn = std::string(fqn),
       .path = {PathElement(std::string(fqn))},
       .value = BytesStorageMetadata{.storage = Append(item)}});
}

std::string DcpBuilder::Write(const TempDir& dir, absl::string_view directory,
                              absl::string_view metadata_name) const {
  for (size_t i = 0; i < files_.size(); ++i) {
    dir.WriteFile(JoinPath(directory, metadata_.files[i]), files_[i]);
  }
  dir.WriteFile(JoinPath(directory, metadata_name),
                WriteDcpMetadata(metadata_));
  return dir.Join(directory);
}

std::string SafetensorsBytes(
    const std::vector<SmallTensor>& tensors,
    const std::vector<std::pair<std::string, std::string>>& metadata) {
  std::vector<SafetensorsTensor> header;
  std::string data;
  for (const SmallTensor& tensor : tensors) {
    const uint64_t begin = data.size();
    data += tensor.payload;
    header.push_back({.name = tensor.name,
                      .dtype = tensor.dtype,
                      .shape = tensor.shape,
                      .begin = begin,
                      .end = data.size()});
  }
  return WriteSafetensorsHeader(header, metadata) + data;
}

absl::StatusOr<std::unique_ptr<Checkpoint>> OpenCheckpoint(
    absl::string_view path) {
  return Checkpoint::Open(Disk(), path, {});
}

const CheckpointEntry& GetEntry(const Checkpoint& checkpoint,
                                absl::string_view fqn) {
  for (const CheckpointEntry& entry : checkpoint.entries()) {
    if (entry.fqn == fqn) return entry;
  }
  DCP_CHECK(false, "no entry ", fqn);
  __builtin_unreachable();
}

absl::StatusOr<std::map<std::string, std::string>> LoadAll(
    Checkpoint& checkpoint) {
  std::map<std::string, std::string> loaded;
  std::vector<std::unique_ptr<StringSink>> sinks;
  std::vector<LoadTensor> wanted;
  for (const CheckpointEntry& entry : checkpoint.entries()) {
    const TensorEntry* tensor = entry.tensor();
    if (tensor == nullptr) continue;
    std::string& bytes = loaded[entry.fqn];
    bytes.resize(tensor->num_bytes());
    sinks.push_back(std::make_unique<StringSink>(bytes));
    wanted.push_back({.fqn = entry.fqn,
                      .dtype = tensor->dtype,
                      .shape = tensor->shape,
                      .box = WholeBox(tensor->shape),
                      .sink = sinks.back().get()});
  }
  LoadOptions options;
  options.memory_bytes = kMinMemoryBytes;
  DCP_RETURN_IF_ERROR(Load(Disk(), checkpoint, wanted, options));
  return loaded;
}

}  // namespace dcp::testing
