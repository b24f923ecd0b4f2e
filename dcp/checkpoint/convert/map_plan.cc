// SPDX-License-Identifier: Apache-2.0

#include "dcp/checkpoint/convert/map_plan.h"

#include <algorithm>
#include <cstddef>
#include <string>

#include "absl/strings/str_cat.h"
#include "dcp/base/bytes.h"
#include "dcp/base/checksum.h"
#include "dcp/base/status.h"
#include "dcp/checkpoint/lens/lensed_tensor.h"
#include "dcp/tensor/box.h"
#include "dcp/tensor/dtype.h"

namespace dcp {
namespace {

// The stored tensor that a source is, or that it is computed from. The schedule
// of a transfer does not read the tables for the computation.
const TensorEntry& StoredEntry(const TensorEntry& source) {
  return source.lensed != nullptr ? source.lensed->values() : source;
}

// The elements from a chunk's first to its last, in the file.
uint64_t BoxExtent(const Box& box, const Dims& strides) {
  uint64_t extent = 1;
  for (size_t d = 0; d < box.sizes.size(); ++d) {
    if (box.sizes[d] == 0) return 0;
    extent += static_cast<uint64_t>((box.sizes[d] - 1) * strides[d]);
  }
  return extent;
}

}  // namespace

PlannedMap PlanMap(const MapSpec& spec, const MappedTensors& report) {
  PlannedMap map{
      .name = spec.mapping.name(),
      .from = spec.options.from,
      .to = spec.options.to,
      .digest = absl::StrCat(absl::Hex(Xxh3Digest(AsBytes(spec.mapping.text())),
                                       absl::kZeroPad16)),
      .config = report.config,
      .rules = {},
      .missing = report.missing,
      .dropped = report.dropped,
      .copied = report.copied};
  for (const RuleReport& rule : report.rules) {
    map.rules.push_back({.file = rule.file,
                         .line = rule.line,
                         .text = rule.text,
                         .shapes = rule.shapes,
                         .num_instances = rule.num_instances,
                         .num_sources = rule.num_sources,
                         .num_destinations = rule.num_destinations,
                         .num_pieces = rule.num_pieces,
                         .num_bytes = rule.num_bytes,
                         .rule_class = rule.rule_class});
  }
  return map;
}

absl::StatusOr<RuleReads> RuleReads::Make(const MappedEntries& mapped,
                                          SourceFiles& files) {
  RuleReads reads(mapped);
  for (size_t i = 0; i < reads.counts_.size(); ++i) {
    DCP_RETURN_IF_ERROR(reads.AddSource(i, files));
  }
  reads.Sort();
  return reads;
}

absl::Status RuleReads::AddSource(size_t source, SourceFiles& files) {
  const TensorEntry& stored = StoredEntry(*mapped_->sources[source]);
  counts_[source].num_stored = stored.num_bytes();
  for (size_t i = 0; i < stored.boxes.size(); ++i) {
    const ChunkLocation& location = stored.locations[i];
    if (!location.located) continue;
    DCP_ASSIGN_OR_RETURN(const File file, files.Get(location.item.file));
    const Box& box = stored.boxes[i];
    const uint64_t extent =
        BoxExtent(box, location.strides.empty() ? RowMajorStrides(box.sizes)
                                                : location.strides);
    stretches_[file.handle].push_back(
        {.begin = location.payload_offset,
         .end = location.payload_offset + extent * ElementSize(stored.dtype),
         .source = source});
  }
  return absl::OkStatus();
}

void RuleReads::Sort() {
  for (auto& [file, stretches] : stretches_) {
    std::sort(
        stretches.begin(), stretches.end(),
        [](const Stretch& a, const Stretch& b) { return a.begin < b.begin; });
    uint64_t reach = 0;
    for (Stretch& stretch : stretches) {
      reach = std::max(reach, stretch.end);
      stretch.reach = reach;
    }
  }
}

void RuleReads::Add(const PlannedRead& read) {
  const auto file = stretches_.find(read.file.handle);
  if (file == stretches_.end()) return;
  const std::vector<Stretch>& stretches = file->second;
  const uint64_t end = read.offset + read.length;
  auto it = std::lower_bound(
      stretches.begin(), stretches.end(), end,
      [](const Stretch& stretch, uint64_t at) { return stretch.begin < at; });
  while (it != stretches.begin() && (--it)->reach > read.offset) {
    if (it->end <= read.offset) continue;
    counts_[it->source].num_read +=
        std::min(it->end, end) - std::max(it->begin, read.offset);
  }
}

void RuleReads::SetRatios(PlannedMap& map) const {
  for (size_t i = 0; i < map.rules.size(); ++i) {
    Count sum;
    for (const uint32_t source : mapped_->report.rules[i].sources) {
      sum.num_stored += counts_[source].num_stored;
      sum.num_read += counts_[source].num_read;
    }
    if (sum.num_read == 0) continue;
    map.rules[i].read_ratio =
        static_cast<double>(sum.num_read) / static_cast<double>(sum.num_stored);
  }
}

}  // namespace dcp
