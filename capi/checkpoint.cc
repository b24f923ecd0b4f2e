// SPDX-License-Identifier: Apache-2.0
// The reading half of tessera.h.
//
// Tested by tests/capi/capi_test.cc.
#include "dcp/checkpoint/open/checkpoint.h"

#include <algorithm>
#include <cstdint>
#include <deque>
#include <memory>
#include <new>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/string_view.h"
#include "capi/handles.h"
#include "capi/tessera.h"
#include "dcp/base/bytes.h"
#include "dcp/base/error_place.h"
#include "dcp/base/limits.h"
#include "dcp/base/status.h"
#include "dcp/checkpoint/files/checkpoint_entry.h"
#include "dcp/checkpoint/files/format.h"
#include "dcp/checkpoint/load/load.h"
#include "dcp/checkpoint/load/tensor_sink.h"
#include "dcp/checkpoint/output/dcp_output.h"
#include "dcp/checkpoint/output/object_pickle.h"
#include "dcp/checkpoint/write/image_stream.h"
#include "dcp/checkpoint/write/image_transfer.h"
#include "dcp/format/json/json.h"
#include "dcp/format/pickle/pickle_writer.h"
#include "dcp/format/value/value.h"
#include "dcp/io/block_pool.h"
#include "dcp/io/pipeline.h"
#include "dcp/tensor/box.h"

namespace dcp::capi {
namespace {

std::string NumbersJson(const Dims& numbers) {
  return absl::StrCat("[", absl::StrJoin(numbers, ","), "]");
}

std::string KeysJson(const StatePath& path) {
  std::string json = "[";
  for (const PathElement& element : path) {
    if (json.size() > 1) json += ',';
    const auto* const key = std::get_if<std::string>(&element);
    json += key != nullptr ? QuoteJson(*key)
                           : absl::StrCat(std::get<int64_t>(element));
  }
  return json + "]";
}

std::string TensorJson(const CheckpointEntry& entry,
                       const TensorEntry& tensor) {
  std::string chunks;
  for (const Box& box : tensor.boxes) {
    absl::StrAppend(&chunks, chunks.empty() ? "" : ",", "[",
                    NumbersJson(box.offsets), ",", NumbersJson(box.sizes), "]");
  }
  const StorageInfo place =
      tensor.locations.empty() ? StorageInfo() : tensor.locations.front().item;
  return absl::StrCat(
      "{\"name\":", QuoteJson(entry.fqn), ",\"dtype\":\"",
      TorchName(tensor.dtype), "\",\"shape\":", NumbersJson(tensor.shape),
      ",\"keys\":", KeysJson(entry.path), ",\"place\":[", place.file, ",",
      place.offset, "],\"chunks\":[", chunks, "]}");
}

std::string DescribeJson(const Checkpoint& checkpoint) {
  std::string metadata, warnings, tensors, objects;
  for (const SourceLoss& loss : checkpoint.losses()) {
    absl::StrAppend(&warnings, warnings.empty() ? "" : ",",
                    QuoteJson(loss.text));
  }
  for (const auto& [key, text] : checkpoint.metadata()) {
    absl::StrAppend(&metadata, metadata.empty() ? "" : ",", QuoteJson(key), ":",
                    QuoteJson(text));
  }
  for (const CheckpointEntry& entry : checkpoint.entries()) {
    if (const TensorEntry* tensor = entry.tensor(); tensor != nullptr) {
      absl::StrAppend(&tensors, tensors.empty() ? "" : ",",
                      TensorJson(entry, *tensor));
    } else {
      absl::StrAppend(&objects, objects.empty() ? "" : ",",
                      "{\"name\":", QuoteJson(entry.fqn),
                      ",\"keys\":", KeysJson(entry.path), "}");
    }
  }
  return absl::StrCat(
      "{\"path\":", QuoteJson(checkpoint.path()), ",\"format\":\"",
      FormatName(checkpoint.format()),
      "\",\"flattened\":", checkpoint.flattened() ? "true" : "false",
      ",\"metadata\":{", metadata, "},\"warnings\":[", warnings,
      "],\"tensors\":[", tensors, "],\"objects\":[", objects, "]}");
}

// The caller's memory.
class MemorySink final : public TensorSink {
 public:
  explicit MemorySink(MutableByteSpan memory) : memory_(memory) {}
  MutableByteSpan DirectSpan() override { return memory_; }
  absl::Status Place(uint64_t offset, ByteSpan src) override {
    std::copy(src.begin(), src.end(),
              memory_.begin() + static_cast<int64_t>(offset));
    return absl::OkStatus();
  }
  absl::Status Flush() override { return absl::OkStatus(); }

