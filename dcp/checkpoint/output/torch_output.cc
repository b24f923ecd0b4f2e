// SPDX-License-Identifier: Apache-2.0

#include "dcp/checkpoint/output/torch_output.h"

#include <memory>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "dcp/base/status.h"
#include "dcp/checkpoint/output/object_pickle.h"
#include "dcp/format/pickle/pickle_writer.h"
#include "dcp/format/torch/state_path.h"
#include "dcp/format/torch/state_tree.h"
#include "dcp/format/torch/torch_archive_layout.h"
#include "dcp/format/torch/torch_tensor.h"

namespace dcp {
size_t TorchStorages::Add(const TensorEntry& tensor, DType dtype) {
  if (tensor.locations.size() != 1 || tensor.num_bytes() == 0) {
    return AddNew(tensor, dtype);
  }
  const ChunkLocation& location = tensor.locations[0];
  const Key key(location.item.file, location.payload_offset, tensor.dtype,
                dtype, tensor.shape, location.strides, location.conj,
                location.neg);
  const auto [it, is_new] = known_.emplace(key, payloads_.size());
  return is_new ? AddNew(tensor, dtype) : it->second;
}

size_t TorchStorages::AddNew(const TensorEntry& tensor, DType dtype) {
  payloads_.push_back(WholePayload(tensor, &files_, dtype));
  return payloads_.size() - 1;
}

Output TorchFileOutput(absl::string_view file_name, std::string pickle,
                       std::vector<Payload> storages) {
  Output output;
  output.payloads = std::move(storages);
  std::vector<uint64_t> storage_bytes;
  for (const Payload& payload : output.payloads) {
    storage_bytes.push_back(payload.num_bytes());
  }
  auto archive = std::make_unique<TorchArchiveLayout>(
      TorchArchiveName(file_name), std::move(pickle), storage_bytes);
  FileLayout layout{std::string(file_name)};
  const auto num_storages = static_cast<uint32_t>(storage_bytes.size());
  for (uint32_t i = 0; i < num_storages; ++i) {
    layout.Append(archive->gap_length(i), storage_bytes[i], i,
                  i == 0 ? kNeedsNoPart : i - 1);
  }
  layout.Append(archive->gap_length(num_storages), 0, 0,
                num_storages == 0 ? kNeedsNoPart : 0);
  output.needs_crcs = true;
  output.files.push_back(
      {.layout = std::move(layout),
       .literal = [archive = std::move(archive)](
                      size_t part, absl::Span<const uint32_t> crcs) {
         return archive->Gap(part, crcs);
       }});
  return output;
}

absl::StatusOr<Output> BuildTorchOutput(absl::Span<const OutputEntry> entries,
                                        SourceFiles& files,
                                        absl::string_view file_name) {
  TorchStorages storages(files);
  std::string pickle;
  {
    ValueArena arena;
    std::vector<FlatValue> leaves;
    leaves.reserve(entries.size());
    for (const OutputEntry& entry : entries) {
      Value value;
      if (entry.tensor != nullptr) {
        value =
            MakeTensor(arena, entry.dtype, entry.tensor->shape,
                       entry.tensor->requires_grad,
                       absl::StrCat(storages.Add(*entry.tensor, entry.dtype)));
      } else {
        value =
            RebuildObject(arena, *entry.object, [&](const TensorEntry& tensor) {
              return storages.Add(tensor, tensor.dtype);
            });
      }
      leaves.push_back({entry.fqn, entry.path, value});
    }
    DCP_ASSIGN_OR_RETURN(const Value root, Unflatten(arena, leaves));
    pickle = WritePickle(root);
  }
  return TorchFileOutput(file_name, std::move(pickle), storages.Take());
}

}  // namespace dcp
