// SPDX-License-Identifier: Apache-2.0

#include "tests/dcp/checkpoint/mapped_model.h"

#include <algorithm>
#include <cstddef>
#include <iterator>
#include <utility>

#include "absl/strings/str_cat.h"
#include "dcp/base/check.h"

namespace dcp::testing {
namespace {

// Attention: groups with q heads each, which share k and v; a head has d = 2 *
// r rows.
constexpr int64_t kGroups = 3;
constexpr int64_t kQueries = 2;
constexpr int64_t kRows = 6;
constexpr int64_t kColumns = 10;
constexpr int64_t kGroupRows = (kQueries + 2) * kRows;
constexpr int64_t kExperts = 3;
constexpr int64_t kHidden = 14;

uint64_t ToUnsigned(int64_t value) { return static_cast<uint64_t>(value); }

// A loop along the same dimension in both.
StridedLoop Along(int dim, int64_t count, int64_t src_step, int64_t dst_step) {
  return {.count = ToUnsigned(count),
          .src_dim = dim,
          .src_step = ToUnsigned(src_step),
          .dst_dim = dim,
          .dst_step = ToUnsigned(dst_step)};
}

// `heads` heads in each group, which begin at the group's row `first`.
struct Heads {
  int64_t first;
  int64_t heads;
};
constexpr Heads kParts[] = {
    {0, kQueries}, {kQueries * kRows, 1}, {(kQueries + 1) * kRows, 1}};

}  // namespace

StridedPiece Transposition(uint32_t source, const Dims& shape) {
  return {.src = source,
          .dst = 0,
          .src_base = {0, 0},
          .dst_base = {0, 0},
          .loops = {{.count = ToUnsigned(shape[0]),
                     .src_dim = 0,
                     .src_step = 1,
                     .dst_dim = 1,
                     .dst_step = 1},
                    {.count = ToUnsigned(shape[1]),
                     .src_dim = 1,
                     .src_step = 1,
                     .dst_dim = 0,
                     .dst_step = 1}}};
}

std::string MappedModel::Made::BytesOf(const Box& box) const {
  const TensorEntry& entry = mapped->entry();
  const uint64_t element = ElementSize(entry.dtype);
  const Dims strides = RowMajorStrides(entry.shape);
  const Dims box_strides = RowMajorStrides(box.sizes);
  std::string part;
  for (int64_t i = 0; i < Volume(box.sizes); ++i) {
    int64_t at = 0;
    for (size_t d = 0; d < box.sizes.size(); ++d) {
      at += (box.offsets[d] + i / box_strides[d] % box.sizes[d]) * strides[d];
    }
    part.append(bytes, ToUnsigned(at) * element, element);
  }
  return part;
}

MappedModel::MappedModel(FileSystem& fs, DType dtype, const StoredCut& cut)
    : fs_(fs),
      dtype_(dtype),
      cut_(cut),
      files_(fs, "/", {"a", "b"}, DirectMode::kOff, true) {
  // Payloads need not begin at an aligned place.
  contents_[0] = "12345";
}

void MappedModel::AddEveryKind() {
  AddFused();
  AddSplit();
  AddExperts();
  AddRotary();
  AddInterleaved();
  AddPadded();
  AddTransposed("transposed", {33, 47});
}

void MappedModel::Write() {
  DCP_CHECK(WriteFile(fs_, "/a", contents_[0]).ok());
  DCP_CHECK(WriteFile(fs_, "/b", contents_[1]).ok());
}

uint64_t MappedModel::num_stored_bytes() const {
  uint64_t num_bytes = 0;
  for (const SampleTensor& tensor : stored_) num_bytes += tensor.bytes.size();
  return num_bytes;
}

uint32_t MappedModel::AddStored(absl::string_view fqn, const Dims& shape) {
  const SampleTensor& tensor =
      stored_.emplace_back(std::string(fqn), dtype_, shape);
  TensorEntry& entry = entries_.emplace_back();
  entry.dtype = dtype_;
  entry.shape = shape;
  std::vector<Box> boxes;
  for (int64_t row = 0; row < shape[0]; row += cut_.rows_per_chunk) {
    Box rows = WholeBox(shape);
    rows.offsets[0] = row;
    rows.sizes[0] = std::min(cut_.rows_per_chunk, shape[0] - row);
    boxes.push_back(rows);
    if (!cut_.in_columns || shape.size() < 2) continue;
    boxes.back().sizes.back() = shape.back() / 2;
    rows.offsets.back() = shape.back() / 2;
    rows.sizes.back() = shape.back() - rows.offsets.back();
    boxes.push_back(rows);
  }
  for (const Box& box : boxes) {
    const size_t file = entry.boxes.size() % 2;
    ChunkLocation& location = entry.locations.emplace_back();
    location.located = true;
    location.item.file = static_cast<uint32_t>(file);
    location.payload_offset = contents_[file].size();
    contents_[file] += tensor.BytesOf(box);
    entry.boxes.push_back(box);
  }
  return static_cast<uint32_t>(stored_.size() - 1);
}

void MappedModel::AddMade(
    absl::string_view fqn, const Dims& shape,
    const std::vector<StridedPiece>& pieces,
    absl::FunctionRef<std::optional<Origin>(const Dims& index)> origin) {
  std::vector<const TensorEntry*> sources;
  for (const TensorEntry& entry : entries_) sources.push_back(&entry);
  auto mapped = MappedTensor::Make(dtype_, shape, pieces, sources);
  DCP_CHECK(mapped.ok(), fqn, ": ", mapped.status().ToString());
  const uint64_t element = ElementSize(dtype_);
  const Dims strides = RowMajorStrides(shape);
  std::string bytes;
  for (int64_t i = 0; i < Volume(shape); ++i) {
    Dims index = shape;
    for (size_t d = 0; d < shape.size(); ++d) {
      index[d] = i / strides[d] % shape[d];
    }
    const std::optional<Origin> from = origin(index);
    if (!from.has_value()) {
      bytes.append(element, '\0');
      continue;
    }
    const SampleTensor& tensor = *std::next(stored_.begin(), from->source);
    const Dims src_strides = RowMajorStrides(tensor.shape);
    int64_t at = 0;
    for (size_t d = 0; d < src_strides.size(); ++d) {
      at += from->index[d] * src_strides[d];
    }
    bytes.append(tensor.bytes, ToUnsigned(at) * element, element);
  }
  made_.push_back({std::string(fqn), *std::move(mapped), std::move(bytes)});
}

// q, k and v to (group (q + 1 + 1) d) c.
void MappedModel::AddFused() {
  std::vector<StridedPiece> pieces;
  uint32_t sources[3];
  for (size_t i = 0; i < 3; ++i) {
    const auto [first, heads] = kParts[i];
    sources[i] =
        AddStored(absl::StrCat("part", i), {kGroups * heads * kRows, kColumns});
    pieces.push_back(
        {.src = sources[i],
         .dst = 0,
         .src_base = {0, 0},
         .dst_base = {ToUnsigned(first), 0},
         .loops = {Along(0, kGroups, heads * kRows, kGroupRows),
                   Along(0, heads * kRows, 1, 1), Along(1, kColumns, 1, 1)}});
  }
  AddMade(
      "fused", {kGroups * kGroupRows, kColumns}, pieces,
      [&](const Dims& at) -> std::optional<Origin> {
        const int64_t group = at[0] / kGroupRows;
        const int64_t row = at[0] % kGroupRows;
        size_t i = 0;
        while (i < 2 && row >= kParts[i + 1].first) ++i;
        return Origin{
            sources[i],
            {group * kParts[i].heads * kRows + row - kParts[i].first, at[1]}};
      });
}

// And back, from another tensor: three tensors take stripes from one.
void MappedModel::AddSplit() {
  const uint32_t fused = AddStored("whole", {kGroups * kGroupRows, kColumns});
  for (size_t i = 0; i < 3; ++i) {
    const auto [first, heads] = kParts[i];
    const int64_t rows = heads * kRows;
    const StridedPiece piece{
        .src = fused,
        .dst = 0,
        .src_base = {ToUnsigned(first), 0},
        .dst_base = {0, 0},
        .loops = {Along(0, kGroups, kGroupRows, rows), Along(0, rows, 1, 1),
                  Along(1, kColumns, 1, 1)}};
    AddMade(absl::StrCat("split", i), {kGroups * rows, kColumns}, {piece},
            [&, from_row = first](const Dims& at) -> std::optional<Origin> {
              return Origin{
                  fused,
                  {at[0] / rows * kGroupRows + from_row + at[0] % rows, at[1]}};
            });
  }
}

// Experts f c to e c f.
void MappedModel::AddExperts() {
  std::vector<StridedPiece> pieces;
  uint32_t first = 0;
  for (int64_t e = 0; e < kExperts; ++e) {
    const uint32_t source =
        AddStored(absl::StrCat("expert", e), {kHidden, kColumns});
    if (e == 0) first = source;
    pieces.push_back({.src = source,
                      .dst = 0,
                      .src_base = {0, 0},
                      .dst_base = {ToUnsigned(e), 0, 0},
                      .loops = {{.count = kHidden,
                                 .src_dim = 0,
                                 .src_step = 1,
                                 .dst_dim = 2,
                                 .dst_step = 1},
                                {.count = kColumns,
                                 .src_dim = 1,
                                 .src_step = 1,
                                 .dst_dim = 1,
                                 .dst_step = 1}}});
  }
  AddMade("experts", {kExperts, kColumns, kHidden}, pieces,
          [&](const Dims& at) -> std::optional<Origin> {
            return Origin{first + static_cast<uint32_t>(at[0]), {at[2], at[1]}};
          });
}

// (h 2 r) c to (h r 2) c.
void MappedModel::AddRotary() {
  constexpr int64_t kHeads = 16;
  constexpr int64_t kHalf = kRows / 2;
  const uint32_t source = AddStored("halves", {kHeads * kRows, kColumns});
  const StridedPiece piece{
      .src = source,
      .dst = 0,
      .src_base = {0, 0},
      .dst_base = {0, 0},
      .loops = {Along(0, kHeads, kRows, kRows), Along(0, 2, kHalf, 1),
                Along(0, kHalf, 1, 2), Along(1, kColumns, 1, 1)}};
  AddMade(
      "rotary", {kHeads * kRows, kColumns}, {piece},
      [&](const Dims& at) -> std::optional<Origin> {
        const int64_t row = at[0] % kRows;
        return Origin{source, {at[0] - row + row % 2 * kHalf + row / 2, at[1]}};
      });
}

// Two tensors e f to e (f 2), element by element.
void MappedModel::AddInterleaved() {
  const uint32_t gate = AddStored("gate", {kExperts, kHidden});
  const uint32_t up = AddStored("up", {kExperts, kHidden});
  std::vector<StridedPiece> pieces;
  for (const uint32_t source : {gate, up}) {
    pieces.push_back(
        {.src = source,
         .dst = 0,
         .src_base = {0, 0},
         .dst_base = {0, source - gate},
         .loops = {Along(0, kExperts, 1, 1), Along(1, kHidden, 1, 2)}});
  }
  AddMade("gate_up", {kExperts, 2 * kHidden}, pieces,
          [&](const Dims& at) -> std::optional<Origin> {
            return Origin{at[1] % 2 == 0 ? gate : up, {at[0], at[1] / 2}};
          });
}

// v c to (v + pad) c, and a vector that is spread over rows.
void MappedModel::AddPadded() {
  constexpr int64_t kVocabulary = 50;
  constexpr int64_t kPad = 14;
  const uint32_t source = AddStored("lm_head", {kVocabulary, kColumns});
  const std::vector<StridedPiece> pieces = {
      {.src = source,
       .dst = 0,
       .src_base = {0, 0},
       .dst_base = {0, 0},
       .loops = {Along(0, kVocabulary, 1, 1), Along(1, kColumns, 1, 1)}},
      {.src = StridedPiece::kZeros,
       .dst = 0,
       .src_base = {},
       .dst_base = {kVocabulary, 0},
       .loops = {{.count = kPad, .dst_dim = 0},
                 {.count = kColumns, .dst_dim = 1}}}};
  AddMade("padded", {kVocabulary + kPad, kColumns}, pieces,
          [&](const Dims& at) -> std::optional<Origin> {
            if (at[0] >= kVocabulary) return std::nullopt;
            return Origin{source, at};
          });
  const uint32_t row = AddStored("gate_row", {kColumns});
  const StridedPiece spread{
      .src = row,
      .dst = 0,
      .src_base = {0},
      .dst_base = {0, 0},
      .loops = {
          {.count = kRows, .dst_dim = 0},
          {.count = kColumns, .src_dim = 0, .src_step = 1, .dst_dim = 1}}};
  AddMade("spread", {kRows, kColumns}, {spread},
          [&](const Dims& at) -> std::optional<Origin> {
            return Origin{row, {at[1]}};
          });
}

void MappedModel::AddTransposed(absl::string_view fqn, const Dims& shape) {
  const uint32_t source = AddStored(absl::StrCat(fqn, "_stored"), shape);
  AddMade(fqn, {shape[1], shape[0]}, {Transposition(source, shape)},
          [&](const Dims& at) -> std::optional<Origin> {
            return Origin{source, {at[1], at[0]}};
          });
}

}  // namespace dcp::testing