 private:
  const MutableByteSpan memory_;
};

absl::StatusOr<LoadTensor> MakeLoadTensor(const Checkpoint& checkpoint,
                                          const tessera_region& region,
                                          std::deque<MemorySink>& sinks) {
  LoadTensor wanted;
  wanted.fqn = region.name;
  const std::optional<uint32_t> entry = checkpoint.Find(wanted.fqn);
  const TensorEntry* const tensor =
      entry.has_value() ? checkpoint.entries()[*entry].tensor() : nullptr;
  if (tensor == nullptr) {
    return absl::NotFoundError(
        absl::StrCat(wanted.fqn, " is not a tensor of ", checkpoint.path()));
  }
  DCP_ASSIGN_OR_RETURN(wanted.dtype, ParseDType(region.dtype));
  DCP_ASSIGN_OR_RETURN(wanted.box.sizes,
                       ParseSizes(region.num_dims, region.sizes));
  wanted.box.offsets.assign(region.offsets, region.offsets + region.num_dims);
  wanted.shape = tensor->shape;
  if (wanted.shape.size() != region.num_dims ||
      !Contains(WholeBox(wanted.shape), wanted.box)) {
    return absl::InvalidArgumentError(
        absl::StrCat(ToString(wanted.box), " is not inside shape ",
                     ShapeToString(wanted.shape)));
  }
  const std::optional<uint64_t> num_bytes =
      CheckedMul(static_cast<uint64_t>(Volume(wanted.box.sizes)),
                 ElementSize(wanted.dtype));
  if (num_bytes != region.num_bytes) {
    return absl::InvalidArgumentError(absl::StrCat(
        ShapeToString(wanted.box.sizes), " of ", region.dtype,
        " does not take ", region.num_bytes, " bytes, which the memory has"));
  }
  wanted.sink = &sinks.emplace_back(
      MutableByteSpan(static_cast<uint8_t*>(region.data), region.num_bytes));
  return wanted;
}

// Blocks for a read of so few bytes, or none. A load registers new blocks with
// the kernel, which would take longer than such a read.
std::unique_ptr<BlockPool> SmallReadBlocks(uint64_t num_bytes) {
  if (num_bytes > kMinMemoryBytes) return nullptr;
  // Without this memory, the load reports which memory is missing.
  if (!std::unique_ptr<uint8_t[]>(new (std::nothrow)
                                      uint8_t[kMinMemoryBytes])) {
    return nullptr;
  }
  return std::make_unique<BlockPool>(kMinBlocks);
}

absl::Status Read(Checkpoint& checkpoint, const tessera_region* regions,
                  size_t num_regions, uint64_t memory_bytes, bool verify,
                  const std::stop_token& stop) {
  std::deque<MemorySink> sinks;  // their addresses stay
  std::vector<LoadTensor> tensors;
  uint64_t num_bytes = 0;
  for (size_t i = 0; i < num_regions; ++i) {
    absl::StatusOr<LoadTensor> wanted =
        MakeLoadTensor(checkpoint, regions[i], sinks);
    if (!wanted.ok()) {
      return WithPlace(Annotate(wanted.status(), regions[i].name),
                       {.path = checkpoint.path(), .tensor = regions[i].name});
    }
    // There is nothing to fill, and perhaps no memory.
    if (regions[i].num_bytes > 0) tensors.push_back(*std::move(wanted));
    num_bytes += regions[i].num_bytes;
  }
  const std::unique_ptr<BlockPool> pool = SmallReadBlocks(num_bytes);
  return Load(ProcessFileSystem(), checkpoint, tensors,
              {.memory_bytes = memory_bytes == 0
                                   ? kDefaultMemoryBytes
                                   : std::max(memory_bytes, kMinMemoryBytes),
               .pool = pool.get(),
               .stop = stop,
               .verify = verify});
}

// The archive of one object, as an item in a DCP checkpoint.
absl::StatusOr<std::string> ReadArchive(Checkpoint& checkpoint,
                                        absl::string_view name,
                                        const std::stop_token& stop) {
  const std::optional<uint32_t> entry = checkpoint.Find(name);
  if (!entry.has_value() || checkpoint.entries()[*entry].object() == nullptr) {
    return absl::NotFoundError(
        absl::StrCat(name, " is not an object of ", checkpoint.path()));
  }
  DCP_RETURN_IF_ERROR(checkpoint.Locate({&*entry, 1}, stop));
  const ObjectEntry& object = *checkpoint.entries()[*entry].object();
  DCP_RETURN_IF_ERROR(Annotate(object.unreadable, name));
  ValueArena arena;
  Output output;
  output.needs_crcs = true;
  std::vector<Payload> tensors;
  const Value value =
      RebuildObject(arena, object, [&](const TensorEntry& tensor) {
        tensors.push_back(
            WholePayload(tensor, &checkpoint.files(), tensor.dtype));
        return tensors.size() - 1;
      });
  DcpFileBuilder file("object", output.payloads);
  file.AddObject(WritePickle(value), std::move(tensors));
  output.files.push_back(std::move(file).Finish());
  std::string archive;
  ByteStream stream = [&](ByteSpan bytes) {
    absl::StrAppend(&archive, AsText(bytes));
    return absl::OkStatus();
  };
  TransferStats stats;
  DCP_RETURN_IF_ERROR(
      StreamImage(ProcessFileSystem(), output, stream,
                  {.memory_bytes = kMinMemoryBytes, .stop = stop}, stats));
  return archive;
}

}  // namespace
}  // namespace dcp::capi

tessera_error* tessera_checkpoint_open(const char* path, tessera_stop* stop,
                                       tessera_checkpoint** out) {
  auto opened = dcp::Checkpoint::Open(dcp::capi::ProcessFileSystem(), path, {},
                                      dcp::capi::StopToken(stop));
  if (!opened.ok()) {
    return dcp::capi::MakeError(
        dcp::WithPlace(opened.status(), {.path = path}));
  }
  *out = new tessera_checkpoint{.opened = *std::move(opened)};
  return nullptr;
}

void tessera_checkpoint_free(tessera_checkpoint* checkpoint) {
  delete checkpoint;
}

tessera_error* tessera_checkpoint_describe(const tessera_checkpoint* checkpoint,
                                           tessera_bytes** out) {
  *out = dcp::capi::MakeBytes(dcp::capi::DescribeJson(*checkpoint->opened));
  return nullptr;
}

tessera_error* tessera_checkpoint_read(tessera_checkpoint* checkpoint,
                                       const tessera_region* regions,
                                       size_t num_regions,
                                       uint64_t memory_bytes, int verify,
                                       tessera_stop* stop) {
  const absl::Status read =
      dcp::capi::Read(*checkpoint->opened, regions, num_regions, memory_bytes,
                      verify != 0, dcp::capi::StopToken(stop));
  return dcp::capi::MakeError(
      dcp::WithPlace(read, {.path = checkpoint->opened->path()}));
}

tessera_error* tessera_checkpoint_object(tessera_checkpoint* checkpoint,
                                         const char* name, tessera_stop* stop,
                                         tessera_bytes** out) {
  auto archive = dcp::capi::ReadArchive(*checkpoint->opened, name,
                                        dcp::capi::StopToken(stop));
  if (!archive.ok()) {
    return dcp::capi::MakeError(
        dcp::WithPlace(archive.status(),
                       {.path = checkpoint->opened->path(), .tensor = name}));
  }
  *out = dcp::capi::MakeBytes(*std::move(archive));
  return nullptr;
}
